"""The derivative of one operation applied to a stack of tangents."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from skiplens.derivatives.polynomial.rules import rule_of
from skiplens.derivatives.polynomial.rules.affine import Affine
from skiplens.derivatives.polynomial.rules.normalisation import Normalising
from skiplens.derivatives.polynomial.stacks import over_entries
from skiplens.derivatives.polynomial.step import Slot, Stacks, Step, at_slot


def tangent_stack(step: Step) -> Stacks:
    """What the operation's derivative makes of the stacks of tangents of its arguments."""
    rule = rule_of(step.node)
    if isinstance(rule, Affine) and sum(slot[0] in rule.factors for slot in step.stacks) <= 1:
        if all(slot[0] in (*rule.terms, *rule.factors) for slot in step.stacks):
            return rule.apply(step, with_constants=False)
    slots = tuple(step.stacks)
    values = tuple(at_slot(step.arguments, slot) for slot in slots)
    function = differentiable(step, slots)

    def push(*tangents: Tensor) -> Any:
        return torch.func.jvp(function, values, tangents)[1]

    result = over_entries(push, tuple(step.stacks.values()))
    return tuple(result) if isinstance(result, list | tuple) else result


def differentiable(step: Step, slots: tuple[Slot, ...]) -> Callable[..., Any]:
    """The operation as a function of the arguments at `slots`, in a form that has all derivatives."""
    rule = rule_of(step.node)
    if isinstance(rule, Normalising) and slots == ((0,),):
        return rule.read(step)  # written out, because fused forms lack some
    return lambda *moved: step.call(dict(zip(slots, moved, strict=True)))
