"""How good forecasts and scores are: rank correlation, area under the curve, precision, recall, coverage, rates."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Values = NDArray[np.float64]


def ranks(values: ArrayLike) -> Values:
    """Ranks from 1, the mean rank for equal values."""
    array = np.asarray(values, dtype=np.float64)
    if np.isnan(array).any():
        raise ValueError("A value that is not a number has no rank; say where it belongs first.")
    _, places, counts = np.unique(array, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[places]


def spearman(left: ArrayLike, right: ArrayLike) -> float:
    """Spearman's rank correlation; NaN where one side does not vary or fewer than two pairs are left."""
    first, second = ranks(left), ranks(right)
    first, second = first - first.mean() if first.size else first, second - second.mean() if second.size else second
    size = math.sqrt(float(first @ first) * float(second @ second))
    return float(first @ second) / size if size > 0 else math.nan


def roc_area(scores: ArrayLike, positive: ArrayLike) -> float:
    """The chance that a positive one has the larger score than a negative one, equal scores counting half."""
    chosen, placed = np.asarray(positive, dtype=bool), ranks(scores)
    hits, others = int(chosen.sum()), int((~chosen).sum())
    if not hits or not others:
        return math.nan
    return float(placed[chosen].sum() - hits * (hits + 1) / 2) / (hits * others)


def precision_recall(said: ArrayLike, true: ArrayLike) -> tuple[float, float]:
    """The share of what was said that is true, and the share of what is true that was said."""
    claimed, fact = np.asarray(said, dtype=bool), np.asarray(true, dtype=bool)
    both = int((claimed & fact).sum())
    return tuple(both / int(n) if n else math.nan for n in (claimed.sum(), fact.sum()))  # type: ignore[return-value]  # two of them


def coverage(low: ArrayLike, high: ArrayLike, truth: ArrayLike) -> float:
    """The share of truths that lie in their interval, ends included."""
    inside = (np.asarray(low) <= np.asarray(truth)) & (np.asarray(truth) <= np.asarray(high))
    return float(inside.mean()) if inside.size else math.nan


def loss_at_rate(rate: float, rates: Sequence[float], losses: Sequence[float]) -> float:
    """The final loss at a rate: between two rates of the grid ln loss is linear in ln rate; beyond it, the end's.

    Next to a rate that diverged (infinite loss) every rate that is not on the grid counts as diverged.
    """
    if not math.isfinite(rate) or rate <= 0:
        return math.inf
    grid = np.log(np.asarray(rates, dtype=np.float64))
    heights = np.log(np.maximum(np.asarray(losses, dtype=np.float64), np.finfo(np.float64).tiny))
    place = min(max(math.log(rate), grid[0]), grid[-1])
    nearest = int(np.argmin(np.abs(grid - place)))
    if abs(grid[nearest] - place) <= 1e-6:  # a stored rate has seven digits
        return float(np.exp(heights[nearest]))
    return float(np.exp(np.interp(place, grid, heights)))
