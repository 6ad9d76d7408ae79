"""Carry a stack of coefficients beside each value through the graph of a network."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from skiplens.core.errors import SkiplensError
from skiplens.derivatives.functional import transformable
from skiplens.derivatives.polynomial.joins import Counting, branch_arguments
from skiplens.derivatives.polynomial.plan import GETITEM, Plan, where
from skiplens.derivatives.polynomial.rules import rule_of
from skiplens.derivatives.polynomial.step import Carried, Slot, Stacks, Step, at_slot
from skiplens.derivatives.polynomial.tangents import tangent_stack
from skiplens.residual.interpreter import plain_call
from skiplens.residual.operations import operation


@dataclass(frozen=True, eq=False)
class Expansion:
    """The output of a network and the stack of coefficients that it, or its tangent, is made of."""

    value: Tensor
    stack: Tensor


def expand_signal(plan: Plan, counting: Counting, inputs: Any = None) -> Expansion:
    """The output as a stack of coefficients, with the operating point frozen; the plan is a `frozen_plan`."""
    return _expand(_Carrying(plan, counting, None), inputs)


def expand_tangent(plan: Plan, counting: Counting, directions: Mapping[str, Tensor], inputs: Any = None) -> Expansion:
    """The derivative of the output along `directions` as a stack of coefficients; the plan is a `tangent_plan`.

    Args:
        plan: Made by `tangent_plan`.
        counting: What the entries of the stack count.
        directions: A tangent for each source of the plan, by the name of its node.
        inputs: Other inputs than those the network was taken apart with.
    """
    return _expand(_Carrying(plan, counting, directions), inputs)


def expand_activations(plan: Plan, counting: Counting, inputs: Any = None) -> dict[fx.Node, Tensor]:
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

    def __init__(self, plan: Plan, counting: Counting, directions: Mapping[str, Tensor] | None) -> None:
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
