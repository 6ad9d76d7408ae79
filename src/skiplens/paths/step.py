"""An operation while it is carried out, how its arguments are addressed, and arithmetic of stacks.

A stack holds the coefficients of a polynomial in t along its first axis.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from skiplens.graph.network import plain_call

Slot = tuple[int, ...]  # place of an argument: its position, and its index where the argument is a list
Stacks = Tensor | tuple[Any, ...]  # the stack of a tensor, or one for each tensor of a tuple (None where it has none)


@dataclass(frozen=True, eq=False)
class Carried:
    """A value with the stack of coefficients that adds up to it (or, for derivatives, to its tangent)."""

    value: Any
    stack: Stacks


@dataclass(frozen=True, eq=False)
class Step:
    """An operation with plain arguments, its plain value, and the stacks of the arguments that carry one."""

    node: fx.Node
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    value: Any
    stacks: Mapping[Slot, Tensor]
    may_overwrite: bool = False  # whether the first argument's stack is nobody else's

    def call(self, replaced: Mapping[Slot, Any]) -> Any:
        """The operation with some arguments replaced."""
        return plain_call(self.node, with_slots(self.arguments, replaced), self.keywords)

    def argument(self, position: int, default: Any = None) -> Any:
        """The argument at `position`, or the default where the call leaves it out."""
        return self.arguments[position] if position < len(self.arguments) else default

    @property
    def stack(self) -> Tensor:
        """The stack of the only argument that carries one."""
        (stack,) = self.stacks.values()
        return stack

    def scaled(self, factor: Tensor) -> Tensor:
        """That stack times a factor, in the same memory where it may be overwritten: new memory costs as much again."""
        in_place = self.may_overwrite and torch.result_type(self.stack, factor) == self.stack.dtype
        return self.stack.mul_(factor) if in_place else self.stack * factor


def at_slot(arguments: tuple[Any, ...], slot: Slot) -> Any:
    """What stands at a slot."""
    value: Any = arguments
    for index in slot:
        value = value[index]
    return value


def with_slots(arguments: tuple[Any, ...], replaced: Mapping[Slot, Any]) -> tuple[Any, ...]:
    """The arguments with what stands at some slots replaced."""
    changed = list(arguments)
    for (position, *inside), value in replaced.items():
        if inside:  # the place in a list
            value = [value if place == inside[0] else entry for place, entry in enumerate(changed[position])]
        changed[position] = value
    return tuple(changed)


def padded(stack: Tensor, length: int) -> Tensor:
    """The stack with zeros behind it up to `length` entries."""
    missing = length - stack.shape[0]
    return torch.cat([stack, stack.new_zeros(missing, *stack.shape[1:])]) if missing > 0 else stack


def summed(left: Tensor, right: Tensor, moved: int = 0) -> Tensor:
    """The sum of two stacks of any lengths, the right one times t to the power `moved`, written once.

    The left stack has at least `moved` entries.
    """
    both = slice(moved, min(len(left), len(right) + moved))
    longer, start = (left, both.stop) if len(left) > both.stop else (right, both.stop - moved)
    total = left.new_empty(max(len(left), len(right) + moved), *left.shape[1:])
    total[:moved] = left[:moved]
    torch.add(left[both], right[: both.stop - moved], out=total[both])
    total[both.stop :] = longer[start:]
    return total


def over_entries(function: Callable[..., Any], stacks: Sequence[Tensor]) -> Any:
    """A linear function of several tensors applied to each entry of their stacks, all entries at once."""
    length = max(stack.shape[0] for stack in stacks)
    return torch.vmap(function)(*(padded(stack, length) for stack in stacks))


def plus_constant(stack: Tensor, constant: Tensor) -> Tensor:
    """The stack with a constant that belongs to no branch: it is added to entry 0, in place."""
    stack[0] += constant
    return stack
