"""One kernel as a function of the correlation of two inputs, by table or by recursion."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from skiplens.base import Float, InvalidInputError
from skiplens.kernels.arc_cosine import Correlation, angle_of
from skiplens.kernels.infinite_network import InfiniteNetwork, LimitKernels
from skiplens.kernels.inputs import Directions
from skiplens.kernels.tables import Table, tabulate

Quantity = Literal["nngp", "ntk"]  # covariance of the outputs at initialisation, or tangent kernel
QUANTITIES: tuple[Quantity, ...] = ("nngp", "ntk")
Evaluation = Literal["table", "recursion"]

# A matrix product of unit vectors is off by about 2 roundings; the kernel may be off by 1e-6 or 5e-13 of its peak
_TOLERANCE_OVER_ROUNDING = {torch.float32: 1e-6 / 2**-22, torch.float64: 5e-13 / 2**-51}


class NearLimits(NamedTuple):
    """Pairs with 1 − ρ below `equal` or 1 + ρ below `opposite` need a better angle than a matrix product gives."""

    equal: float
    opposite: float


@dataclass(frozen=True, eq=False)
class DiagonalValue:
    """k(1) in two factors, so that no depth overflows."""

    value: Tensor  # k(1), divided by exp(`log_scale`)
    log_scale: Tensor  # logarithm of the scale of k

    def scaled_length(self, inputs: Directions) -> Float[Tensor, " samples"]:
        """‖x‖/√d times the root of the scale, in float64; the kernel is the product of two of these and k/scale."""
        return inputs.length.double() * (self.log_scale / 2).exp().to(inputs.length.device)

    def diagonal(self, inputs: Directions) -> Float[Tensor, " samples"]:
        """The kernel of each input with itself."""
        self.require_representable(inputs.unit.dtype)
        self.require_finite(inputs, inputs)
        value = self.value.to(inputs.unit.device)
        return (self.scaled_length(inputs).square() * value).to(inputs.unit.dtype)

    def require_finite(self, rows: Directions, columns: Directions) -> None:
        """Refuse inputs of such a size that the kernel of the longest ones is beyond their dtype."""
        if not (len(rows) and len(columns)):
            return
        longest = [float(self.scaled_length(part).detach().max()) for part in (rows, columns)]
        largest, kind = math.prod(longest) * float(self.value.detach().abs()), rows.unit.dtype
        if not largest < torch.finfo(kind).max:
            better = " or convert them to float64" if kind == torch.float32 else ""
            raise InvalidInputError(
                f"The kernel of these inputs reaches {largest:.1e}, beyond {str(kind).removeprefix('torch.')}: their "
                f"largest norm is {float(max(part.length.detach().max() for part in (rows, columns))):.1e}·√d. Divide "
                f"them by it{better}."
            )

    def require_representable(self, dtype: torch.dtype) -> None:
        """Refuse a kernel whose value at inputs of ‖x‖² = d is beyond `dtype`."""
        size = max(float(self.value.detach().abs()), 1e-300)
        largest = float(self.log_scale.detach()) + math.log(size)
        if largest >= math.log(torch.finfo(dtype).max):
            raise InvalidInputError(
                f"The kernel is 10^{largest / math.log(10):.0f} at inputs of norm √d, beyond "
                f"{str(dtype).removeprefix('torch.')}. Take a smaller branch_scale (about 1/√depth for "
                "branch_depth=2 keeps it of order 1) or ask for values relative to equal inputs with normalise=True."
            )


@dataclass(frozen=True, eq=False)
class AngularKernel:
    """k(ρ), divided by its scale."""

    values: Callable[[Correlation], Tensor]  # k at each entry of a correlation, divided by the scale of `peak`
    peak: DiagonalValue  # k at equal inputs
    learned: bool = False  # whether a hyperparameter asks for a gradient
    table: Table | None = None  # k as a function of the angle, if it was tabulated; `values` reads it

    @cached_property
    def near_limits(self) -> dict[torch.dtype, NearLimits]:
        """Where a rounding of the cosine in a dtype moves the kernel by more than the dtype's tolerance."""
        distance = torch.logspace(-32, 0, 321, dtype=torch.float64)
        with torch.no_grad():
            near = self.values(Correlation(distance, 2 - distance))
            far = self.values(Correlation(2 - distance, distance))
        size = float(torch.cat([near, far]).abs().max())
        slopes = [k.diff().abs() / distance.diff() for k in (near, far)]

        def last_above(slope: Tensor, bound: float) -> float:
            above = (slope > bound).nonzero()
            return float(distance[1:][above[-1]]) if len(above) else 0.0

        return {
            dtype: NearLimits(*(last_above(slope, ratio * size) for slope in slopes))
            for dtype, ratio in _TOLERANCE_OVER_ROUNDING.items()
        }


