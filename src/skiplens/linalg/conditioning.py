"""Condition numbers and the quantile below them: one rule for Hessians, Jacobians and kernels."""

import math

from torch import Tensor

from skiplens.base.axes import Float

SMALL_SHARE = 0.1
"""A Hessian is measured against its flattest tenth, for its smallest eigenvalues are mostly zero to rounding."""

_COUNTING = 1e-9  # rounding of a share times a size, or of a sum of shares, must not move the rank by one


def condition_number(largest: float, smallest: float, resolution: float | None = None) -> float:
    """Largest over smallest absolute value (or its quantile); infinite where the smallest cannot be told from zero.

    Up to `resolution` a value is zero to rounding. If None, only zero is, and a matrix of zeros gives NaN.

    Examples:
        >>> condition_number(4.0, 2.0), condition_number(4.0, 0.0), condition_number(0.0, 0.0)
        (2.0, inf, nan)
    """
    if smallest > (resolution or 0.0):
        return largest / smallest
    return math.nan if resolution is None and not largest > 0 else math.inf


def nearest_rank(share: float, size: int) -> int:
    """The rank of a quantile among `size` sorted values, from 1: ⌈share · size⌉.

    The rule matters: at zero of a 2-shortcut network of width 10 exactly a tenth of the eigenvalues is smallest.
    """
    return max(1, math.ceil(share * size - _COUNTING))


def absolute_quantile(
    nodes: Float[Tensor, " nodes"], weights: Float[Tensor, " nodes"], share: float = SMALL_SHARE
) -> float:
    """The nearest-rank quantile of |nodes|: the smallest |node| up to which at least `share` of the weight lies."""
    values, order = nodes.abs().sort()
    reached = weights[order].cumsum(0) >= share - _COUNTING
    return float(values[int(reached.long().argmax())])
