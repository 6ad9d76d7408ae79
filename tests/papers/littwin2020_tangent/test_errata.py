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


def test_the_growth_of_equation_159_and_both_bounds_of_equation_166_fail():
    """Var(‖y^L‖² | y⁰)/‖y⁰‖⁴ of a reduced ResNet from the product's growth of the fourth moment, with m = 2."""
    a, n = 0.3**2, 50
    rho_squared = (1 + 5 / n) ** 2
    for depth, exact, lower, upper in ((1, 1.1664e-3, 1.7010e-3, None), (100, 2.6918e5, None, 2.2297e5)):
        growth, others = float(fourth_moment_growth(ResNet(depth, n, 2, 0.3))), depth - 1
        assert 1 + 2 * a * (1 + 2 / n) + a**2 * rho_squared > growth, "an upper bound, printed as an equality"
        branch = (1 + 2 / n) * (1 + 5 / n)
        assert a**2 * (branch * growth**others - (1 + a) ** (2 * others)) == pytest.approx(exact, rel=1e-4)
        factor = a**2 * (rho_squared - 1)
        assert lower is None or factor * (1 + a) ** (2 * others) == pytest.approx(lower, rel=1e-4)
        assert upper is None or factor * (1 + a * rho_squared**0.5) ** (2 * others) == pytest.approx(upper, rel=1e-4)


def test_densenet_mean_as_printed():
    assert errata.densenet_mean_as_printed(5) == pytest.approx(1.45)
    assert kernel_moments(DenseNet(5, 10)).mean == pytest.approx(2.2833333333333333)
