import math

import pytest
import torch

from skiplens.papers.littwin2016_ensembles.spin_glass.expected_counts import (
    growing_breaks,
    log_eigenvalue_density,
    log_index_determinants,
    panel_nodes,
    pfaffian_coefficients,
    unit_panels,
)
from tests.tolerances import STANDARD_ERRORS, assert_close


@pytest.mark.parametrize("size", [1, 2, 3, 10, 41])
def test_density_has_the_right_mass_and_second_moment(size):
    x = torch.linspace(-2 * math.sqrt(size) - 12, 2 * math.sqrt(size) + 12, 6001)
    density = log_eigenvalue_density(size, x).exp()
    step = (x[1] - x[0]).item()
    assert density.sum().item() * step == pytest.approx(size, rel=1e-12)
    # E tr G² = size · 2 + size (size − 1) · 1
    assert (density * x.square()).sum().item() * step == pytest.approx(size * (size + 1), rel=1e-12)


def test_density_of_two_eigenvalues_from_their_joint_law():
    x = torch.tensor([-3.0, 0.0, 0.4, 2.0])
    y = torch.linspace(-16, 16, 400_001)
    inner = torch.stack([((v - y).abs() * torch.exp(-(v**2 + y.square()) / 4)).sum() for v in x]) * (y[1] - y[0])
    normaliser = 8 * math.sqrt(2 * math.pi)  # ∬ |a − b| exp(−(a² + b²)/4)
    # the kink of |v − y| costs the sum an error of the order of the step squared
    assert_close(log_eigenvalue_density(2, x).exp(), 2 * inner / normaliser, relative=1e-8)


def test_density_of_a_large_matrix_is_the_semicircle():
    x = torch.tensor([0.0, 30.0, 50.0])
    semicircle = torch.sqrt(4 * 1000 - x.square()) / (2 * math.pi)
    assert_close(log_eigenvalue_density(1000, x).exp(), semicircle, relative=2e-3)  # oscillates by about 1/size
    assert torch.isfinite(log_eigenvalue_density(1000, torch.tensor([500.0])))


@pytest.mark.parametrize("size", [1, 2, 3, 6])
@pytest.mark.parametrize("shift", [-2.0, 0.0, 0.7])
def test_index_determinants_equal_monte_carlo(size, shift, generator):
    samples = 60_000
    A = torch.randn(samples, size, size, generator=generator)
    eigenvalues = torch.linalg.eigvalsh((A + A.mT) / math.sqrt(2))
    determinant = (eigenvalues - shift).abs().prod(1)
    below = (eigenvalues < shift).sum(1)
    values = torch.stack([determinant * (below == k) for k in range(size + 1)], 1)
    found = log_index_determinants(size, torch.tensor([shift]))[0].exp()
    error = values.std(0) / math.sqrt(samples)
    seen = torch.bincount(below, minlength=size + 1) > 500  # fewer do not show their own spread
    assert ((values.mean(0) - found).abs() < STANDARD_ERRORS * error)[seen].all()


@pytest.mark.parametrize("size", [1, 4, 7, 12])
def test_signed_sum_of_index_determinants_is_a_hermite_polynomial(size):
    s = torch.tensor([-9.0, -1.3, 0.2, 4.0])
    signed = (log_index_determinants(size, s).exp() * (-1.0) ** torch.arange(size + 1)).sum(1)
    before, hermite = torch.ones_like(s), -s
    for n in range(1, size):  # E det(G − s) = He(−s): every symmetric matrix with unit off-diagonal variance has it
        before, hermite = hermite, -s * hermite - n * before
    assert ((signed - hermite).abs() < 1e-11 * log_index_determinants(size, s).exp().sum(1)).all()


def test_no_matrix_has_determinant_one():
    assert log_index_determinants(0, torch.tensor([0.3])).tolist() == [[0.0]]


def test_pencil_of_two_independent_planes():
    # Pf of [[0, a], [-a, 0]] blocks: (1 + 2ζ)(3 + ζ/2) = 3 + 6.5 ζ + ζ²
    plane = torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
    X = torch.block_diag(1 * plane, 3 * plane)[None]
    Y = torch.block_diag(2 * plane, 0.5 * plane)[None]
    assert_close(pfaffian_coefficients(X, Y, 2).exp(), torch.tensor([[3.0, 6.5, 1.0]]))


def test_sign_kernel_integrates_a_smooth_function():
    x, w, K = unit_panels(3, 12)
    # ∫ sgn(y − x) e^x dx over [0, 1] = 2 e^y − 1 − e
    assert_close(K @ x.exp(), 2 * x.exp() - 1 - math.e)
    assert w.sum().item() == pytest.approx(1, rel=1e-14)


def test_growing_panels_cover_the_interval():
    breaks = growing_breaks(1.0, 50.0, 0.5, 4.0)
    assert (breaks[0], breaks[-1]) == (1, 50)
    assert breaks.diff().min() > 0
    assert breaks.diff().max() <= 4
    x, w = panel_nodes(breaks, 10)
    assert (w / x).sum().item() == pytest.approx(math.log(50), rel=1e-12)
