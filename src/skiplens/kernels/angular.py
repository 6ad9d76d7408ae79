"""One kernel as a function of the correlation of two inputs, by table or by recursion."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from skiplens.kernels.peak import Peak
from skiplens.theory.infinite_width.arc_cosine import Correlation, angle_of
from skiplens.theory.infinite_width.tabulated import Table

Quantity = Literal["nngp", "ntk"]
"""Covariance of the outputs at initialisation, or tangent kernel."""

QUANTITIES: tuple[Quantity, ...] = ("nngp", "ntk")


class NearLimits(NamedTuple):
    """Pairs with 1 − ρ below `equal` or 1 + ρ below `opposite` need a better angle than a matrix product gives."""

    equal: float
    opposite: float


@dataclass(frozen=True, eq=False)
class AngularKernel:
    """k(ρ), divided by its scale.

    Attributes:
        values: k at each entry of a correlation, divided by the scale of `peak`.
        peak: k at equal inputs.
        learned: Whether a hyperparameter asks for a gradient.
        table: k as a function of the angle, if it was tabulated; `values` reads it.
    """

    values: Callable[[Correlation], Tensor]
    peak: Peak
    learned: bool = False
    table: Callable[[Tensor], Tensor] | None = None

    def near_limits(self, dtype: torch.dtype) -> NearLimits:
        """Where a rounding of the cosine in `dtype` moves the kernel by more than the dtype's tolerance."""
        return self._near_limits_by_dtype[dtype]

    @cached_property
    def _near_limits_by_dtype(self) -> dict[torch.dtype, NearLimits]:
        distance = torch.logspace(-32, 0, 321, dtype=torch.float64)
        with torch.no_grad():
            near, far = (
                self.values(Correlation(distance, 2 - distance)),
                self.values(Correlation(2 - distance, distance)),
            )
        size = float(torch.cat([near, far]).abs().max())
        slopes = [k.diff().abs() / distance.diff() for k in (near, far)]
        return {
            dtype: NearLimits(*(_last_above(distance[1:], slope, ratio * size) for slope in slopes))
            for dtype, ratio in _TOLERANCE_OVER_ROUNDING.items()
        }


# A matrix product of unit vectors is off by about 2 roundings; the kernel may be off by 1e-6 or 5e-13 of its peak
_TOLERANCE_OVER_ROUNDING = {torch.float32: 1e-6 / 2**-22, torch.float64: 5e-13 / 2**-51}


def of_table(table: Table, number: int, peak: Peak, learned: bool = False) -> AngularKernel:
    """Kernel number `number` of a table."""

    def by_angle(angle: Tensor) -> Tensor:
        return table(angle, number)

    return AngularKernel(lambda correlation: by_angle(angle_of(correlation)), peak, learned, by_angle)


def _last_above(distance: Tensor, slope: Tensor, bound: float) -> float:
    above = (slope > bound).nonzero()
    return float(distance[above[-1]]) if len(above) else 0.0
