import math
from fractions import Fraction

import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.paths.laws import linear_branch_energies, rectified_branch_energies
from tests import wide_networks
from tests.tolerances import assert_close


def stirling(depth):
    """Unsigned Stirling numbers of the first kind |s(p, r)| for r = 1..p."""
    numbers = [1]
    for n in range(1, depth):
        numbers = [n * a + b for a, b in zip([*numbers, 0], [0, *numbers], strict=True)]
    return numbers


@pytest.mark.parametrize("depth", [1, 2, 3, 10, 54])
def test_equal_scales_give_stirling_numbers(depth):
    expected = [float(Fraction(number, math.factorial(depth))) for number in stirling(depth)]
    assert linear_branch_energies(torch.ones(depth)).tolist() == pytest.approx(expected, rel=1e-12)


def test_mean_length_is_a_harmonic_number():
    energies = linear_branch_energies(torch.ones(54))
    assert 1 + (energies @ torch.arange(54.0)).item() == pytest.approx(4.5754303937, abs=5e-11)
    squares = torch.tensor([0.7, 1.3, 0.2, 2.0]).square()
    energies = linear_branch_energies(squares.sqrt())
    expected = (squares[1:] / squares.cumsum(0)[1:]).sum().item()
    assert (energies @ torch.arange(4.0)).item() == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize(
    ("depth", "mean"), [(10, 3.3050389817), (20, 4.2448737246), (54, 5.6602748381), (100, 6.5576501279)]
)
def test_printed_mean_lengths_of_rectified_branches(depth, mean):
    energies = rectified_branch_energies(torch.ones(depth))
    assert 1 + (energies @ torch.arange(float(depth))).item() == pytest.approx(mean, abs=5e-11)
    assert energies.sum().item() == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize("energies", [linear_branch_energies, rectified_branch_energies])
def test_only_ratios_of_scales_count_and_a_larger_first_scale_is_shallower(energies):
    scales = torch.tensor([1.0, 0.4, 1.6, 0.9])
    assert_close(energies(3 * scales), energies(scales))
    larger = scales.clone()
    larger[0] = 2
    branches = torch.arange(4.0)
    assert energies(larger) @ branches < energies(scales) @ branches


@pytest.mark.parametrize(
    ("energies", "branch"),
    [
        (linear_branch_energies, wide_networks.normalised_linear),
        (rectified_branch_energies, wide_networks.normalised_rectified),
    ],
)
def test_wide_networks_have_these_spectra(energies, branch, generator):
    depth, width = 8, 256
    mean, error = wide_networks.mean_and_error(branch, depth, width, generator, networks=6)
    # finite width and batch move every share by a few 1/width
    assert ((mean - energies(torch.ones(depth))).abs() < 5 * error + 6 / width).all()


def test_orders_beyond_the_last_one_kept_carry_nothing():
    deep = linear_branch_energies(torch.ones(400))
    assert deep.sum().item() == pytest.approx(1, abs=1e-12)
    assert deep[97:].max() == 0
    assert deep[90] < 1e-60
    harmonic = sum(1 / layer for layer in range(1, 401))
    assert 1 + (deep @ torch.arange(400.0)).item() == pytest.approx(harmonic, rel=1e-12)


def test_scales_are_checked():
    with pytest.raises(InvalidInputError, match=r"one for each layer, the first of them not 0; got shape \(0,\)"):
        linear_branch_energies(torch.ones(0))
    with pytest.raises(InvalidInputError, match=r"Scales must be a list of finite numbers, .* first of them not 0"):
        rectified_branch_energies(torch.tensor([0.0, 1.0]))
