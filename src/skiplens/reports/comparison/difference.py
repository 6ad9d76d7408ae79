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
    prediction interval). Numbers that do not vary from draw to draw need no test.
    """
    if min(len(left), len(right)) < 1 or len(left) == len(right) == 1 or is_certain(left, right):
        return math.nan
    if not bool(torch.cat([left, right]).isfinite().all()):
        return math.nan
    from scipy import stats  # it takes longer to load than all of Skiplens

    error, freedom = _noise(left, right)
    return float(2 * stats.t.sf(abs(float(left.mean() - right.mean())) / error, freedom))


def is_certain(left: Float[Tensor, " draws"], right: Float[Tensor, " other_draws"]) -> bool:
    """Whether draws show that chance has no part in a number: it is the same in all draws of each side."""
    several = max(len(left), len(right)) > 1
    return several and all(len(set(values.tolist())) == 1 for values in (left, right))


def _noise(left: Tensor, right: Tensor) -> tuple[float, float]:
    """The standard error of the difference of two means, and its degrees of freedom (Welch and Satterthwaite)."""
    if min(len(left), len(right)) == 1:
        several = left if len(left) > 1 else right
        return float(several.std()) * math.sqrt(1 + 1 / len(several)), len(several) - 1
    parts = [float(values.var()) / len(values) for values in (left, right)]
    total = sum(parts)
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
