"""Carry a stack of coefficients beside each value through the graph of a network."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx

from skiplens.base.errors import SkiplensError
from skiplens.graph.functional import transformable
from skiplens.graph.network import plain_call
from skiplens.graph.operations import operation
from skiplens.paths.plan import GETITEM, StackPlan, branch_arguments, where
from skiplens.paths.rule_table import Normalising, rule_of
from skiplens.paths.rules import Affine
from skiplens.paths.step import Carried, Slot, Stacks, Step, at_slot, over_entries, padded, shifted, summed


@dataclass(frozen=True, eq=False)
class Expansion:
    """The output of a network and the stack of coefficients that it, or its tangent, is made of."""

    value: Tensor
    stack: Tensor


class Counting(ABC):
    """What the entries of a stack count; each branch is first multiplied by a factor of its own."""

    @abstractmethod
    def enter(self, branch: Tensor, block: int) -> Tensor:
        """The stack that a branch of block number `block` brings to its join."""

    def join(self, shortcut: Tensor, branch: Tensor, block: int) -> Tensor:
        """The stack of the sum of a shortcut and the branch of block number `block`, of one shape."""
        return summed(shortcut, self.enter(branch, block))

    @abstractmethod
    def products(self, entry: int, left: int, right: int) -> list[tuple[int, int]]:
        """Which entries of two stacks, of `left` and `right` entries, make this entry of their product."""


def expand_signal(plan: StackPlan, counting: Counting, inputs: Any = None) -> Expansion:
    """The output as a stack of coefficients, with the operating point frozen; the plan is a `frozen_plan`."""
    return _expand(_Carrying(plan, counting, None), inputs)


def expand_tangent(
    plan: StackPlan, counting: Counting, directions: Mapping[str, Tensor], inputs: Any = None
) -> Expansion:
    """The derivative of the output along `directions` as a stack of coefficients; the plan is a `tangent_plan`.

    Args:
        plan: Made by `tangent_plan`.
        counting: What the entries of the stack count.
        directions: A tangent for each source of the plan, by the name of its node.
        inputs: Other inputs than those the network was taken apart with.
    """
    return _expand(_Carrying(plan, counting, directions), inputs)


def expand_activations(plan: StackPlan, counting: Counting, inputs: Any = None) -> dict[fx.Node, Tensor]:
    """The stacks of the other nodes that an `activation_plan` wants, with the operating point frozen."""
    carrying = _Carrying(plan, counting, None)
    names = [node.name for node in plan.others]
    with torch.no_grad(), transformable():
        values = plan.network.run(names, inputs=inputs, given=carrying.given_inputs(inputs), call=carrying.call)
    return {node: values[node.name].stack for node in plan.others}


def _expand(carrying: "_Carrying", inputs: Any) -> Expansion:
    plan = carrying.plan
    with torch.no_grad(), transformable():
        values = plan.network.run(
            [plan.output.name], inputs=inputs, given=carrying.given_inputs(inputs), call=carrying.call
        )
    result = values[plan.output.name]
    return Expansion(result.value, result.stack)


class _Carrying:
    """How one operation is carried out on values that have stacks beside them."""

    def __init__(self, plan: StackPlan, counting: Counting, directions: Mapping[str, Tensor] | None) -> None:
        self.plan = plan
        self.counting = counting
        self.directions = directions
        self.branches = branch_arguments(plan.network)

    def given_inputs(self, inputs: Any) -> dict[str, Carried]:
        names = [node.name for node in self.plan.sources if node.op == "placeholder"]
        values = self.plan.network.run(names, inputs=inputs) if names else {}
        return {name: self._source(name, values[name].detach()) for name in names}

    def _source(self, name: str, value: Tensor) -> Carried:
        return Carried(value, (value if self.directions is None else self.directions[name])[None])

    def call(self, node: fx.Node, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        plain = fx.node.map_aggregate(arguments, _value)
        value = plain_call(node, plain, fx.node.map_aggregate(keywords, _value))
        if node in self.plan.sources:
            return self._source(node.name, value)
        if node not in self.plan.needed:
            return value
        stacks = {slot: at_slot(arguments, slot).stack for slot in self.plan.fates[node].slots}
        if operation(node) == GETITEM:
            return Carried(value, stacks[(0,)][arguments[1]])
        if self._is_plain_join(node, stacks):
            return Carried(value, self._join(node, stacks))
        step = Step(node, plain, keywords, value, self._joined(node, stacks), self.plan.is_sole_reader(node))
        return Carried(value, _one_for_each(self._stack(step), value))

    def _is_plain_join(self, node: fx.Node, stacks: dict[Slot, Tensor]) -> bool:
        """Whether an operation is the sum of one branch and its shortcut, neither of which is stretched."""
        _, positions = self.branches.get(node.name, (0, ()))
        if operation(node) != "aten.add" or node.kwargs or len(positions) != 1 or len(stacks) != 2:
            return False
        left, right = stacks.values()
        return left.shape[1:] == right.shape[1:] and left.dtype == right.dtype

    def _join(self, node: fx.Node, stacks: dict[Slot, Tensor]) -> Tensor:
        block, (position,) = self.branches[node.name]
        return self.counting.join(stacks[(1 - position,)], stacks[(position,)], block)

    def _joined(self, node: fx.Node, stacks: dict[Slot, Tensor]) -> dict[Slot, Tensor]:
        """The stacks of an operation's arguments, those of a branch as they come out of it."""
        block, positions = self.branches.get(node.name, (0, ()))
        return {
            slot: self.counting.enter(stack, block) if slot[0] in positions else stack for slot, stack in stacks.items()
        }

    def _stack(self, step: Step) -> Stacks:
        try:
            if self.directions is not None:
                return tangent_stack(step)
            rule = rule_of(step.node)
            assert rule is not None, "a plan carries only operations that have a rule"
            return rule.apply(step, with_constants=True)
        except (RuntimeError, NotImplementedError) as error:
            raise SkiplensError(f"The path spectrum cannot be followed through {where(step.node)}: {error}") from error


