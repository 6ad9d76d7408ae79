"""Theorem 2: the printed matrices and the measures against reference values of exact-rational data."""

import pytest
import torch

from skiplens.papers.li2016_shortcuts import thm2
from skiplens.papers.li2016_shortcuts.common import printed_condition_number
from skiplens.papers.li2016_shortcuts.thm2 import Biased, Derivatives, DigitSpectrum, NearZero, Picture, Structure
from tests.papers.li2016_shortcuts.fake_readings import fake, judged

_ROW, _SAMPLE = torch.arange(1, 4)[:, None], torch.arange(1, 9)
_NUMERATORS = 31 * _ROW**2 + 17 * _SAMPLE**2 + 7 * _ROW * _SAMPLE + 5 * _ROW**2 * _SAMPLE + 3
X = (_NUMERATORS % 101 - 50).double() / 50
Y = torch.eye(3).double()[:, (_SAMPLE - 1) % 3]
G = (X - Y) @ X.T / 8


def test_the_reference_data():
    """Entry by entry as the formula gives them by hand, with their sums from exact rationals."""
    rows = [
        [13, -25, -29, 1, -36, -39, -8, -44],
        [27, 11, 29, -20, -35, -16, 37, 23],
        [12, 28, -23, -40, -23, 28, 12, 30],
    ]
    assert (50 * X).round().tolist() == rows
    assert (float(X.sum()), float(X.square().sum())) == pytest.approx((-1.74, 6.9348), rel=1e-12)
    expected = [[6153, -2409, -797], [5041, 5520, 506], [1803, 1606, 5164]]
    assert (20000 * G).round().tolist() == expected


def test_equation_9():
    """Reference: the condition number from exact rationals."""
    assert printed_condition_number(G) == pytest.approx(2.019354731085708, rel=1e-12)


@pytest.mark.parametrize("activations", ["identity", "smooth"])
def test_automatic_differentiation_gives_the_printed_hessian(activations, seed):
    found = thm2.structure(Structure(activations=activations, seed=seed))
    assert float(found["error"]) < 1e-13
    assert float(found["copies_error"]) < 1e-13
    assert float(found["index"]) == 0.5


def test_a_wrong_slope_is_noticed(seed, monkeypatch):
    monkeypatch.setitem(thm2.SLOPES, "smooth", 1.0)
    assert float(thm2.structure(Structure(activations="smooth", seed=seed))["error"]) > 0.1


def test_one_and_three_matrices(seed):
    assert float(thm2.structure(Structure(branch_depth=1, seed=seed))["error"]) < 1e-13
    assert float(thm2.structure(Structure(branch_depth=3, seed=seed))["error"]) == 0
    assert not thm2.picture(Picture(branch_depth=3, seed=seed))["hessian"].any()
    assert thm2.picture(Picture(branch_depth=2, seed=seed))["hessian"].shape == (54, 54)


@pytest.mark.parametrize("branch_depth", [2, 3, 4])
def test_the_first_derivative_that_does_not_vanish(branch_depth, seed):
    """Along tV it is n! Σ_r ⟨G, V_{r,n} … V_{r,1}⟩."""
    settings = Derivatives(units=2, branch_depth=branch_depth, seed=seed)
    orders = thm2.derivatives(settings)["derivative"]
    inputs, targets = thm2.random_data(settings)
    shape = (2, branch_depth, 3, 3)
    direction = torch.randn(shape, dtype=torch.float64, generator=settings.stream())
    slope = (inputs - targets).T @ inputs / len(inputs)
    products = [torch.linalg.multi_dot([*branch.flip(0), torch.eye(3)]) for branch in direction]
    factorial = {2: 2, 3: 6, 4: 24}[branch_depth]
    assert not orders[:-1].any()
    assert float(orders[-1]) == pytest.approx(factorial * float(sum((slope * P).sum() for P in products)), rel=1e-10)


def test_biases_add_a_zero_eigenvalue_for_each_hidden_unit(seed):
    one, four = (thm2.biased(Biased(units=units, seed=seed)) for units in (1, 4))
    assert float(four["largest_zero_share"]) < 1e-14
    assert float(one["condition_of_rest"]) == pytest.approx(float(four["condition_of_rest"]), rel=1e-9)


def test_digits_with_any_signs_follow_equation_9(seed):
    found = thm2.digit_spectrum(DigitSpectrum(depth=4, source="sample", seed=seed))
    assert float(found["full_condition_number"]) == pytest.approx(float(found["printed_condition_number"]), rel=1e-9)
    assert float(found["index"]) == 0.5


def test_beside_zero_relu_has_another_condition_number(seed):
    """The references have 3.8 (standard deviation at most 0.2) at every depth, and 1.558 for the convention."""
    found = thm2.near_zero(NearZero(depth=32, seed=seed))
    assert float(found["convention"]) == pytest.approx(1.558479010899168, rel=1e-10)
    assert abs(float(found["condition_number"]) - 3.8) < 0.8


def growth(numbers: list[float]) -> list:
    return [
        fake("digit_spectrum", {"depth": depth, "branch_depth": 1, "replicate": replicate}, condition_number=number)
        for depth, number in zip((2, 4, 8, 16), numbers, strict=True)
        for replicate in range(3)
    ]


def test_the_judge_tells_linear_from_exponential_growth():
    assert judged(thm2.CLAIMS, "explosion", growth([3.7, 9.4, 20.5, 43.2])).verdict == "corrected"
    assert judged(thm2.CLAIMS, "explosion", growth([1e1, 1e2, 1e4, 1e8])).verdict == "reproduced"
    assert judged(thm2.CLAIMS, "explosion", growth([3.0, 5.0, 6.0, 7.0])).verdict == "differs"
