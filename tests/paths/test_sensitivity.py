import pytest
import torch

from skiplens.paths.weights import curvature_ratio_slope, path_moments, path_weight_slopes, path_weights
from tests.tolerances import assert_close

STEP = 1e-4  # central differences of smooth functions: error of order STEP² = 1e-8, rounding 1e-12


def central(function, ratio):
    upper, lower = torch.tensor(ratio * (1 + STEP)), torch.tensor(ratio * (1 - STEP))
    return (function(upper) - function(lower)) / (upper / lower).log()


@pytest.mark.parametrize("ratio", [0.01, 0.3, 1.0, 5.0])
@pytest.mark.parametrize("depth", [2, 30, 300])
def test_slopes_equal_finite_differences(depth, ratio):
    assert_close(path_weight_slopes(depth, ratio), central(lambda b: path_weights(depth, b), ratio), relative=1e-5)
    # dv′/d log C = 2α²: a larger weight scale always means longer paths
    slope = 2 * path_moments(depth, ratio).variance
    assert_close(slope, central(lambda b: path_moments(depth, b).mean, ratio), relative=1e-6)


@pytest.mark.parametrize("shortest", [1, 2])
@pytest.mark.parametrize("ratio", [0.01, 0.3, 5.0])
def test_curvature_ratio_slope_equals_finite_differences(ratio, shortest):
    found = curvature_ratio_slope(40, ratio, shortest)
    assert_close(found, central(lambda b: path_moments(40, b, shortest).curvature_ratio, ratio), relative=1e-6)


def test_short_paths_lose_and_long_ones_gain():
    slopes = path_weight_slopes(100, 0.5)
    mean = path_moments(100, 0.5).mean
    r = torch.arange(1, 101)
    assert ((slopes < 0) == (r < mean)).all()
