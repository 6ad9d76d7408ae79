import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.paths.laws import rectified_path_energies
from tests import wide_networks


@pytest.mark.parametrize(("variance", "ratio"), [(0.5, 0.369224), (2.0, 0.909297)])
def test_recursion_approaches_the_printed_depth_ratio(variance, ratio):
    means = {}
    for blocks in (60, 120):
        energies = rectified_path_energies(blocks, variance)
        means[blocks] = (energies @ torch.arange(blocks + 1.0)).item()
    fraction = (means[120] - means[60]) / 60  # a constant offset drops out
    assert fraction == pytest.approx(ratio / (1 + ratio), abs=2e-3)


@pytest.mark.parametrize("variance", [1.0, 2.0])
def test_wide_networks_have_this_spectrum(variance, generator):
    depth, width = 9, 256
    branch = wide_networks.rectified(variance)
    mean, error = wide_networks.mean_and_error(branch, depth, width, generator, networks=6)
    expected = rectified_path_energies(depth - 1, variance)
    # finite width moves every share by a few 1/width
    assert ((mean - expected).abs() < 5 * error + 6 / width).all()


def test_deep_networks_do_not_overflow():
    energies = rectified_path_energies(150, 50.0)
    assert energies.sum().item() == pytest.approx(1, rel=1e-12)
    assert (energies >= 0).all()


def test_no_blocks_is_one_order():
    assert rectified_path_energies(0, 1.0).tolist() == [1]


def test_bad_input():
    with pytest.raises(
        InvalidInputError, match=r"weight variance \(times the width\) must be positive and finite; got 0"
    ):
        rectified_path_energies(1, 0.0)
    with pytest.raises(InvalidInputError, match="number of blocks must not be negative; got -1"):
        rectified_path_energies(-1, 1.0)
