"""Powers of a non-negative matrix: exact for rationals, without overflow and with all digits for floats."""

import math
from fractions import Fraction

import numpy as np

from skiplens.theory.finite_width.networks import Number

Rows = list[list[Fraction]]


def times_exact_power(matrix: Rows, power: int, vector: list[Fraction]) -> list[Fraction]:
    """matrix^power · vector in rationals; over one common denominator, so that only the end looks for divisors."""
    denominator = math.lcm(*(entry.denominator for row in matrix for entry in row))
    integers = np.array([[int(entry * denominator) for entry in row] for row in matrix], dtype=object)
    image = np.array([Fraction(entry) for entry in vector], dtype=object)
    common = math.lcm(*(entry.denominator for entry in image))
    image = np.array([int(entry * common) for entry in image], dtype=object)
    remaining = power
    while remaining:
        if remaining & 1:
            image = integers @ image
        remaining >>= 1
        integers = integers @ integers if remaining else integers
    scale = common * denominator**power
    return [Fraction(int(entry), scale) for entry in image]


def times_power_of_identity_plus(excess: Rows, power: int, vector: list[Number]) -> tuple[list[float], int]:
    """(I + excess)^power · vector as (v, k), to be read as v·2^k.

    The identity is kept apart: a matrix within 1e-9 of it, raised to the billionth power, loses no digits.
    """
    factor = _NearIdentity(1.0, np.array([[float(entry) for entry in row] for row in excess]), 0)
    result = _NearIdentity(1.0, np.zeros_like(factor.excess), 0)
    while power:
        if power & 1:
            result = result.times(factor)
        power >>= 1
        factor = factor.times(factor) if power else factor
    start = np.array([float(entry) for entry in vector])
    return list(result.identity * start + result.excess @ start), result.exponent


class _NearIdentity:
    """The matrix (identity·I + excess)·2^exponent, its largest number between 1/2 and 1."""

    def __init__(self, identity: float, excess: np.ndarray, exponent: int) -> None:
        shift = math.frexp(max(identity, float(excess.max())))[1]
        self.identity = math.ldexp(identity, -shift)
        self.excess = np.ldexp(excess, -shift)
        self.exponent = exponent + shift

    def times(self, other: "_NearIdentity") -> "_NearIdentity":
        excess = self.identity * other.excess + other.identity * self.excess + self.excess @ other.excess
        return _NearIdentity(self.identity * other.identity, excess, self.exponent + other.exponent)
