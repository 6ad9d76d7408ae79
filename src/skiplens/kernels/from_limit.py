"""From an infinitely wide network to its two angular kernels, by table or by recursion."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from skiplens.core.errors import InvalidInputError
from skiplens.kernels.angular import QUANTITIES, AngularKernel, of_table
from skiplens.kernels.peak import Peak
from skiplens.theory.infinite_width.arc_cosine import Correlation
from skiplens.theory.infinite_width.limit import Limit, LimitKernels
from skiplens.theory.infinite_width.tabulated import Evaluate, tabulate

Evaluation = Literal["table", "recursion"]


def peaks(limit: Limit, normalise: bool) -> tuple[Peak, ...]:
    """Both kernels of `limit` at equal inputs, in the order of `QUANTITIES`."""
    at_equal = limit.at_equal_inputs()
    if not normalise:
        return tuple(Peak(value, limit.log_scale()) for value in at_equal)
    _require_not_zero(at_equal)
    return tuple(Peak(torch.ones_like(value), torch.zeros_like(value)) for value in at_equal)


def angular_kernels(
    limit: Limit, evaluation: Evaluation, accuracy: float, normalise: bool
) -> tuple[AngularKernel, ...]:
    """The covariance and the tangent kernel of `limit`, in the order of `QUANTITIES`."""
    at_equal = peaks(limit, normalise)
    one = torch.ones((), dtype=torch.float64)
    divisors = limit.at_equal_inputs() if normalise else LimitKernels(one, one)

    def evaluate(correlation: Correlation) -> Tensor:
        return torch.stack([k / divisor for k, divisor in zip(limit.recursion(correlation), divisors, strict=True)])

    learned = limit.log_scale().requires_grad
    if evaluation == "recursion":
        return tuple(_by_recursion(evaluate, number, peak, learned) for number, peak in enumerate(at_equal))
    table = tabulate(evaluate, limit.stretch(), accuracy)
    return tuple(of_table(table, number, peak, learned) for number, peak in enumerate(at_equal))


def derivative_kernels(
    limit_at: Callable[[Tensor], Limit], scale: float, accuracy: float, normalise: bool
) -> tuple[AngularKernel, ...]:
    """∂/∂`scale` of both kernels, in the order of `QUANTITIES`.

    Args:
        limit_at: The network with a scale of its own for each correlation.
        scale: Where to differentiate.
        accuracy: Of the table.
        normalise: Whether the kernels are divided by their values at equal inputs.
    """
    limit = limit_at(torch.tensor(scale, dtype=torch.float64))
    log_scale = torch.zeros((), dtype=torch.float64) if normalise else limit.log_scale()

    def kernels(scales: Tensor, correlation: Correlation | None) -> list[Tensor]:
        there = limit_at(scales)
        at_equal = there.at_equal_inputs()
        found = at_equal if correlation is None else there.recursion(correlation)
        factors = [1 / peak for peak in at_equal] if normalise else [(there.log_scale() - log_scale).exp()] * 2
        return [kernel * factor for kernel, factor in zip(found, factors, strict=True)]

    def derivative(correlation: Correlation | None) -> Tensor:
        # each correlation has a copy of the scale, so one backward pass gives all derivatives entry by entry
        shape = () if correlation is None else correlation.below_one.shape
        with torch.enable_grad():
            scales = torch.full(shape, scale, dtype=torch.float64, requires_grad=True)
            found = kernels(scales, correlation)
            found = [k if k.requires_grad else k + 0 * scales for k in found]  # a constant has the derivative 0
            return torch.stack([torch.autograd.grad(k.sum(), scales, retain_graph=True)[0] for k in found])

    if normalise:
        _require_not_zero(limit.at_equal_inputs())
    table = tabulate(derivative, limit.stretch(), accuracy)
    return tuple(of_table(table, number, Peak(value, log_scale)) for number, value in enumerate(derivative(None)))


def _by_recursion(evaluate: Evaluate, number: int, peak: Peak, learned: bool) -> AngularKernel:
    return AngularKernel(lambda correlation: evaluate(correlation)[number], peak, learned)


def _require_not_zero(at_equal: LimitKernels) -> None:
    for quantity, peak in zip(QUANTITIES, at_equal, strict=True):
        if float(peak.detach()) == 0:
            raise InvalidInputError(
                f"The {quantity} is 0 everywhere (branch_scale is 0 and only branches are trained), so it cannot be "
                "normalised. Take a positive branch_scale, trained='all' or normalise=False."
            )
