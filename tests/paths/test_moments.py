import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.paths.weights import path_moments
from tests.paths import exact
from tests.tolerances import assert_close


@pytest.mark.parametrize("shortest", [1, 2])
@pytest.mark.parametrize("ratio", [1e-8, 1e-3, 0.05, 0.3, 1.0, 3.0, 50.0, 1e6])
@pytest.mark.parametrize("depth", [2, 3, 7, 40, 150, 400])
def test_moments_equal_exact_rationals(depth, ratio, shortest):
    found = path_moments(depth, ratio, shortest)
    mean, variance, factorial = exact.moments(depth, ratio, shortest)
    assert found.mean.item() == pytest.approx(mean, rel=1e-13)
    assert found.variance.item() == pytest.approx(variance, rel=1e-12)
    assert found.factorial.item() == pytest.approx(factorial, rel=1e-13)
    assert found.curvature_ratio.item() == pytest.approx(factorial / mean, rel=1e-13)


@pytest.mark.parametrize(
    ("ratio", "mean", "factorial", "variance"),
    [
        (0.1, 9.792173619818361, 90.20782638018164, 4.113335799333368),
        (0.5, 33.91618955158821, 1127.447679146766, 11.05595499909358),
        (2.0, 67.08381044841179, 4444.209768829125, 11.05595499909358),
    ],
)
def test_printed_moments(ratio, mean, factorial, variance):
    found = path_moments(100, ratio)
    assert found.mean.item() == pytest.approx(mean, rel=1e-14 * 5)
    assert found.factorial.item() == pytest.approx(factorial, rel=1e-13)
    assert found.variance.item() == pytest.approx(variance, rel=1e-13)


def test_moments_follow_from_one_ratio_of_legendre_sums():
    depth, beta = 2000, torch.tensor([0.003, 0.4, 1.0, 2.5])
    q, x, R = depth - 1, beta.square(), 1 + beta.square()
    for k in range(1, q):
        R = ((2 * k + 1) * (1 + x) - k * (1 - x).square() / R) / (k + 1)
    branches, square = q / 2 * (1 - (1 - x) / R), q**2 * x / R
    found = path_moments(depth, beta)
    assert_close(found.mean, 1 + branches)
    assert_close(found.factorial, square + branches)


@pytest.mark.parametrize("depth", [2, 10, 1000, 10**6])
def test_curious_exact_value(depth):
    assert path_moments(depth, 1 / depth).curvature_ratio.item() == pytest.approx((depth - 1) / (depth + 1), rel=1e-12)


@pytest.mark.parametrize("depth", [30, 60, 120, 250, 1000])
def test_coarse_nodes_equal_the_full_sum(depth):
    from skiplens.paths.weights import path_weights

    ratios = torch.logspace(-3, 3, 61)
    squares = path_weights(depth, ratios).square()
    r = torch.arange(1.0, depth + 1)
    mean = squares @ r
    variance = (squares * (r - mean[:, None]).square()).sum(1)
    assert_close(path_moments(depth, ratios).mean, mean)
    assert ((path_moments(depth, ratios).variance / variance - 1).abs() < 1e-11).all()


def test_one_layer_has_one_length():
    found = path_moments(1, 0.7)
    assert (found.mean, found.variance, found.factorial) == (1, 0, 0)


def test_shortest_path_must_exist():
    with pytest.raises(InvalidInputError, match="depth 1 has no path of length 2; use a larger depth"):
        path_moments(1, 0.7, shortest=2)
    with pytest.raises(InvalidInputError, match=r"shortest must be 1 .* or 2 .* got 3"):
        path_moments(10, 0.7, shortest=3)
