import dataclasses
import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skiplens.base.errors import InvalidInputError
from skiplens.kernels.finite_width import advice
from skiplens.kernels.finite_width.moments import kernel_moments
from skiplens.kernels.finite_width.networks import DenseNet, ResNet, Vanilla


@pytest.mark.parametrize("branch_depth", [1, 2, 3])
@pytest.mark.parametrize("depth", [1, 10, 1000, 10**7])
def test_branch_scale_achieves_what_it_says(depth, branch_depth):
    found = advice.branch_scale(depth, branch_depth, growth=0.5)
    network = ResNet(depth, 10**9, branch_depth, found.branch_scale)
    exact = kernel_moments(network)
    assert found.branch_scale**branch_depth == pytest.approx(0.5 / depth)
    assert found.norm_growth == pytest.approx((1 + 0.5 / depth) ** depth, rel=1e-8)
    assert found.norm_growth <= found.norm_growth_bound * (1 + 1e-15) == pytest.approx(math.exp(0.5))
    assert found.kernel_mean == pytest.approx(exact.mean, rel=1e-8)
    assert found.kernel_mean <= found.kernel_mean_bound
    if depth >= 1000:
        assert 10**9 * exact.relative_variance == pytest.approx(found.scaled_variance, rel=5e-3)


@pytest.mark.parametrize(
    "network", [ResNet(10, 1, 2, 0.3), ResNet(1000, 1, 3, 0.1), DenseNet(20, 1), Vanilla(30, 1)], ids=str
)
@pytest.mark.parametrize("wanted", [3.0, 0.1, 0.001])
def test_width_is_the_least_one(network, wanted):
    found = advice.width(wanted, network)
    assert kernel_moments(dataclasses.replace(network, width=found.width)).relative_variance == found.relative_variance
    assert found.relative_variance <= wanted
    if found.width > 1:
        narrower = dataclasses.replace(network, width=found.width - 1)
        assert kernel_moments(narrower).relative_variance == found.relative_variance_one_narrower > wanted


@pytest.mark.parametrize("network", [ResNet(1, 10, 2, 0.5), DenseNet(4, 8), Vanilla(3, 8)])
def test_a_variance_that_a_width_meets_exactly_needs_that_width(network):
    """In rationals: one part in 10⁴⁰ less needs one unit more."""
    exact = Fraction(kernel_moments(network, exact=True).relative_variance)
    assert advice.width(exact, network).width == network.width
    assert advice.width(exact - Fraction(1, 10**40), network).width == network.width + 1


def test_a_decimal_variance_counts_as_written():
    assert advice.width(0.872, ResNet(1, 1, 2, 0.5)).width == 10  # V/E² is 109/125 at ten units


def test_one_unit_may_be_enough():
    found = advice.width(100.0, ResNet(1, 5, 1, 0.5))
    assert (found.width, found.relative_variance_one_narrower) == (1, math.inf)


@settings(max_examples=40)
@given(
    depth=st.integers(1, 40),
    branch_depth=st.integers(1, 4),
    scale=st.floats(0.01, 2.0),
    width=st.integers(1, 200),
    trained=st.sampled_from(["branches", "branches_and_first", "branches_and_last", "all"]),
)
def test_wider_networks_vary_less(depth, branch_depth, scale, width, trained):
    """Bisection rests on this."""
    for narrow in (ResNet(depth, width, branch_depth, scale), DenseNet(depth, width), Vanilla(depth, width)):
        wide = dataclasses.replace(narrow, width=width + 1)
        assert kernel_moments(wide, trained).relative_variance < kernel_moments(narrow, trained).relative_variance


def test_bad_requests():
    with pytest.raises(InvalidInputError, match=r"relative_variance must be a positive number, got 0"):
        advice.width(0.0, Vanilla(3, 1))
    with pytest.raises(InvalidInputError, match=r"needs more than \d+ units; ask for a larger one"):
        advice.width(1e-15, Vanilla(3, 1))
    with pytest.raises(InvalidInputError, match=r"growth must be a positive number, got 0.*squared norm grow by e"):
        advice.branch_scale(10, growth=0.0)
    with pytest.raises(InvalidInputError, match=r"depth must be a whole number of at least 1, got 0"):
        advice.branch_scale(0)
