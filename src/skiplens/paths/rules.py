"""What becomes of a node, and the rules that freeze an operation at its operating point.

A frozen operation is a linear map from the stacks of some arguments to the stack of the result; the table of all
operations is in `rule_table`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, Literal

import torch
from torch import Tensor, fx

from skiplens.graph.operations import operation
from skiplens.paths.step import Slot, Stacks, Step, at_slot, over_entries, plus_constant

Status = Literal["constant", "gate", "carried"]
"""How a value depends on the signal.

* ``constant``: not at all; where it is added it belongs to paths without branches.
* ``gate``: it does, but through an operation that is no frozen matrix times its argument; it can only multiply.
* ``carried``: it is a sum over paths.
"""


@dataclass(frozen=True)
class Fate:
    """What becomes of a node: how its value depends on the signal."""

    status: Status
    slots: tuple[Slot, ...] = ()  # the arguments whose stacks make its own
    curved: int = 0  # nonlinear operations on the longest way from the inputs; of two factors the more curved is a gate
    passes: int = 0  # the blocks that it is a sum of paths through: bit i stands for block i
    blocker: str | None = None  # name of the operation without a frozen form that made it a gate


CONSTANT = Fate("constant")
Fates = Mapping[fx.Node, Fate]


class Rule(ABC):
    """A frozen operation: a linear map from the stacks of some arguments to the stack of the result."""

    curves: bool = False  # whether the operation is nonlinear
    # whether the stack of the result shares memory with nothing but that of an argument that may be overwritten
    is_fresh: bool = False

    @abstractmethod
    def carried_slots(self, node: fx.Node, fates: Fates) -> tuple[Slot, ...] | None:
        """The arguments whose stacks the result is made from; None where there is no such form."""

    @abstractmethod
    def apply(self, step: Step, with_constants: bool) -> Stacks:
        """The stack of the result; derivatives leave out the constants."""


def status_at(node: fx.Node, slot: Slot, fates: Fates) -> Status:
    """How the argument at a slot depends on the signal."""
    argument = at_slot(node.args, slot)
    return fates[argument].status if isinstance(argument, fx.Node) else "constant"


def all_slots(node: fx.Node, positions: Iterable[int]) -> tuple[Slot, ...]:
    """The slots of several arguments in order: one each, or one for each entry of a list; none if it is left out."""
    found: list[Slot] = []
    for position in positions:
        argument: Any = node.args[position] if position < len(node.args) else ()
        listed = isinstance(argument, list | tuple)
        found += [(position, index) for index in range(len(argument))] if listed else [(position,)]
    return tuple(found)


class OfOne(Rule):
    """A rule for operations that act on their first argument alone; the others are constants."""

    def carried_slots(self, node: fx.Node, fates: Fates) -> tuple[Slot, ...] | None:
        """The first argument."""
        others = [source for source in node.all_input_nodes if source is not node.args[0]]
        moving = any(fates[source].status != "constant" for source in others)
        return None if moving or status_at(node, (0,), fates) != "carried" else ((0,),)


@dataclass(frozen=True)
class Affine(Rule):
    """A product of some arguments plus a sum of others.

    Of several factors that are sums over paths one is carried and the others are held as gates: the one that passed all
    blocks that any did (in ``hidden * mask`` the hidden states), of these the least curved (in ``silu(g) * u`` it is u,
    in ``x * (1 + tanh(…))`` it is x), the last of equals (in ``scores @ v`` v). Two that passed different blocks, such
    as the towers of CLIP, are both carried: their polynomials are multiplied, and a path is one path through each.
    """

    terms: tuple[int, ...] = ()  # positions of the arguments that are added,
    factors: tuple[int, ...] = ()  # and of those that are multiplied

    def carried_slots(self, node: fx.Node, fates: Fates) -> tuple[Slot, ...] | None:
        """Every added argument that moves, and one factor."""
        moving = [slot for slot in all_slots(node, self.terms) if status_at(node, slot, fates) != "constant"]
        if any(status_at(node, slot, fates) == "gate" for slot in moving):
            return None
        factors = all_slots(node, self.factors)
        carried = [slot for slot in factors if status_at(node, slot, fates) == "carried"]
        if carried:
            added = any(at_slot(node.args, slot) is not None for slot in all_slots(node, self.terms))
            own = {slot: fates[at_slot(node.args, slot)] for slot in carried}
            passed = [fate.passes for fate in own.values()]
            towers = len(passed) == 2 and all(passed) and not passed[0] & passed[1]  # no block in common
            return tuple(carried) if towers and not added else (*moving, _followed(own))
        gated = any(status_at(node, slot, fates) == "gate" for slot in factors)
        return None if gated or not moving else tuple(moving)

    def apply(self, step: Step, with_constants: bool) -> Stacks:
        """The operation on each entry, without what is added to it; that goes to entry 0."""
        still: dict[Slot, Any] = {}
        for slot in all_slots(step.node, self.terms):
            argument = at_slot(step.arguments, slot)
            if slot not in step.stacks and argument is not None:
                still[slot] = None if _is_bias(step, slot) else _zero_like(argument)
        factors = all_slots(step.node, self.factors)
        if factors and not any(slot in step.stacks for slot in factors):
            still[factors[0]] = _zero_like(at_slot(step.arguments, factors[0]))
        stacks = self._entries(step, still)
        return _plus_constants(stacks, _constant(step)) if still and with_constants else stacks

    def _entries(self, step: Step, still: dict[Slot, Any]) -> Stacks:
        slots, stacks = tuple(step.stacks), tuple(step.stacks.values())
        result = over_entries(lambda *entries: step.call({**still, **dict(zip(slots, entries, strict=True))}), stacks)
        return tuple(result) if isinstance(result, list) else result


def _followed(factors: Mapping[Slot, Fate]) -> Slot:
    """The factor that is carried where the others are held."""
    every = reduce(or_, (fate.passes for fate in factors.values()))
    whole = {slot: fate for slot, fate in factors.items() if fate.passes == every} or factors
    least = min(fate.curved for fate in whole.values())
    return [slot for slot, fate in whole.items() if fate.curved == least][-1]


def _plus_constants(stacks: Stacks, constants: Any) -> Stacks:
    """`plus_constant` for a tensor or for each tensor of a tuple."""
    if isinstance(stacks, Tensor):
        return plus_constant(stacks.contiguous(), constants)  # an expanded stack shares memory between its entries
    return tuple(_plus_constants(stack, constant) for stack, constant in zip(stacks, constants, strict=True))


def _zero_like(value: Any) -> Any:
    """A zero in place of a tensor or a number; nothing stays nothing."""
    if isinstance(value, Tensor):
        return torch.zeros_like(value)
    return type(value)(0) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _is_bias(step: Step, slot: Slot) -> bool:
    """Whether the argument is the bias of a layer, which may be left out."""
    return slot == (2,) and operation(step.node).startswith(("aten.linear", "aten.conv"))


def _constant(step: Step) -> Any:
    """What the operation adds: its value with zeros for the arguments that are carried."""
    bias = step.argument(2)
    if _is_bias(step, (2,)) and isinstance(bias, Tensor) and (2,) not in step.stacks:
        return bias.reshape(*bias.shape, *(1,) * max(0, step.arguments[1].ndim - 2))
    return step.call({slot: torch.zeros_like(at_slot(step.arguments, slot)) for slot in step.stacks})


@dataclass(frozen=True)
class Attention(Rule):
    """``scaled_dot_product_attention(query, key, value, …)`` as weights times values."""

    curves = True

    def carried_slots(self, node: fx.Node, fates: Fates) -> tuple[Slot, ...] | None:
        """The values."""
        return ((2,),) if status_at(node, (2,), fates) == "carried" else None

    def apply(self, step: Step, with_constants: bool) -> Tensor:
        """All entries side by side as features of one value, so that the weights are computed once."""
        entries, features = step.stack.shape[0], step.stack.shape[-1]
        beside = step.stack.movedim(0, -2).flatten(-2)
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):  # others want equal feature counts
            mixed = step.call({(2,): beside})
        return mixed.unflatten(-1, (entries, features)).movedim(-2, 0)


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
        grows = isinstance(node.args[1], int | float) and node.args[1] >= 1
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
    x = step.arguments[0]
    return torch.func.jvp(lambda argument: step.call({(0,): argument}), (x,), (torch.ones_like(x),))[1]


@dataclass(frozen=True)
class MaxPool(OfOne):
    """A max-pooling as the numbers it chose."""

    curves = True
    pool: Callable[..., tuple[Tensor, Tensor]]  # the pooling that also returns where each number came from
    axes: int  # how many are pooled

    def apply(self, step: Step, with_constants: bool) -> Tensor:
        """Each entry at the places that were chosen."""
        places = self.pool(*step.arguments)[1].flatten(-self.axes)

        def chosen(entry: Tensor) -> Tensor:
            picked = entry.flatten(-self.axes).gather(-1, places)
            return picked.reshape(*picked.shape[:-1], *_first(step.value).shape[-self.axes :])

        return over_entries(chosen, (step.stack,))


@dataclass(frozen=True)
class Extreme(OfOne):
    """``max(x, axis)`` and its like as the numbers they chose."""

    curves = True
    largest: bool = True

    def carried_slots(self, node: fx.Node, fates: Fates) -> tuple[Slot, ...] | None:
        """The first argument, unless the larger of two tensors is asked for."""
        return None if len(node.args) > 1 and isinstance(node.args[1], fx.Node) else super().carried_slots(node, fates)

    def apply(self, step: Step, with_constants: bool) -> Tensor:
        """Each entry at the places that were chosen."""
        x, axes = step.arguments[0], step.argument(1)
        axes = tuple(axes) if isinstance(axes, list | tuple) else (axes,)
        axes = tuple(axis % x.ndim for axis in axes if axis is not None) or tuple(range(x.ndim))
        kept = [axis for axis in range(x.ndim) if axis not in axes]
        shape = _first(step.value).shape

        def together(tensor: Tensor) -> Tensor:
            return tensor.permute(*kept, *axes).flatten(len(kept)) if kept else tensor.permute(*axes).reshape(-1)

        arranged = together(x)
        places = (arranged.argmax(-1) if self.largest else arranged.argmin(-1)).unsqueeze(-1)
        return over_entries(lambda entry: together(entry).gather(-1, places).reshape(shape), (step.stack,))


def _first(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else value[0]