def diagonal_values(limit: InfiniteNetwork, normalise: bool) -> tuple[DiagonalValue, ...]:
    """Both kernels of `limit` at equal inputs, in the order of `QUANTITIES`."""
    at_equal = limit.at_equal_inputs()
    if not normalise:
        return tuple(DiagonalValue(value, limit.log_scale) for value in at_equal)
    _require_not_zero(at_equal)
    return tuple(DiagonalValue(torch.ones_like(value), torch.zeros_like(value)) for value in at_equal)


def angular_kernels(
    limit: InfiniteNetwork, evaluation: Evaluation, accuracy: float, normalise: bool
) -> tuple[AngularKernel, ...]:
    """The covariance and the tangent kernel of `limit`, in the order of `QUANTITIES`."""
    at_equal = diagonal_values(limit, normalise)
    one = torch.ones((), dtype=torch.float64)
    divisors = limit.at_equal_inputs() if normalise else LimitKernels(one, one)

    def evaluate(correlation: Correlation) -> Tensor:
        return torch.stack([k / divisor for k, divisor in zip(limit.recursion(correlation), divisors, strict=True)])

    def by_recursion(number: int) -> Callable[[Correlation], Tensor]:
        return lambda correlation: evaluate(correlation)[number]

    learned = limit.log_scale.requires_grad
    if evaluation == "recursion":
        return tuple(AngularKernel(by_recursion(number), peak, learned) for number, peak in enumerate(at_equal))
    tables = tabulate(evaluate, limit.stretch, accuracy)
    return tuple(tabulated(table, peak, learned) for table, peak in zip(tables, at_equal, strict=True))


def derivative_kernels(
    limit_at: Callable[[Tensor], InfiniteNetwork], scale: float, accuracy: float, normalise: bool
) -> tuple[AngularKernel, ...]:
    """∂/∂`scale` of both kernels, in the order of `QUANTITIES`; `limit_at` takes a scale for each correlation."""
    limit = limit_at(torch.tensor(scale, dtype=torch.float64))
    if normalise:
        _require_not_zero(limit.at_equal_inputs())
    log_scale = torch.zeros((), dtype=torch.float64) if normalise else limit.log_scale

    def derivative(correlation: Correlation | None) -> Tensor:
        # each correlation has a copy of the scale, so one backward pass gives all derivatives entry by entry
        # (forward mode would be as quick, but torch takes seconds to load it)
        shape = () if correlation is None else correlation.below_one.shape
        with torch.enable_grad():
            scales = torch.full(shape, scale, dtype=torch.float64, requires_grad=True)
            there = limit_at(scales)
            at_equal = there.at_equal_inputs()
            found = at_equal if correlation is None else there.recursion(correlation)
            factors = [1 / peak for peak in at_equal] if normalise else [(there.log_scale - log_scale).exp()] * 2
            kernels = [kernel * factor for kernel, factor in zip(found, factors, strict=True)]
            kernels = [k if k.requires_grad else k + 0 * scales for k in kernels]  # a constant has the derivative 0
            return torch.stack([torch.autograd.grad(k.sum(), scales, retain_graph=True)[0] for k in kernels])

    tables = tabulate(derivative, limit.stretch, accuracy)
    peaks = (DiagonalValue(value, log_scale) for value in derivative(None))
    return tuple(tabulated(table, peak) for table, peak in zip(tables, peaks, strict=True))


def tabulated(table: Table, peak: DiagonalValue, learned: bool = False) -> AngularKernel:
    """The kernel that a table of the angle gives."""
    return AngularKernel(lambda correlation: table(angle_of(correlation)), peak, learned, table)


def _require_not_zero(at_equal: LimitKernels) -> None:
    for quantity, peak in zip(QUANTITIES, at_equal, strict=True):
        if float(peak.detach()) == 0:
            raise InvalidInputError(
                f"The {quantity} is 0 everywhere (branch_scale is 0 and only branches are trained), so it cannot be "
                "normalised. Take a positive branch_scale, trained='all' or normalise=False."
            )
