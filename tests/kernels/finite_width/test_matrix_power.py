import math
from fractions import Fraction

import mpmath
import pytest

from skiplens.kernels.finite_width.moments import times_exact_power, times_power_of_identity_plus


@pytest.mark.parametrize("power", [0, 1, 2, 7, 32])
def test_exact_power_equals_repeated_products(power):
    matrix = [[Fraction(1, 2), Fraction(3)], [Fraction(0), Fraction(5, 7)]]
    vector = [Fraction(1, 3), Fraction(2)]
    expected = vector
    for _ in range(power):
        expected = [sum(entry * x for entry, x in zip(row, expected, strict=True)) for row in matrix]
    assert times_exact_power(matrix, power, vector) == expected


@pytest.mark.parametrize("power", [0, 1, 5, 10**9, 10**12])
def test_power_near_the_identity_keeps_all_digits(power):
    """(I + D)^power for a triangular D has a closed form; mpmath evaluates it with fifty digits."""
    small, other = Fraction(1, 10**10), Fraction(1, 10**9)
    found, exponent = times_power_of_identity_plus([[small, other], [Fraction(0), small]], power, [0.0, 1.0])
    with mpmath.workdps(50):
        base = 1 + mpmath.mpf(1) / 10**10
        diagonal = base**power
        corner = power * base ** (power - 1) * mpmath.mpf(1) / 10**9 if power else mpmath.mpf(0)
        assert math.ldexp(found[1], exponent) == pytest.approx(float(diagonal), rel=1e-13)
        assert math.ldexp(found[0], exponent) == pytest.approx(float(corner), rel=1e-13)


def test_powers_beyond_the_floats():
    found, exponent = times_power_of_identity_plus([[Fraction(1)]], 10**6, [1.0])
    assert found[0] * 2.0 ** (exponent - 10**6) == 1.0
