import math

import pytest

from skiplens.base.errors import InvalidInputError
from skiplens.kernels.finite_width.moments import kernel_moments
from skiplens.kernels.finite_width.networks import DenseNet, ResNet, Vanilla
from skiplens.kernels.finite_width.reduced_moments import (
    fourth_moment_growth,
    resnet_scaled_variance,
    scaled_variance_limit,
)

DENSE = [(1, 7), (2, 8.333), (3, 8.868), (5, 9.307), (10, 9.616), (100, 9.819), (1000, 9.846), (10**4, 9.882)]


@pytest.mark.parametrize(("depth", "limit"), DENSE)
def test_densenet_table(depth, limit):
    assert scaled_variance_limit(DenseNet(depth, 1)) == pytest.approx(limit, abs=5e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("depth", "limit"), [(10**5, 9.91849957), (10**6, 9.951)])
def test_densenet_table_deep(depth, limit):
    """The first limit is that of the same recursion in sixty digits; the note prints it as 9.919."""
    assert scaled_variance_limit(DenseNet(depth, 1)) == pytest.approx(limit, abs=5e-4)


@pytest.mark.parametrize("branch_depth", [1, 2, 3])
@pytest.mark.parametrize("growth", [0.01, 0.09, 1.0, 4.0])
def test_resnet_limit_is_reached_at_rate_one_over_depth(branch_depth, growth):
    limit = resnet_scaled_variance(growth)
    gaps = []
    for depth in (10**4, 10**5):
        network = ResNet(depth, 1, branch_depth, (growth / depth) ** (1 / branch_depth))
        gaps.append(scaled_variance_limit(network) - limit)
    assert gaps[1] == pytest.approx(gaps[0] / 10, rel=0.01)
    assert abs(gaps[1]) < 1e-2


def test_end_layers_give_two_each():
    assert resnet_scaled_variance(0.0) == 4


def resnet_variance_rate(network):
    """The growth of log(1 + V/(E𝒢)²) per block of a deep ResNet: log(β/(1+a)²), β the growth of E‖y‖⁴."""
    a = network.branch_scale**network.branch_depth
    return math.log(float(fourth_moment_growth(network)) / (1 + a) ** 2)


def resnet_variance_rate_leading(network):
    """The same rate to first order in 1/n: (4a + (5m-3)a²)/(1+a)²/n."""
    a, m = network.branch_scale**network.branch_depth, network.branch_depth
    return (4 * a + (5 * m - 3) * a**2) / (1 + a) ** 2 / network.width


@pytest.mark.parametrize("network", [ResNet(1, 1000, 2, 0.3), ResNet(1, 1000, 3, 0.7), ResNet(1, 1000, 1, 0.5)])
def test_resnet_rate(network):
    """The relative variance of very deep networks grows at the rate, and the first order is right up to 1/n."""
    rate = resnet_variance_rate(network)
    deep = [
        kernel_moments(ResNet(depth, 1000, network.branch_depth, network.branch_scale)) for depth in (10**8, 2 * 10**8)
    ]
    measured = (deep[1].log_relative_variance - deep[0].log_relative_variance) / 10**8
    assert rate == pytest.approx(measured, rel=1e-5)
    assert resnet_variance_rate_leading(network) == pytest.approx(rate, rel=0.01)


def test_rates_of_the_note():
    assert 1000 * resnet_variance_rate_leading(ResNet(1, 1000, 2, 0.3)) == pytest.approx(0.3507, abs=5e-5)
    assert 1000 * resnet_variance_rate_leading(ResNet(1, 1000, 3, 0.7)) == pytest.approx(1.543, abs=5e-4)


def test_vanilla_limit():
    """V/(E𝒢)² for L, n → ∞ with L/n = λ: e^{5λ}·[1/3 + (6λ - 1 + e^{-6λ})/(27λ²)] - 1."""
    for ratio in (0.01, 0.1, 1.0):
        wide = kernel_moments(Vanilla(int(ratio * 10**6), 10**6)).relative_variance
        limit = math.exp(5 * ratio) * (1 / 3 + (6 * ratio + math.expm1(-6 * ratio)) / (27 * ratio**2)) - 1
        assert limit == pytest.approx(wide, rel=1e-4)


def test_a_negative_growth_is_refused():
    with pytest.raises(InvalidInputError, match=r"growth must not be negative, got -1"):
        resnet_scaled_variance(-1.0)
