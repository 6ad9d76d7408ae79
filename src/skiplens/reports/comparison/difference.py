"""Whether two models differ by more than two draws of the weights of one model do."""

import math
from collections.abc import Sequence

import torch

from skiplens.core.axes import Float, Tensor

LEVEL = 0.05
"""The chance that any of the differences that a comparison tells is none (Holm)."""


def p_value(left: Float[Tensor, " draws"], right: Float[Tensor, " other_draws"]) -> float:
    """Two-sided p-value of 'both have the same mean'; NaN where it cannot be tested.

    Welch's t-test for draws of both. One draw against several: whether it may be one more of them (Student's
    prediction interval). Numbers that do not vary from draw to draw are the same or they are not.
    """
    if not len(left) or not len(right) or not bool(torch.cat([left, right]).isfinite().all()):
        return math.nan
    if len(left) == len(right) == 1:
        return math.nan
    error, freedom = _noise(left, right)
    difference = abs(float(left.mean() - right.mean()))
    if error == 0:
        return 1.0 if difference == 0 else 0.0
    from scipy import stats  # it takes longer to load than all of Skiplens

    return float(2 * stats.t.sf(difference / error, freedom))


def _noise(left: Tensor, right: Tensor) -> tuple[float, float]:
    """The standard error of the difference of two means, and its degrees of freedom (Welch and Satterthwaite)."""
    if min(len(left), len(right)) == 1:
        several = left if len(left) > 1 else right
        return float(several.std()) * math.sqrt(1 + 1 / len(several)), len(several) - 1
    parts = [float(values.var()) / len(values) for values in (left, right)]
    total = sum(parts)
    if total == 0:
        return 0.0, 1.0
    weighted = sum(part**2 / (len(values) - 1) for part, values in zip(parts, (left, right), strict=True))
    return math.sqrt(total), total**2 / weighted


def adjusted(p_values: Sequence[float]) -> list[float]:
    """Holm's p-values: their order is kept, and the chance that any below the level is chance is below the level."""
    tested = sorted((p, place) for place, p in enumerate(p_values) if not math.isnan(p))
    found, highest = [math.nan] * len(p_values), 0.0
    for rank, (p, place) in enumerate(tested):
        highest = max(highest, min(1.0, p * (len(tested) - rank)))
        found[place] = highest
    return found
