import math

import mpmath
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from skiplens.base.errors import InvalidInputError
from skiplens.papers.littwin2016_ensembles.spin_glass.complexity import (
    Mixture,
    complexity,
    complexity_slope,
    finite_size_complexity,
    finite_size_log_total,
    printed_complexity,
    total_complexity,
)
from skiplens.papers.littwin2016_ensembles.spin_glass.expected_counts import log_expected_critical_points
from tests.tolerances import assert_close

PURE = {
    2: 0.0, 3: 0.01324025694663932, 4: 0.04930614433405485, 5: 0.09314718055994531, 10: 0.2986122886681097,
    20: 0.5722194895832202, 50: 0.9859101490553133, 100: 1.317559925067295,
}  # fmt: skip


@pytest.mark.parametrize(("order", "value"), PURE.items())
def test_printed_values_of_pure_models(order, value):
    for index in (0, 1, 5):
        assert complexity(Mixture.pure(order).curvature_ratio, index).item() == pytest.approx(value, rel=1e-13)


@pytest.mark.parametrize(
    ("ratio", "first", "second", "printed"),
    [
        (0.25, -0.07410797215372188, -0.08494951839769874, -0.0931),
        (0.5, -0.01010135365875972, -0.01185826330865802, -0.01324),
    ],
)
def test_simple_landscapes_have_no_complexity(ratio, first, second, printed):
    assert complexity(ratio).item() == 0
    assert total_complexity(ratio).item() == 0
    assert complexity(ratio, 1).item() == pytest.approx(first, rel=1e-13)
    assert complexity(ratio, 2).item() == pytest.approx(second, rel=1e-13)
    assert printed_complexity(ratio).item() == pytest.approx(printed, abs=5e-5)


def test_total():
    assert total_complexity(4.0).item() == pytest.approx(math.log(2), rel=1e-15)


@pytest.mark.parametrize("excess", [1e-12, 1e-6, 1e-3, 0.1, 0.2, 0.25, 3.0])
def test_no_digits_are_lost_near_one(excess):
    with mpmath.workdps(60):
        B = mpmath.mpf(1 + excess)
        expected = float(mpmath.log(B) / 2 - (B - 1) / (B + 1))
    assert complexity(1 + excess).item() == pytest.approx(expected, rel=1e-13)


def test_printed_formula_is_odd_under_inversion():
    B = torch.tensor([1.01, 2.0, 30.0])
    assert_close(printed_complexity(1 / B), -printed_complexity(B), relative=1e-13)


def test_slope_equals_autograd():
    B = torch.tensor([0.3, 1.0, 1.05, 4.0, 100.0], requires_grad=True)
    (slope,) = torch.autograd.grad(complexity(B).sum(), B)
    assert_close(complexity_slope(B.detach()), slope)
    assert (complexity_slope(B.detach()) >= 0).all()


def test_index_one_becomes_rare_at_the_corrected_rate_not_at_the_printed_one():
    # a power of the size in front of the exponential adds a/n to the growth per spin: two sizes remove it
    growth = {}
    for spins in (12, 32):
        logs = [log_expected_critical_points(n, 0.25)[1].item() for n in (spins, spins + 4)]
        growth[spins + 2] = (logs[1] - logs[0]) / 4
    limit = (34 * growth[34] - 14 * growth[14]) / 20
    distance = abs(limit - complexity(0.25, 1).item())
    assert distance < 0.003
    assert abs(limit - printed_complexity(0.25).item()) > 5 * distance


def test_finite_size_correction_is_the_leading_one():
    for ratio in (2.0, 9.0):
        errors = []
        for spins in (20, 40):
            exact = log_expected_critical_points(spins, ratio)[0].item() / spins
            errors.append(abs(exact - finite_size_complexity(spins, ratio).item()))
            assert errors[-1] < 0.6 * (exact - complexity(ratio).item())
        assert errors[1] < 0.65 * errors[0]  # log(spins)/spins falls faster than the square root


ORDERS = st.integers(2, 30)


@settings(max_examples=200)
@given(st.lists(st.floats(0, 1), min_size=2, max_size=30).filter(lambda values: sum(values) > 1e-3))
def test_theorem_five_no_mixture_is_more_complex_than_its_highest_order(squares):
    mixture = Mixture(torch.tensor(squares).sqrt())
    order = mixture.order
    B = mixture.curvature_ratio
    assert B <= order - 1 + 1e-12  # B is a weighted mean of r − 1
    if B > 0:
        assert complexity(B).item() <= complexity(float(order - 1)).item() + 1e-12
        lower = 1 - mixture.squares[-1].item()
        if order > 2 and lower > 1e-6:
            assert complexity(B).item() < complexity(float(order - 1)).item()


def test_bad_input():
    with pytest.raises(InvalidInputError, match=r"index \(number of descending directions\) must be 0, 1, 2 …; got -1"):
        complexity(2.0, -1)
    with pytest.raises(
        InvalidInputError, match=r"leading form of the total needs B > 1; got 1\. Use log_expected_total"
    ):
        finite_size_log_total(10, 1.0)
    with pytest.raises(InvalidInputError, match=r"dimension \(number of spins\) must be at least 1; got 0"):
        finite_size_complexity(0, 2.0)
