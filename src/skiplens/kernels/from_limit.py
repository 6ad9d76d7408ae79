"""From an infinitely wide network to its two angular kernels, by table or by recursion."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from skiplens.core.errors import InvalidInputError
from skiplens.kernels.angular import QUANTITIES, AngularKernel, of_table
from skiplens.theory.infinite_width.arc_cosine import Correlation
from skiplens.theory.infinite_width.limit import Limit
from skiplens.theory.infinite_width.tabulated import Evaluate, tabulate

Evaluation = Literal["table", "recursion"]


def angular_kernels(
    limit: Limit, evaluation: Evaluation, accuracy: float, normalise: bool
) -> tuple[AngularKernel, ...]:
    """The covariance and the tangent kernel of `limit`, in the order of `QUANTITIES`."""
    at_equal = torch.stack(limit.at_equal_inputs())
    log_scale = limit.log_scale()
    divisor = torch.ones_like(at_equal)
    if normalise:
        _require_not_zero(at_equal)
        divisor, log_scale = at_equal, torch.zeros_like(log_scale)

    def evaluate(correlation: Correlation) -> Tensor:
        kernels = torch.stack(limit.recursion(correlation))
        return kernels / divisor.to(kernels.device).view(-1, *[1] * (kernels.ndim - 1))

    if evaluation == "recursion":
        return tuple(_by_recursion(evaluate, n, peak, log_scale) for n, peak in enumerate(at_equal / divisor))
    table = tabulate(evaluate, limit.stretch(), accuracy)
    return tuple(of_table(table, n, peak, log_scale) for n, peak in enumerate(at_equal / divisor))


def _by_recursion(evaluate: Evaluate, number: int, at_equal_inputs: Tensor, log_scale: Tensor) -> AngularKernel:
    return AngularKernel(lambda correlation: evaluate(correlation)[number], at_equal_inputs, log_scale)


def derivative_kernels(
    limit_at: Callable[[Tensor], Limit], scale: Tensor, accuracy: float, normalise: bool
) -> tuple[AngularKernel, ...]:
    """∂/∂`scale` of both kernels, in the order of `QUANTITIES`."""
    limit = limit_at(scale)
    reference = limit.log_scale()

    def kernels(scale: Tensor, correlation: Correlation | None) -> Tensor:
        there = limit_at(scale)
        at_equal = there.at_equal_inputs()
        found = at_equal if correlation is None else there.recursion(correlation)
        relative = [1 / peak for peak in at_equal] if normalise else [(there.log_scale() - reference).exp()] * 2
        return torch.stack([kernel * factor for kernel, factor in zip(found, relative, strict=True)])

    def derivative(correlation: Correlation | None) -> Tensor:
        one = torch.ones_like(scale)
        return torch.func.jvp(lambda at: kernels(at, correlation), (scale,), (one,))[1]

    if normalise:
        _require_not_zero(torch.stack(limit.at_equal_inputs()))
    table = tabulate(derivative, limit.stretch(), accuracy)
    log_scale = torch.zeros_like(reference) if normalise else reference
    return tuple(of_table(table, number, peak, log_scale) for number, peak in enumerate(derivative(None)))


def _require_not_zero(at_equal: Tensor) -> None:
    for quantity, peak in zip(QUANTITIES, at_equal.detach().tolist(), strict=True):
        if peak == 0:
            raise InvalidInputError(
                f"The {quantity} is 0 everywhere (branch_scale is 0 and only branches are trained), so it cannot be "
                "normalised. Take a positive branch_scale, trained='all' or normalise=False."
            )
