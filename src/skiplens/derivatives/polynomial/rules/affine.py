"""Operations that are linear as they stand: sums, products with one factor held, and whatever moves numbers around."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from skiplens.derivatives.polynomial.rules.rule import Fates, Rule, all_slots, status_at
from skiplens.derivatives.polynomial.stacks import over_entries, plus_constant
from skiplens.derivatives.polynomial.step import Slot, Stacks, Step, at_slot, silent
from skiplens.residual.operations import operation


@dataclass(frozen=True)
class Affine(Rule):
    """A product of some arguments plus a sum of others.

    Of several factors that are sums over paths one is carried and the others are held as gates: the least curved is
    carried (in ``silu(g) * u`` it is u, in ``x * (1 + tanh(…))`` it is x), the last of equals (in ``scores @ v`` v).

    Attributes:
        terms: Positions of the arguments that are added.
        factors: Positions of the arguments that are multiplied.
    """

    terms: tuple[int, ...] = ()
    factors: tuple[int, ...] = ()

    def carried_slots(self, node: fx.Node, fates: Fates) -> tuple[Slot, ...] | None:
        """Every added argument that moves, and one factor."""
        moving = [slot for slot in all_slots(node, self.terms) if status_at(node, slot, fates) != "constant"]
        if any(status_at(node, slot, fates) == "gate" for slot in moving):
            return None
        factors = all_slots(node, self.factors)
        carried = [slot for slot in factors if status_at(node, slot, fates) == "carried"]
        if carried:
            curved = [fates[at_slot(node.args, slot)].curved for slot in carried]
            least = max(index for index, count in enumerate(curved) if count == min(curved))
            return (*moving, carried[least])
        gated = any(status_at(node, slot, fates) == "gate" for slot in factors)
        return None if gated or not moving else tuple(moving)

    def apply(self, step: Step, with_constants: bool) -> Stacks:
        """The operation on each entry, without what is added to it; that goes to entry 0."""
        added = [slot for slot in all_slots(step.node, self.terms) if slot not in step.stacks]
        still = {slot: _nothing(step, slot) for slot in added if at_slot(step.arguments, slot) is not None}
        factors = all_slots(step.node, self.factors)
        if factors and not any(slot in step.stacks for slot in factors):
            still[factors[0]] = silent(at_slot(step.arguments, factors[0]))
        stacks = self._entries(step, still)
        if still and with_constants:
            return plus_constants(stacks, _constant(step))
        return stacks

    def _entries(self, step: Step, still: dict[Slot, Any]) -> Stacks:
        slots = tuple(step.stacks)

        def one(*entries: Tensor) -> Any:
            replaced = {**still, **dict(zip(slots, entries, strict=True))}
            return step.call(replaced)

        result = over_entries(one, tuple(step.stacks.values()))
        return tuple(result) if isinstance(result, list) else result


def plus_constants(stacks: Stacks, constants: Any) -> Stacks:
    """`plus_constant` for a tensor or for each tensor of a tuple."""
    if isinstance(stacks, Tensor):
        return plus_constant(stacks.contiguous(), constants)  # an expanded stack shares memory between its entries
    return tuple(plus_constants(stack, constant) for stack, constant in zip(stacks, constants, strict=True))


def _nothing(step: Step, slot: Slot) -> Any:
    """What stands for an added argument that adds nothing: no bias, or zero."""
    return None if _is_bias(step, slot) else silent(at_slot(step.arguments, slot))


def _is_bias(step: Step, slot: Slot) -> bool:
    """Whether the argument is the bias of a layer, which may be left out."""
    return slot == (2,) and operation(step.node).startswith(("aten.linear", "aten.conv"))


def _constant(step: Step) -> Any:
    """What the operation adds: its value with zeros for the arguments that are carried."""
    bias = step.argument(2)
    if _is_bias(step, (2,)) and isinstance(bias, Tensor) and (2,) not in step.stacks:
        return bias.reshape(*bias.shape, *(1,) * max(0, step.arguments[1].ndim - 2))
    return step.call({slot: torch.zeros_like(at_slot(step.arguments, slot)) for slot in step.stacks})
