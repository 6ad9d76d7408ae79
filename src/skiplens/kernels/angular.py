"""One kernel as a function of the correlation of two inputs, by table or by recursion."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from skiplens.core.errors import InvalidInputError
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
        values: k at each entry of a correlation, divided by exp(`log_scale`).
        at_equal_inputs: k(1), divided by exp(`log_scale`), in closed form.
        log_scale: What was divided out, so that depth does not overflow.
        table: k as a function of the angle, if it was tabulated; `values` reads it.
    """

    values: Callable[[Correlation], Tensor]
    at_equal_inputs: Tensor
    log_scale: Tensor
    table: Callable[[Tensor], Tensor] | None = None

    def depends_on_gradient(self) -> bool:
        """Whether a hyperparameter asks for a gradient."""
        return self.at_equal_inputs.requires_grad or self.log_scale.requires_grad

    def require_representable(self, dtype: torch.dtype) -> None:
        """Refuse a kernel whose value at inputs of ‖x‖² = d is beyond `dtype`."""
        at_equal_inputs = float(self.at_equal_inputs.detach().abs())
        largest = float(self.log_scale.detach()) + math.log(max(at_equal_inputs, 1e-300))
        if largest >= math.log(torch.finfo(dtype).max):
            raise InvalidInputError(
                f"The kernel is 10^{largest / math.log(10):.0f} at inputs of norm √d, beyond "
                f"{str(dtype).removeprefix('torch.')}. Take a smaller branch_scale (about 1/√depth for "
                "branch_depth=2 keeps it of order 1) or ask for values relative to equal inputs with normalise=True."
            )

    def near_limits(self, dtype: torch.dtype) -> NearLimits:
        """Where a rounding of the cosine in `dtype` moves the kernel by more than the dtype's tolerance."""
        return self._near_limits_by_dtype[dtype]

    @cached_property
    def _near_limits_by_dtype(self) -> dict[torch.dtype, NearLimits]:
        distance = torch.logspace(-32, 0, 321, dtype=torch.float64)
        equal, size = _slope(self.values, Correlation(distance, 2 - distance))
        opposite, _ = _slope(self.values, Correlation(2 - distance, distance))
        return {
            dtype: NearLimits(*(_last_above(distance, slope, ratio * size) for slope in (equal, opposite)))
            for dtype, ratio in _TOLERANCE_OVER_ROUNDING.items()
        }


# A matrix product of unit vectors is off by about 2 roundings; the kernel may be off by 1e-6 or 5e-13 of its peak
_TOLERANCE_OVER_ROUNDING = {torch.float32: 1e-6 / 2**-22, torch.float64: 5e-13 / 2**-51}


def of_table(table: Table, number: int, at_equal_inputs: Tensor, log_scale: Tensor) -> AngularKernel:
    """Kernel number `number` of a table."""

    def by_angle(angle: Tensor) -> Tensor:
        return table(angle, number)

    return AngularKernel(lambda correlation: by_angle(angle_of(correlation)), at_equal_inputs, log_scale, by_angle)


def _slope(values: Callable[[Correlation], Tensor], correlation: Correlation) -> tuple[Tensor, float]:
    """|dk/dρ| at each entry, and the largest |k|."""
    with torch.enable_grad():
        below_one, above_minus_one = (part.detach().requires_grad_() for part in correlation)
        k = values(Correlation(below_one, above_minus_one))
        by_below, by_above = torch.autograd.grad(k.sum(), (below_one, above_minus_one))
    return (by_above - by_below).abs(), float(k.detach().abs().max())


def _last_above(distance: Tensor, slope: Tensor, bound: float) -> float:
    above = (slope > bound).nonzero()
    return float(distance[above[-1]]) if len(above) else 0.0
