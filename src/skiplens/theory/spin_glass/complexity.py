"""The exponential rate at which critical points multiply with the number of spins (eq. 31, corrected for B < 1)."""

import math

import torch
from torch import Tensor

from skiplens.core.axes import Float
from skiplens.core.errors import InvalidInputError
from skiplens.theory.spin_glass.expected_counts import check_curvature_ratio

_SERIES_BELOW = 0.1  # below this |κ| the closed form loses digits like 1/κ²


def complexity(curvature_ratio: float | Tensor, index: int = 0) -> Float[Tensor, "*ratios"]:
    """θ_k = lim (1/Λ) log E of the number of critical points of index k (a fixed number), for every B > 0.

    For B ≥ 1 it is ½ log B − (B−1)/(B+1) for every k. For B < 1, which needs a linear term, that is negative and wrong:
    every smooth function on the sphere has a minimum, so θ_0 = 0; points with k ≥ 1 negative directions then become
    exponentially rare.
    """
    B = check_curvature_ratio(curvature_ratio)
    check_index(index)
    return torch.where(B >= 1, _odd_tanh(B), _simple_landscape(B.clamp(max=1.0), index))


def total_complexity(curvature_ratio: float | Tensor) -> Float[Tensor, "*ratios"]:
    """The limit of (1/Λ) log E of the number of all critical points: ½ log B, or 0 for B ≤ 1."""
    return 0.5 * check_curvature_ratio(curvature_ratio).clamp(min=1).log()


def printed_complexity(curvature_ratio: float | Tensor) -> Float[Tensor, "*ratios"]:
    """Eq. 31 as printed, also where it is invalid (B < 1)."""
    return _odd_tanh(check_curvature_ratio(curvature_ratio))


def complexity_slope(curvature_ratio: float | Tensor) -> Float[Tensor, "*ratios"]:
    """dθ_0/dB = (B−1)²/(2B(B+1)²) for B ≥ 1, never negative (theorem 5 rests on it); 0 below."""
    B = check_curvature_ratio(curvature_ratio).clamp(min=1)
    return (B - 1).square() / (2 * B * (B + 1).square())


def finite_size_complexity(dimension: int, curvature_ratio: float | Tensor) -> Float[Tensor, "*ratios"]:
    """θ_0 with its leading finite-size correction, an approximation of (1/Λ) log E Crt_0 for B ≥ 1.

    θ_0 + (4√2/3) κ^{3/2} Λ^{−1/2} + O(log Λ/Λ); for numbers to compare simulations with use `expected_critical_points`.
    """
    B = check_curvature_ratio(curvature_ratio)
    if dimension < 1:
        raise InvalidInputError(f"The dimension (number of spins) must be at least 1; got {dimension}.")
    kappa = ((B - 1) / (B + 1)).clamp(min=0)
    return complexity(B) + 4 * math.sqrt(2) / 3 * kappa**1.5 / math.sqrt(dimension)


def finite_size_log_total(dimension: int, curvature_ratio: float | Tensor) -> Float[Tensor, "*ratios"]:
    """The log of 4√2 √(Λ/(π(B−1))) B^{Λ/2}, the leading form of the number of all critical points for B > 1."""
    B = check_curvature_ratio(curvature_ratio)
    if not bool((B > 1).all()):
        raise InvalidInputError(
            f"The leading form of the total needs B > 1; got {B.min().item():g}. Use log_expected_total, it is exact."
        )
    return math.log(4 * math.sqrt(2)) + 0.5 * torch.log(dimension / (math.pi * (B - 1))) + dimension / 2 * B.log()


def check_index(index: int) -> int:
    """The index of a critical point, refused if negative."""
    if int(index) != index or index < 0:
        raise InvalidInputError(f"The index (number of descending directions) must be 0, 1, 2 …; got {index!r}.")
    return int(index)


def semicircle_potential(edge_distance: Tensor) -> Tensor:
    """Ω(x) = ∫ log|x − λ| over the semicircle law on [−2, 2], for |x| ≥ 2 given as m = (|x| − √(x²−4))/2."""
    m = edge_distance
    return m.square() / 2 - m.log()


def eigenvalue_cost(edge_distance: Tensor) -> Tensor:
    """I(x), the rate of the probability that one eigenvalue leaves the semicircle for |x| ≥ 2, given as m."""
    m = edge_distance
    return (m.square().reciprocal() - m.square()) / 4 + m.log()


def _odd_tanh(B: Tensor) -> Tensor:
    """The function atanh κ − κ = ½ log B − κ with κ = (B−1)/(B+1), by its series near B = 1."""
    kappa = (B - 1) / (B + 1)
    small = kappa.clamp(-_SERIES_BELOW, _SERIES_BELOW)
    series = torch.zeros_like(B)
    for odd in range(19, 1, -2):  # 0.1^18/21 is below one rounding of the first term
        series = (series + 1 / odd) * small.square()
    return torch.where(kappa.abs() < _SERIES_BELOW, series * small, 0.5 * B.log() - kappa)


def _simple_landscape(B: Tensor, k: int) -> Tensor:
    """θ_k for B ≤ 1: the best x beyond the edge, x² = 4(k+1)²/((k+1)² − c²), c = (1−B)/(1+B)."""
    if k == 0:
        return torch.zeros_like(B)
    c = (1 - B) / (1 + B)
    x = 2 * (k + 1) / torch.sqrt((k + 1) ** 2 - c.square())
    m = (x - torch.sqrt((x.square() - 4).clamp(min=0))) / 2
    return 0.5 * B.log() + c * x.square() / 4 - (k + 1) * eigenvalue_cost(m)
