"""The exponential rate at which critical points multiply with the number of spins (eq. 31, corrected for B < 1)."""

import math
from dataclasses import dataclass

import torch
from scipy.optimize import brentq
from torch import Tensor

from skiplens.base import Float, InvalidInputError, refuse_if
from skiplens.papers.littwin2016_ensembles.spin_glass.expected_counts import check_curvature_ratio
from skiplens.paths.weights import Ratio, check_depth, check_shortest, curvature_ratio_slope, path_moments, path_weights

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
    refuse_if(dimension < 1, f"The dimension (number of spins) must be at least 1; got {dimension}.")
    return complexity(B) + 4 * math.sqrt(2) / 3 * ((B - 1) / (B + 1)).clamp(min=0) ** 1.5 / math.sqrt(dimension)


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


def network_complexity(depth: int, depth_ratio: Ratio, index: int = 0, shortest: int = 2) -> Float[Tensor, "*ratios"]:
    """θ_k of the mixture ε_r(β) for each depth ratio.

    Args:
        depth: p, the layers.
        depth_ratio: β, one number or a tensor of any shape.
        index: k, the descending directions of the critical points counted.
        shortest: 2 drops the linear term as the paper's figure does; 1 keeps it as the network has it.
    """
    return complexity(path_moments(depth, depth_ratio, shortest).curvature_ratio, index)


def network_complexity_slope(depth: int, depth_ratio: Ratio, shortest: int = 2) -> Float[Tensor, "*ratios"]:
    """dθ_0/d log C ≥ 0: the landscape gets more complex as the weights grow."""
    B = path_moments(depth, depth_ratio, shortest).curvature_ratio
    return complexity_slope(B) * curvature_ratio_slope(depth, depth_ratio, shortest)


def simple_landscape_threshold(depth: int) -> float:
    """β_c below which the network's landscape, linear term kept, has no exponential number of critical points (B = 1).

    depth · β_c goes to 1 for deep networks.
    """
    if check_depth(depth) < 3:
        raise InvalidInputError(
            f"A network of depth {depth} has B < 1 for every depth ratio, so there is no threshold; depth must be >= 3."
        )

    def log_ratio(log_beta: float) -> float:
        beta = torch.tensor(log_beta, dtype=torch.float64).exp()
        return path_moments(depth, beta).curvature_ratio.log().item()

    start = -torch.log(torch.tensor(float(depth), dtype=torch.float64)).item()
    return float(torch.tensor(brentq(log_ratio, start - 1, start + 3, xtol=1e-15), dtype=torch.float64).exp())


@dataclass(frozen=True, eq=False)
class Mixture:
    """ν(t) = Σ_r ε_r² t^r, the covariance of a mixed spherical spin glass per spin.

    Attributes:
        weights: ε_r for r = 1..p, float64; they are normalised so that ν(1) = 1.

    Examples:
        >>> Mixture.pure(3).curvature_ratio
        2.0
    """

    weights: Float[Tensor, " orders"]

    def __post_init__(self) -> None:
        """Normalise, or say what is wrong with the weights."""
        weights = torch.as_tensor(self.weights, dtype=torch.float64)
        norm = weights.norm()
        if weights.ndim != 1 or not len(weights) or not bool(torch.isfinite(norm)) or norm == 0:
            raise InvalidInputError(
                f"A mixture needs a list of finite weights, one for each order from 1, not all of them zero; "
                f"got shape {tuple(weights.shape)} with norm {norm.item():g}."
            )
        object.__setattr__(self, "weights", weights / norm)

    @classmethod
    def pure(cls, order: int) -> "Mixture":
        """The model in which all interactions have the given order."""
        refuse_if(order < 1, f"The order of interactions must be at least 1; got {order}.")
        return cls(torch.eye(order, dtype=torch.float64)[-1])

    @classmethod
    def of_network(cls, depth: int, depth_ratio: float, shortest: int = 1) -> "Mixture":
        """The mixture of a residual network: ε_r(β), with the linear term (shortest=1) or without (shortest=2)."""
        weights = path_weights(depth, depth_ratio).clone()
        weights[: check_shortest(shortest) - 1] = 0
        return cls(weights)

    @property
    def order(self) -> int:
        """p, the highest order."""
        return len(self.weights)

    @property
    def squares(self) -> Float[Tensor, " orders"]:
        """ε_r², which add up to 1."""
        return self.weights.square()

    @property
    def slope(self) -> float:
        """v′ = ν′(1) = E r, the variance of a component of the gradient."""
        return float(self.squares @ self._lengths())

    @property
    def curvature(self) -> float:
        """v″ = ν″(1) = E r(r − 1), the variance of an entry of the Hessian."""
        return float(self.squares @ (self._lengths() * (self._lengths() - 1)))

    @property
    def spread(self) -> float:
        """α² = v″ + v′ − v′² = Var r; 0 for a pure model."""
        return float(self.squares @ (self._lengths() - self.slope).square())

    @property
    def curvature_ratio(self) -> float:
        """B = v″/v′, the one number on which the count of critical points depends."""
        return self.curvature / self.slope

    def covariance(self, overlap: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """ν(t) for overlaps t = ⟨w, w′⟩/Λ: E H(w) H(w′) = Λ ν(t)."""
        total = torch.zeros_like(overlap)
        for square in self.squares.flip(0).tolist():
            total = (total + square) * overlap
        return total

    def _lengths(self) -> Tensor:
        return torch.arange(1, self.order + 1, dtype=torch.float64, device=self.weights.device)
