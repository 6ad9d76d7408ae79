"""The most weighted path length (theorem 1, lemma 4), in exact arithmetic."""

import math
from fractions import Fraction

import torch
from torch import Tensor

from skiplens.core.axes import Int
from skiplens.theory.path_weights.arguments import Ratio, check_depth, check_length, check_positive, ratio_tensor


def peak_lengths(depth: int, depth_ratio: float | Fraction) -> tuple[int, ...]:
    """The lengths r with the largest weight ε_r: one, or two neighbours when pβ/(1+β) is a whole number below p.

    Examples:
        >>> peak_lengths(100, 0.5), peak_lengths(99, 0.5)
        ((34,), (33, 34))
    """
    beta, p = Fraction(check_positive(depth_ratio, "The depth ratio (beta)")), check_depth(depth)
    t = p * beta / (1 + beta)
    floor = math.floor(t)
    return (floor, floor + 1) if t == floor else (floor + 1,)


def peak_length(depth: int, depth_ratio: Ratio) -> Int[Tensor, "*ratios"]:
    """The most weighted length for each depth ratio, the shorter of two in a tie."""
    beta, p = ratio_tensor(depth_ratio), check_depth(depth)
    t = p * (beta / (1 + beta))
    peak = torch.floor(t).long() + 1
    doubtful = (t - t.round()).abs() <= 1e-14 * p  # rounding could have crossed a whole number: decide exactly
    exact = [peak_lengths(p, ratio)[0] for ratio in beta[doubtful].tolist()]
    peak[doubtful] = torch.tensor(exact, dtype=torch.long, device=peak.device)
    return peak


def depth_ratio_interval(depth: int, peak: int) -> tuple[float, float]:
    """The open interval of depth ratios β whose only peak is the length `peak`: (k−1)/(p−k+1) < β < k/(p−k)."""
    p = check_depth(depth)
    k = check_length(peak, p, "wanted peak")
    return (k - 1) / (p - k + 1), k / (p - k) if k < p else math.inf


def depth_ratio_for_peak(depth: int, peak: int) -> float:
    """A depth ratio well inside the interval that makes `peak` the most weighted length.

    The geometric mean of the interval's ends; at an open end (k = 1 or k = p) half or twice the other one. The weight
    scale that gives it: `BranchStatistics(...).branch_scale(ratio)`.
    """
    lower, upper = depth_ratio_interval(depth, peak)
    if lower == 0:
        return 1.0 if upper == math.inf else upper / 2
    return 2 * lower if upper == math.inf else math.sqrt(lower * upper)
