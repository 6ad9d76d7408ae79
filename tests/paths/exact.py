"""Path weights in exact arithmetic: slow, obvious."""

import math
from fractions import Fraction

import mpmath


def terms(depth, ratio):
    """ε_r² for r = 1..p as whole numbers with a common factor: C(p−1, r−1)² a^{2r} b^{2(p−r)} for β = a/b."""
    a, b = Fraction(ratio).numerator, Fraction(ratio).denominator
    return [math.comb(depth - 1, r - 1) ** 2 * a ** (2 * r) * b ** (2 * (depth - r)) for r in range(1, depth + 1)]


def log_normaliser(depth, ratio):
    """log z."""
    return (log(sum(terms(depth, ratio)), 1) - 2 * depth * log(Fraction(ratio).denominator, 1)) / 2


def log(numerator, denominator):
    with mpmath.workdps(50):
        return float(mpmath.log(mpmath.mpf(numerator) / denominator))


def moments(depth, ratio, shortest=1):
    """v', Var r and v'' as floats, each rounded once."""
    law = terms(depth, ratio)[shortest - 1 :]
    lengths = range(shortest, depth + 1)
    total = sum(law)
    first = sum(r * e for r, e in zip(lengths, law, strict=True))
    second = sum(r * r * e for r, e in zip(lengths, law, strict=True))
    with mpmath.workdps(50):
        scale = mpmath.mpf(total)
        return float(first / scale), float((second * total - first**2) / scale**2), float((second - first) / scale)
