"""The note's numbers that belong to the data rather than to one closed form."""

import pytest
import torch

from skiplens.data.images import sample
from skiplens.data.preprocessing import fit_whitening
from skiplens.linalg.second_moments import second_moments
from skiplens.papers.li2016_shortcuts.hessian.at_zero import hessian_at_zero, near_zero_rectified_spectrum
from tests.papers.li2016_shortcuts.hessian.reference import data
from tests.papers.li2016_shortcuts.hessian.test_whitened_mnist import mnist as mnist
from tests.tolerances import STANDARD_ERRORS, assert_close


@pytest.mark.parametrize(
    ("shape", "sums"), [((3, 8), (-1.74, 6.9348, 3.24)), ((10, 40), (-7.28, 135.8456, 445.76))], ids=["S3", "S10"]
)
def test_sums_of_the_reference_inputs(shape, sums):
    x, _ = data(*shape)
    weights = torch.arange(1, shape[1] + 1)[:, None] * torch.arange(1, shape[0] + 1)
    assert_close(torch.stack([x.sum(), x.square().sum(), (weights * x).sum()]), torch.tensor(sums))


@pytest.fixture(scope="module")
def thousand():
    """The first thousand digits, which are embedded, whitened by themselves."""
    digits = sample()
    images, labels = digits.images[:1000], digits.labels[:1000]
    return fit_whitening(images, 10)(images).double(), torch.nn.functional.one_hot(labels.long(), 10).double()


@pytest.mark.parametrize(("depth", "proxy"), [(2, 3.79), (4, 3.76), (8, 3.77), (16, 3.81), (32, 3.80)])
def test_rectified_networks_beside_zero_do_not_depend_on_depth(thousand, depth, proxy):
    """Section 2(d): 3.8 at every depth, where the convention of half a slope says 1.56."""
    draws = 12
    found = torch.tensor([beside_zero(thousand, depth, seed) for seed in range(draws)])
    # The note's means have a deviation of at most 0.2 from draw to draw, over at least three draws.
    assert (found.mean() - proxy).abs() <= STANDARD_ERRORS * 0.2 * (1 / draws + 1 / 3) ** 0.5
    convention = hessian_at_zero(*thousand, depth).spectrum
    assert convention.condition_number == pytest.approx(1.558479010899168, rel=1e-10)


def beside_zero(task, depth, seed):
    rows = torch.randn(depth // 2, 10, 10, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return near_zero_rectified_spectrum(rows, *task).condition_number


@pytest.mark.slow
def test_cross_moments_of_whitened_mnist(mnist):
    cross = second_moments(*mnist).cross
    assert_close(cross.square().sum(), torch.tensor(0.325717978497229), relative=1e-11)
    values = torch.linalg.svdvals(cross)
    expected = torch.tensor([0.266992438783, 0.0395751373312, 0.0320984758227, 0.0])
    assert (values[[0, 7, 8, 9]] - expected).abs().max() < 1e-11  # twelve digits are printed
    assert cross.trace().item() == pytest.approx(0.484090221403866, rel=1e-10)


@pytest.mark.slow
def test_slope_of_the_growth_with_depth(mnist):
    """Section 2(c): λ_max grows by λ_max(B + S) a unit at least, S the symmetric part of C."""
    one, two = (hessian_at_zero(*mnist, units, branch_depth=1).dense() for units in (1, 2))
    size = len(one)
    below = two[size:, :size]  # A = B + C
    assert torch.linalg.eigvalsh((below + below.T) / 2)[-1].item() == pytest.approx(2.173345, abs=1e-6)
