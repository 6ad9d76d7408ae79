import itertools
import math

import pytest
import torch

from skiplens.base.errors import InvalidInputError, TooLargeError
from skiplens.papers.littwin2016_ensembles.spin_glass import hamiltonian as spin_glass_hamiltonian
from skiplens.papers.littwin2016_ensembles.spin_glass.complexity import Mixture
from skiplens.papers.littwin2016_ensembles.spin_glass.hamiltonian import (
    SpinGlass,
    random_points,
)
from tests.tolerances import RELATIVE, STANDARD_ERRORS, assert_close

WEIGHTS = [0.3, 0.5, 0.6, 0.2]


@pytest.fixture
def mixture():
    return Mixture(torch.tensor(WEIGHTS))


def test_monomials_equal_products_of_their_indices(generator):
    points = torch.randn(3, 4, generator=generator)
    for degree, values in enumerate(spin_glass_hamiltonian.table(points, 4)):
        tuples = list(itertools.combinations_with_replacement(range(4), degree))
        expected = torch.stack([points[:, list(indices)].prod(1) for indices in tuples], 1)
        assert_close(values, expected)
        assert spin_glass_hamiltonian.index_tuples(4, degree).tolist() == [list(indices) for indices in tuples]


def test_multinomials_count_orders_of_factors():
    logs = spin_glass_hamiltonian.log_multinomials(3, 4)
    for indices, value in zip(itertools.combinations_with_replacement(range(3), 4), logs.exp().tolist(), strict=True):
        assert value == pytest.approx(len(set(itertools.permutations(indices))), rel=1e-13)


@pytest.mark.parametrize("spins", [1, 2, 5])
def test_gradient_and_hessian_equal_autograd(mixture, spins, generator):
    glass = SpinGlass.sample(mixture, spins, generator)
    points = torch.randn(6, spins, generator=generator)
    leaf = points.clone().requires_grad_()
    energy = glass.energy(leaf)
    (gradient,) = torch.autograd.grad(energy.sum(), leaf)
    found_energy, found_gradient = glass.energy(points), glass.gradient(points)
    assert_close(found_energy, energy.detach())
    assert_close(found_gradient, gradient)
    expected = torch.autograd.functional.hessian(lambda w: glass.energy(w[None])[0], points[0])
    assert_close(glass.hessian(points)[0], expected)


def test_orders_are_homogeneous_and_add_up(mixture, generator):
    glass = SpinGlass.sample(mixture, 4, generator)
    points = random_points(5, 4, generator)
    parts = glass.energy_by_order(points)
    assert_close(parts.sum(1), glass.energy(points))
    assert_close(glass.energy_by_order(3 * points), parts * 3.0 ** torch.arange(1, 5))


def test_linear_model_has_no_hessian(generator):
    glass = SpinGlass.sample(Mixture.pure(1), 3, generator)
    assert not glass.hessian(random_points(2, 3, generator)).any()


def two_points(spins):
    """Two points of the sphere with overlap 0.6, where dropping one factor of each product would show."""
    points = torch.zeros(2, spins)
    points[0, 0], points[1, 0], points[1, 1] = 1, 0.6, 0.8
    return math.sqrt(spins) * points


def assert_covariance(energies, expected):
    """Second moments of Gaussian pairs within their standard errors, √(C_ii C_jj + C_ij²)/√samples."""
    samples = len(energies)
    found = energies.T @ energies / samples
    variances = expected.diagonal()
    error = torch.sqrt((variances[:, None] * variances + expected.square()) / samples)
    assert ((found - expected).abs() < STANDARD_ERRORS * error).all()
    assert (energies.mean(0).abs() < STANDARD_ERRORS * torch.sqrt(variances / samples)).all()


def test_covariance_of_kept_couplings(mixture, generator):
    points = two_points(3)
    energies = torch.stack([SpinGlass.sample(mixture, 3, generator).energy(points) for _ in range(1500)])
    assert_covariance(energies, 3 * mixture.covariance(torch.tensor([[1.0, 0.6], [0.6, 1.0]])))


def test_points_are_worked_off_in_pieces(mixture, generator, monkeypatch):
    from skiplens.papers.littwin2016_ensembles.spin_glass import hamiltonian

    glass = SpinGlass.sample(mixture, 4, generator)
    points = random_points(9, 4, generator)
    whole = glass.energy(points), glass.gradient(points)
    monkeypatch.setattr(hamiltonian, "budget_bytes", lambda device: 1)
    for piece, expected in zip((glass.energy(points), glass.gradient(points)), whole, strict=True):
        assert_close(piece, expected)


def test_float32_points(mixture, generator):
    glass = SpinGlass.sample(mixture, 4, generator)
    points = random_points(5, 4, generator)
    single = glass.energy(points.float())
    assert single.dtype == torch.float32
    assert_close(single.double(), glass.energy(points), relative=RELATIVE[torch.float32])


def test_the_same_seed_is_the_same_spin_glass(mixture):
    first, second = (SpinGlass.sample(mixture, 4, torch.Generator().manual_seed(7)) for _ in range(2))
    for a, b in zip(first.couplings, second.couplings, strict=True):
        assert torch.equal(a, b)


def test_too_many_spins_for_a_dense_tensor_say_what_to_use(generator):
    with pytest.raises(
        TooLargeError, match=r"couplings of 1000 spins up to order 10 needs .* Take fewer spins or a lower order"
    ):
        SpinGlass.sample(Mixture.pure(10), 1000, generator)


def test_bad_input(mixture, generator):
    glass = SpinGlass.sample(mixture, 4, generator)
    with pytest.raises(InvalidInputError, match=r"shape \(points, 4\); got torch.float64 of shape \(3, 5\)"):
        glass.energy(torch.zeros(3, 5))
    with pytest.raises(InvalidInputError, match="A spin glass needs at least one spin; got 0"):
        SpinGlass.sample(mixture, 0, generator)
