"""What a sampled density says about shares and quantiles of eigenvalues, with intervals that hold.

Two things are unknown. Where the weight of a node really lies between its neighbours: the inequalities of Chebyshev,
Markov and Stieltjes bound that. And what other probes would have said: the share of a random sign vector in a subspace
that holds a share f of all eigenvectors has mean f and a variance of at most 2 f (1 − f) / size, whatever the matrix,
so that m probes count like m · size / 2 independent draws. An interval covers both.
"""

import math
from collections.abc import Callable

from scipy.special import ndtri, stdtrit

from skiplens.core.axes import Float, Tensor
from skiplens.linalg.density import SpectralDensity

CONFIDENCE = 0.95


def spread_factor(samples: int) -> float:
    """How many standard errors of a mean of so few samples make a 95 % interval (Student)."""
    return float(stdtrit(samples - 1, (1 + CONFIDENCE) / 2)) if samples > 1 else math.inf


def share_below_interval(density: SpectralDensity, level: float = 0.0) -> tuple[float, float]:
    """95 % interval for the share of eigenvalues below `level`."""
    low, high = density.bounds_below(density.nodes.new_tensor([level]))
    return _least(low, density).item(), _most(high, density).item()


def share_within_interval(density: SpectralDensity, level: float) -> tuple[float, float]:
    """95 % interval for the share of eigenvalues with |λ| up to `level`."""
    low, high = _bounds_within(density, density.nodes.new_tensor([level]))
    return _least(low, density).item(), _most(high, density).item()


def absolute_quantile_interval(density: SpectralDensity, share: float) -> tuple[float, float]:
    """95 % interval for the quantile of |λ|: where the share of |λ| up to a level can, and must, reach `share`.

    (Woodruff's way: an interval for the share at each level, read sideways. A quantile is no smooth function of the
    sample, so the jackknife does not apply.)
    """
    levels = density.nodes.abs().flatten().unique()
    low, high = _bounds_within(density, levels)
    possible, certain = _most(high, density) >= share, _least(low, density) >= share
    # What is possible at a level is possible right after the level before it.
    first = int(possible.long().argmax()) if bool(possible.any()) else len(levels) - 1
    last = int(certain.long().argmax()) if bool(certain.any()) else len(levels) - 1
    return (float(levels[first - 1]) if first else 0.0), float(levels[last])


def ratio_of_means(
    density: SpectralDensity, numerator: Callable[[Tensor], Tensor], denominator: Callable[[Tensor], Tensor]
) -> tuple[float, float]:
    """Mean of one function of the eigenvalues over the mean of another, and its jackknife standard error."""
    above = (density.weights * numerator(density.nodes)).sum(1)
    below = (density.weights * denominator(density.nodes)).sum(1)
    without = (above.sum() - above) / (below.sum() - below)
    error = math.sqrt((density.probes - 1) / density.probes * (without - without.mean()).square().sum().item())
    return (above.sum() / below.sum()).item(), error


def _bounds_within(density: SpectralDensity, levels: Float[Tensor, " levels"]) -> tuple[Tensor, Tensor]:
    """For each probe the least and the most that its measure can have between −level and level."""
    low_above, high_above = density.bounds_below(levels)
    low_below, high_below = density.bounds_below(-levels)
    return (low_above - high_below).clamp_min(0), (high_above - low_below).clamp_max(1)


def _least(shares: Float[Tensor, "probes levels"], density: SpectralDensity) -> Float[Tensor, " levels"]:
    return _score_limit(shares, density, -1)


def _most(shares: Float[Tensor, "probes levels"], density: SpectralDensity) -> Float[Tensor, " levels"]:
    return _score_limit(shares, density, 1)


def _score_limit(shares: Tensor, density: SpectralDensity, sign: int) -> Tensor:
    """Wilson's limit: the share furthest from the mean of `shares` from which that mean is still 95 % likely."""
    z, draws = float(ndtri((1 + CONFIDENCE) / 2)), density.probes * density.size / 2
    mean = shares.mean(0)
    half = z * (mean * (1 - mean).clamp_min(0) / draws + (z / (2 * draws)) ** 2).sqrt()
    return ((mean + z * z / (2 * draws) + sign * half) / (1 + z * z / draws)).clamp(0, 1)
