"""Numbers as people write them."""

import pytest

from skiplens.base.words import branches, in_words, percent, plus_minus, span, times


def test_numbers_in_words():
    written = {0.0: "0", 0.5: "0.5", 999.6: "1,000", 1234.5: "1,230", 49_512.0: "49,500", 1e7: "10,000,000"}
    written |= {2.451e9: "2.45×10⁹", 1e-9: "10⁻⁹", 2.2e-4: "0.00022", -1234.5: "−1,230", -0.0: "0", float("inf"): "∞"}
    assert {value: in_words(value) for value in written} == written
    assert [in_words(value, plain=1e6) for value in (1e-4, 1.0, 2e5, 1e6)] == ["0.0001", "1", "200,000", "10⁶"]
    assert percent(0.0983) == "9.83 %" and in_words(0.12345, 2) == "0.12"


@pytest.mark.parametrize(
    ("factor", "said"),
    [
        (1.0, "×1"),
        (1.32, "×1.32"),
        (0.5, "÷2"),
        (49_512.0, "×49,500"),
        (1 / 1900, "÷1,900"),
        (2.45e9, "×2.45×10⁹"),
        (0.0, "÷∞"),
        (float("inf"), "×∞"),
        (float("nan"), "×?"),
    ],
)
def test_factors_as_people_write_them(factor, said):
    assert times(factor) == said


def test_a_number_is_told_as_far_as_its_uncertainty_reaches():
    written = {(0.009437, 0.1089): "0.01 ± 0.11", (2.908, 1.479): "2.9 ± 1.5", (1234.5, 12.0): "1,234 ± 12"}
    written |= {(0.0215, 4.25e-9): "0.0215 ± 4.3×10⁻⁹", (3.14159, 0.0): "3.14", (3.14159, float("nan")): "3.14"}
    written |= {(-6.76, 480.0): "−10 ± 480", (731.0, 860.0): "730 ± 860", (1.2, 86000.0): "0 ± 86,000"}
    written |= {(0.00187, 2.4e-19): "0.00187"}  # a spread of rounding
    assert {pair: plus_minus(*pair) for pair in written} == written


def test_ends_that_look_alike_get_more_digits_or_are_one_number():
    assert span(0.2, 0.894) == "0.2 to 0.894" and span(0.00461, 0.00463, 2) == "0.00461 to 0.00463"
    assert span(0.0046, 0.0046, 2) == span(0.0046, 0.0046 * (1 + 1e-9), 2) == "0.0046"
    assert span(6.0, float("inf")) == "6 to ∞" and span(float("nan"), float("nan")) == "not known"


def test_depths_are_told_alike_everywhere():
    assert [branches(depth) for depth in (10.54, 3.58, 1.0, 0.258, 1e-7)] == [
        "10.5",
        "3.6",
        "1.0",
        "0.26",
        "less than 0.01",
    ]
