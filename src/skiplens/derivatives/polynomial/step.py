"""One operation of the graph while it is carried out, and how its arguments are addressed."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from skiplens.residual.interpreter import plain_call

Slot = tuple[int, ...]
"""Place of an argument: its position, and its index where the argument is a list."""

Stacks = Tensor | tuple[Any, ...]
"""The stack of a tensor, or one for each tensor of a tuple (None where it has none)."""


@dataclass(frozen=True, eq=False)
class Carried:
    """A value with the stack of coefficients that adds up to it (or, for derivatives, to its tangent)."""

    value: Any
    stack: Stacks


@dataclass(frozen=True, eq=False)
class Step:
    """An operation with plain arguments, its plain value, and the stacks of the arguments that carry one.

    Attributes:
        node: The operation.
        arguments: Its plain arguments,
        keywords: and those with names.
        value: Its plain value.
        stacks: The stacks of the arguments that carry one, by their slots.
        may_overwrite: Whether the first argument's stack is nobody else's.
    """

    node: fx.Node
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    value: Any
    stacks: Mapping[Slot, Tensor]
    may_overwrite: bool = False

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


def slots_at(arguments: tuple[Any, ...], position: int) -> Iterator[Slot]:
    """The slots of the argument at `position`: one, or one for each entry of a list; none if it is left out."""
    if position >= len(arguments):
        return
    if isinstance(arguments[position], list | tuple):
        yield from ((position, index) for index in range(len(arguments[position])))
    else:
        yield (position,)


def at_slot(arguments: tuple[Any, ...], slot: Slot) -> Any:
    """What stands at a slot."""
    value: Any = arguments
    for index in slot:
        value = value[index]
    return value


def with_slots(arguments: tuple[Any, ...], replaced: Mapping[Slot, Any]) -> tuple[Any, ...]:
    """The arguments with what stands at some slots replaced."""
    changed = list(arguments)
    for slot, value in replaced.items():
        if len(slot) == 1:
            changed[slot[0]] = value
        else:
            entries = list(changed[slot[0]])
            entries[slot[1]] = value
            changed[slot[0]] = entries
    return tuple(changed)


def silent(value: Any) -> Any:
    """A zero in place of a tensor or a number; nothing stays nothing."""
    if isinstance(value, Tensor):
        return torch.zeros_like(value)
    return type(value)(0) if isinstance(value, int | float) and not isinstance(value, bool) else value
