import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.paths.bands import BranchStatistics
from tests.tolerances import assert_close


def test_ratio_is_the_gate_probability_for_the_usual_scale():
    for width in (10, 1000):
        assert BranchStatistics(width, 0.3).depth_ratio(width**-0.5) == pytest.approx(0.3, rel=1e-15)


def test_distinct_weights_are_a_convention_that_matters():
    assert BranchStatistics(9, 0.5, distinct_weights=81).depth_ratio(1 / 3) == pytest.approx(0.5 / 3, rel=1e-15)


def test_scale_and_ratio_are_inverse():
    branch = BranchStatistics(64, 0.5, 32)
    assert branch.depth_ratio(branch.branch_scale(0.7)) == pytest.approx(0.7, rel=1e-15)
    scales = branch.branch_scale(torch.tensor([0.1, 2.0]))
    assert_close(scales * branch.depth_ratio(1.0), torch.tensor([0.1, 2.0]))


@pytest.mark.parametrize("probability", [0.0, 1.1, -0.2])
def test_gate_probability_must_be_one(probability):
    with pytest.raises(InvalidInputError, match=r"gate probability must lie in \(0, 1\]; got"):
        BranchStatistics(10, probability)


def test_sizes_must_be_positive():
    with pytest.raises(InvalidInputError, match="The width must be positive and finite; got 0"):
        BranchStatistics(0)
    with pytest.raises(InvalidInputError, match="distinct_weights must be positive and finite; got -1"):
        BranchStatistics(3, distinct_weights=-1)
    with pytest.raises(InvalidInputError, match="The branch scale must be positive and finite; got 0"):
        BranchStatistics(3).depth_ratio(0.0)
