"""Stacks of coefficients: tensors with one more axis in front, entry r of which belongs to the r-th power of t."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def padded(stack: Tensor, length: int) -> Tensor:
    """The stack with zeros behind it up to `length` entries."""
    missing = length - stack.shape[0]
    return torch.cat([stack, stack.new_zeros(missing, *stack.shape[1:])]) if missing > 0 else stack


def shifted(stack: Tensor, most: int | None = None) -> Tensor:
    """The stack times t: entry r moves to r + 1; entries beyond order `most` are let go."""
    moved = stack if most is None else stack[:most]
    return torch.cat([stack.new_zeros(1, *stack.shape[1:]), moved])


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
