import pytest
import torch

from skiplens.papers.statistics import curve


def test_a_curve_is_the_mean_with_a_band_of_one_deviation():
    band, line = curve((1, 2), torch.tensor([[1.0, 2.0], [3.0, 2.0]]), "both", 0)
    assert line.y == (2.0, 2.0) and line.name == "both"
    assert band.low == pytest.approx((2 - 2**0.5, 2.0), rel=1e-14)
    assert band.high == pytest.approx((2 + 2**0.5, 2.0), rel=1e-14)


def test_a_place_that_a_replicate_did_not_reach_counts_for_the_others():
    _, line = curve((1, 2), torch.tensor([[1.0, torch.nan], [3.0, 5.0]]), "one", 1)
    assert line.y == (2.0, 5.0)
