"""The printed statements fail where the note says they fail, by as much as it says."""

import math

import pytest

from skiplens.kernels.finite_width.moments import kernel_moments
from skiplens.kernels.finite_width.networks import DenseNet, ResNet
from skiplens.kernels.finite_width.reduced_moments import fourth_moment_growth
from skiplens.papers.littwin2020_tangent import errata


def log_variance(network):
    found = kernel_moments(network)
    return found.log_relative_variance + 2 * found.log_mean


@pytest.mark.parametrize(("depth", "ratio"), [(10, 1.2), (100, 4.9e3), (1000, 1.6e35)])
def test_theorem_5_of_the_main_text_fails_with_depth(depth, ratio):
    network = ResNet(depth, 50, 2, 0.3)
    found = math.exp(log_variance(network) - errata.log_theorem5_main_text(network))
    assert found == pytest.approx(ratio, rel=0.02)


@pytest.mark.parametrize(("width", "ratio"), [(1000, 64), (10**4, 629)])
def test_theorem_5_of_the_appendix_is_not_uniform_in_the_width(width, ratio):
    network = ResNet(10**9, width, 1, 0.402 * width / 1e9)
    found = math.exp(log_variance(network) - errata.log_theorem5_appendix(network))
    assert found == pytest.approx(ratio, rel=0.01)


def test_both_bounds_of_equation_166_fail():
    shallow, deep = (errata.conditional_variance(ResNet(depth, 50, 2, 0.3)) for depth in (1, 100))
    assert shallow.exact == pytest.approx(1.1664e-3, rel=1e-4)
    assert shallow.printed_lower == pytest.approx(1.7010e-3, rel=1e-4)
    assert deep.exact == pytest.approx(2.6918e5, rel=1e-4)
    assert deep.printed_upper == pytest.approx(2.2297e5, rel=1e-4)


def test_printed_growth_is_an_upper_bound():
    network = ResNet(5, 10, 2, 0.5)
    assert errata.fourth_moment_growth_as_printed(network) > fourth_moment_growth(network)


def test_equation_186_is_no_bound():
    exact = errata.densenet_layer_variance(100, 50, 5)
    assert exact == pytest.approx(0.2852, abs=5e-5)
    assert errata.densenet_layer_variance_as_printed(100, 50) == pytest.approx(0.1776, abs=5e-5)
    assert errata.densenet_layer_variance_bound(50) == pytest.approx(0.3028, abs=5e-5)
    assert exact < errata.densenet_layer_variance_bound(50)


def test_densenet_mean_as_printed():
    assert errata.densenet_mean_as_printed(5) == pytest.approx(1.45)
    assert kernel_moments(DenseNet(5, 10)).mean == pytest.approx(2.2833333333333333)


def test_theorem_6_is_zero_at_depth_one():
    assert errata.theorem6_as_printed(1, 50) == 0.0
    assert errata.theorem6_as_printed(100, 50) == pytest.approx((math.exp(0.1) - 1) * math.log(100) ** 2)


def test_theorem_4_as_printed():
    assert errata.theorem4_bounds(3.6, 1.8) == (2.0, 3.6)
