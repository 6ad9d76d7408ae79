import math
from fractions import Fraction

import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.paths.bands import BranchStatistics
from skiplens.paths.weights import depth_ratio_for_peak, depth_ratio_interval, peak_length, peak_lengths
from tests.paths import exact


def brute_force(depth, ratio):
    terms = exact.terms(depth, ratio)
    return tuple(r for r, term in enumerate(terms, start=1) if term == max(terms))


def test_every_small_case_in_exact_rationals():
    ties = 0
    for depth in range(1, 17):
        for ratio in {Fraction(a, b) for a in range(1, 17) for b in range(1, 17)}:
            peaks = peak_lengths(depth, ratio)
            assert peaks == brute_force(depth, ratio), (depth, ratio)
            ties += len(peaks) == 2
    assert ties > 100


@pytest.mark.parametrize("depth", [1, 2, 9, 99, 100])
def test_tensors_agree_with_single_numbers_also_at_ties(depth):
    ratios = [a / b for a in range(1, 12) for b in range(1, 12)]
    assert peak_length(depth, torch.tensor(ratios)).tolist() == [peak_lengths(depth, ratio)[0] for ratio in ratios]


def test_printed_peaks():
    assert [peak_length(100, ratio).item() for ratio in (0.1, 0.5, 2.0)] == [10, 34, 67]


def test_peak_is_never_further_than_one_length_from_its_limit():
    ratios = torch.logspace(-4, 4, 200)
    for depth in (3, 10, 1000):
        assert ((peak_length(depth, ratios) / depth - ratios / (1 + ratios)).abs() <= 1 / depth + 1e-15).all()


@pytest.mark.parametrize("depth", [1, 2, 3, 8, 25])
def test_interval_holds_exactly_the_ratios_with_that_peak(depth):
    for wanted in range(1, depth + 1):
        lower, upper = depth_ratio_interval(depth, wanted)
        assert peak_lengths(depth, depth_ratio_for_peak(depth, wanted)) == (wanted,)
        if lower > 0:
            assert wanted not in peak_lengths(depth, lower * (1 - 1e-12))
            assert peak_lengths(depth, lower * (1 + 1e-12)) == (wanted,)
        if upper < math.inf:
            assert peak_lengths(depth, upper * (1 - 1e-12)) == (wanted,)
            assert wanted not in peak_lengths(depth, upper * (1 + 1e-12))
        else:
            assert wanted == depth


def test_weight_scale_for_a_wanted_peak():
    branch = BranchStatistics(width=50, gate_probability=0.5)
    scale = branch.branch_scale(depth_ratio_for_peak(40, 30))
    assert peak_lengths(40, branch.depth_ratio(scale)) == (30,)


@pytest.mark.parametrize("wanted", [0, 11])
def test_wanted_peak_must_exist(wanted):
    with pytest.raises(InvalidInputError, match=r"wanted peak must be a whole number from 1 to the depth 10; got"):
        depth_ratio_for_peak(10, wanted)


def test_peak_needs_a_positive_ratio():
    with pytest.raises(InvalidInputError, match=r"depth ratio \(beta\) must be positive and finite; got 0"):
        peak_lengths(10, 0.0)