def _value(argument: Any) -> Any:
    return argument.value if isinstance(argument, Carried) else argument


def _one_for_each(stacks: Stacks, value: Any) -> Stacks:
    """A stack for each tensor of a tuple; an operation that returns its statistics too carries the first alone."""
    several = isinstance(value, list | tuple)
    return (stacks, *(None for _ in value[1:])) if several and isinstance(stacks, Tensor) else stacks


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


@dataclass(frozen=True)
class PathOrders(Counting):
    """Entry r is the sum over all paths through exactly r branches.

    Attributes:
        most: Highest order that is kept, all of them if None.
        factors: A factor for each branch, such as random signs; ones if not given.
    """

    most: int | None = None
    factors: tuple[float, ...] = field(default=())

    def enter(self, branch: Tensor, block: int) -> Tensor:
        """One branch more on each path."""
        stack = shifted(branch, self.most)
        return stack * self.factors[block] if self.factors else stack

    def join(self, shortcut: Tensor, branch: Tensor, block: int) -> Tensor:
        """The branch is moved by one order as it is added."""
        kept = branch if self.most is None else branch[: self.most]
        return summed(shortcut, kept * self.factors[block] if self.factors else kept, moved=1)

    def products(self, entry: int, left: int, right: int) -> list[tuple[int, int]]:
        """Those whose orders add up."""
        return [(i, entry - i) for i in range(left) if 0 <= entry - i < right]


@dataclass(frozen=True)
class BlockDerivatives(Counting):
    """Entry 0 is the signal with each branch times its factor, entry 1 + i its derivative by the factor of block i.

    The signal is linear in each factor: at factors of one the derivative is the sum over all paths through block i.

    Attributes:
        factors: A factor for each branch; ones if not given.
        derivatives: Whether the derivatives are wanted.
    """

    factors: tuple[float, ...] = field(default=())
    derivatives: bool = True

    def enter(self, branch: Tensor, block: int) -> Tensor:
        """The branch times its factor, and the branch itself in the entry of its own block."""
        factor = self.factors[block] if self.factors else 1.0
        if not self.derivatives:
            return branch * factor
        stack = padded(branch * factor, block + 2)
        own = torch.zeros_like(stack)
        own[block + 1] = branch[0]
        return stack + own

    def products(self, entry: int, left: int, right: int) -> list[tuple[int, int]]:
        """The derivative of one times the other."""
        return first_derivatives(entry, left, right)


@dataclass(frozen=True)
class TotalDerivative(Counting):
    """Entry 0 is the signal, entry 1 its derivative by a factor common to all branches, at one."""

    def enter(self, branch: Tensor, block: int) -> Tensor:
        """The branch, and once more in the derivative."""
        signal, derivative = padded(branch, 2)
        return torch.stack([signal, derivative + signal])

    def products(self, entry: int, left: int, right: int) -> list[tuple[int, int]]:
        """The derivative of one times the other."""
        return first_derivatives(entry, left, right)


def first_derivatives(entry: int, left: int, right: int) -> list[tuple[int, int]]:
    """The entries that make one of a product, where entry 0 is a value and the others are its derivatives."""
    pairs = [(0, 0)] if entry == 0 else [(0, entry), (entry, 0)]
    return [(i, j) for i, j in pairs if i < left and j < right]
