"""Operations on each number by itself, frozen into a factor for each number."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from skiplens.derivatives.polynomial.rules.rule import Fates, OfOne
from skiplens.derivatives.polynomial.stacks import plus_constant
from skiplens.derivatives.polynomial.step import Slot, Step


@dataclass(frozen=True)
class Secant(OfOne):
    """φ with φ(0) = 0 as the factor φ(u)/u: the mask of a ReLU, the gate of a GELU; φ′(0) where u = 0."""

    curves = True
    is_fresh = True

    def apply(self, step: Step, with_constants: bool) -> Tensor:
        """Each entry times the factor."""
        argument = step.arguments[0].to(step.stack.dtype)
        factor = step.value.to(step.stack.dtype) / argument
        zero = argument == 0
        if bool(zero.any()):
            factor = torch.where(zero, slope(step).nan_to_num(0.0, 0.0, 0.0), factor)
        return step.scaled(factor)


@dataclass(frozen=True)
class Power(Secant):
    """u^n with a constant n ≥ 1."""

    def carried_slots(self, node: fx.Node, fates: Fates) -> tuple[Slot, ...] | None:
        """The base."""
        exponent = node.args[1]
        grows = isinstance(exponent, int | float) and exponent >= 1
        return super().carried_slots(node, fates) if grows else None


@dataclass(frozen=True)
class Tangent(OfOne):
    """A piecewise linear φ as its piece: slope times u, plus the height of the piece as a constant."""

    curves = True
    is_fresh = True

    def apply(self, step: Step, with_constants: bool) -> Tensor:
        """Each entry times the slope; the height goes to entry 0."""
        factor = slope(step)
        stack = step.scaled(factor)
        return plus_constant(stack, step.value - factor * step.arguments[0]) if with_constants else stack


def slope(step: Step) -> Tensor:
    """The derivative of an operation on each number by itself."""

    def function(argument: Tensor) -> Any:
        return step.call({(0,): argument})

    argument = step.arguments[0]
    return torch.func.jvp(function, (argument,), (torch.ones_like(argument),))[1]
