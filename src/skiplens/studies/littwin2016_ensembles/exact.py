"""Path weights in whole numbers: the definition, added up term by term, to check the fast formulas against.

With β = a/b the weight of length r is C(p−1, r−1) a^r b^{p−r} over a common root, so sums and comparisons are exact.
"""

import math
from fractions import Fraction

import torch

from skiplens.core.axes import Float, Tensor


def whole_weights(depth: int, ratio: Fraction, top: int = -1) -> list[int]:
    """C(p−1, r−1) a^r b^{p−r} for r = 1..p: ε_r but for a common factor.

    Args:
        depth: p.
        ratio: β as a fraction.
        top: 0 takes C(p, r), as the proofs print it.
    """
    a, b = ratio.numerator, ratio.denominator
    return [math.comb(depth + top, r + top) * a**r * b ** (depth - r) for r in range(1, depth + 1)]


def exact_weights(depth: int, ratio: Fraction) -> Float[Tensor, " lengths"]:
    """ε_r, each rounded once or twice."""
    whole = whole_weights(depth, ratio)
    total = sum(weight * weight for weight in whole)
    return torch.tensor([math.sqrt(weight * weight / total) for weight in whole], dtype=torch.float64)


def exact_peaks(depth: int, ratio: Fraction, top: int = -1) -> tuple[int, ...]:
    """All lengths with the largest weight, by comparing whole numbers."""
    whole = whole_weights(depth, ratio, top)
    largest = max(whole)
    return tuple(r for r, weight in enumerate(whole, start=1) if weight == largest)


def exact_energy_outside(depth: int, ratio: Fraction, first: int, last: int) -> float:
    """Σ ε_r² over all lengths outside first..last, rounded once."""
    squares = [weight * weight for weight in whole_weights(depth, ratio)]
    inside = sum(squares[first - 1 : last])
    return (sum(squares) - inside) / sum(squares)


def exact_curvature_ratio(depth: int, ratio: Fraction, shortest: int) -> float:
    """B = Σ r(r−1) ε_r² / Σ r ε_r² over lengths from `shortest` on, rounded once."""
    lengths = range(shortest, depth + 1)
    whole = whole_weights(depth, ratio)
    squares = {r: whole[r - 1] ** 2 for r in lengths}
    return sum(r * (r - 1) * squares[r] for r in lengths) / sum(r * squares[r] for r in lengths)


def band_around_peak(depth: int, ratio: Fraction, margin: Fraction) -> tuple[int, int]:
    """The lengths within `margin` of βp/(1+β), relative to it: rounded inwards, in whole numbers."""
    middle = depth * ratio / (1 + ratio)
    return math.ceil((1 - margin) * middle), math.floor((1 + margin) * middle)
