"""The polynomial in t carried forwards: a stack of coefficients beside each value of the graph.

`expand_signal` and `expand_tangent` run the network's own interpreter with calls that carry both; a `Counting` says
what the entries of the stacks count.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
from skiplens.paths.step import Carried, Slot, Stacks, Step, at_slot, over_entries, padded, summed


class Counting(ABC):
    """What the entries of a stack count; each branch is first multiplied by a factor of its own."""

    @abstractmethod
    def enter(self, branch: Tensor, block: int) -> Tensor:
        """The stack that a branch of block number `block` brings to its join."""

    def join(self, shortcut: Tensor, branch: Tensor, block: int) -> Tensor:
        """The stack of the sum of a shortcut and the branch of block number `block`, of one shape."""
        return summed(shortcut, self.enter(branch, block))

    def products(self, entry: int, left: int, right: int) -> list[tuple[int, int]]:
        """Which entries of two stacks, of `left` and `right` entries, make this entry of their product.

        Here as where entry 0 is a value and the others are its derivatives: those of one times the other.
        """
        pairs = [(0, 0)] if entry == 0 else [(0, entry), (entry, 0)]
        return [(i, j) for i, j in pairs if i < left and j < right]


@dataclass(frozen=True)
class PathOrders(Counting):
    """Entry r is the sum over all paths through exactly r branches."""

    most: int | None = None  # highest order that is kept; all of them if None
    factors: tuple[float, ...] = ()  # one for each branch, such as random signs; ones if not given
    counted: frozenset[int] | None = None  # the blocks whose branches count; all of them if None

    def enter(self, branch: Tensor, block: int) -> Tensor:
        """One branch more on each path: entry r moves to r + 1."""
        kept, moved = self._moved(branch, block)
        return torch.cat([torch.zeros_like(branch[:1]), kept]) if moved else kept

    def join(self, shortcut: Tensor, branch: Tensor, block: int) -> Tensor:
        """The branch is moved by one order as it is added."""
        return summed(shortcut, *self._moved(branch, block))

    def _moved(self, branch: Tensor, block: int) -> tuple[Tensor, int]:
        """The entries of a branch that are kept, times its factor, and by how many orders they move."""
        moved = int(self.counted is None or block in self.counted)
        kept = branch if self.most is None else branch[: self.most + 1 - moved]
        return kept * self.factors[block] if self.factors else kept, moved

    def products(self, entry: int, left: int, right: int) -> list[tuple[int, int]]:
        """Those whose orders add up."""
        cut = self.most is not None and entry > self.most
        return [] if cut else [(i, entry - i) for i in range(left) if 0 <= entry - i < right]


@dataclass(frozen=True)
class BlockDerivatives(Counting):
    """Entry 0 is the signal with each branch times its factor, entry 1 + i its derivative by the factor of block i.

    The signal is linear in each factor: at factors of one the derivative is the sum over all paths through block i.
    """

    factors: tuple[float, ...] = ()  # ones if not given
    derivatives: bool = True  # whether they are wanted

    def enter(self, branch: Tensor, block: int) -> Tensor:
        """The branch times its factor, and the branch itself in the entry of its own block."""
        factor = self.factors[block] if self.factors else 1.0
        if not self.derivatives:
            return branch * factor
        stack = padded(branch * factor, block + 2)
        own = torch.zeros_like(stack)
        own[block + 1] = branch[0]
        return stack + own


@dataclass(frozen=True)
class TotalDerivative(Counting):
    """Entry 0 is the signal, entry 1 its derivative by a factor common to all branches, at one."""

    def enter(self, branch: Tensor, block: int) -> Tensor:
        """The branch, and once more in the derivative."""
        signal, derivative = padded(branch, 2)
        return torch.stack([signal, derivative + signal])


def expand_signal(plan: StackPlan, counting: Counting) -> Tensor:
    """The stack of coefficients that the output is the sum of, the operating point frozen; for a `frozen_plan`."""
    return _run(plan, counting, None, [plan.output])[plan.output]


def expand_tangent(plan: StackPlan, counting: Counting, directions: Mapping[str, Tensor]) -> Tensor:
    """The derivative of the output along a tangent for each source, by its name; for a `tangent_plan`."""
    return _run(plan, counting, directions, [plan.output])[plan.output]


def expand_activations(plan: StackPlan, counting: Counting) -> dict[fx.Node, Tensor]:
    """The stacks of the other nodes that an `activation_plan` wants, with the operating point frozen."""
    return _run(plan, counting, None, plan.others)


def _run(
    plan: StackPlan, counting: Counting, directions: Mapping[str, Tensor] | None, wanted: Sequence[fx.Node]
) -> dict[fx.Node, Tensor]:
    carrying = _Carrying(plan, counting, directions)
    placeholders = [node.name for node in plan.sources if node.op == "placeholder"]
    with torch.no_grad(), transformable():
        inputs = plan.network.run(placeholders)
        given = {name: carrying.source(name, value.detach()) for name, value in inputs.items()}
        values = plan.network.run([node.name for node in wanted], given=given, call=carrying.call)
    return {node: values[node.name].stack for node in wanted}


class _Carrying:
    """How one operation is carried out on values that have stacks beside them."""

    def __init__(self, plan: StackPlan, counting: Counting, directions: Mapping[str, Tensor] | None) -> None:
        self.plan, self.counting, self.directions = plan, counting, directions
        self.branches = branch_arguments(plan.network)

    def source(self, name: str, value: Tensor) -> Carried:
        return Carried(value, (value if self.directions is None else self.directions[name])[None])

    def call(self, node: fx.Node, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        plain = fx.node.map_aggregate(arguments, _value)
        value = plain_call(node, plain, fx.node.map_aggregate(keywords, _value))
        if node in self.plan.sources:
            return self.source(node.name, value)
        if node not in self.plan.needed:
            return value
        stacks = {slot: at_slot(arguments, slot).stack for slot in self.plan.fates[node].slots}
        if operation(node) == GETITEM:
            return Carried(value, stacks[(0,)][arguments[1]])
        block, positions = self.branches.get(node.name, (0, ()))
        if len(positions) == 1 and _is_plain_sum(node, stacks):
            shortcut, branch = stacks[(1 - positions[0],)], stacks[(positions[0],)]
            return Carried(value, self.counting.join(shortcut, branch, block))
        stacks = entered(stacks, self.counting, block, positions)
        stack = self._stack(Step(node, plain, keywords, value, stacks, self.plan.is_sole_reader(node)))
        if isinstance(value, list | tuple) and isinstance(stack, Tensor):
            # An operation that returns its statistics too carries the first tensor alone.
            return Carried(value, (stack, *(None for _ in value[1:])))
        return Carried(value, stack)

    def _stack(self, step: Step) -> Stacks:
        try:
            if self.directions is not None:
                return _tangent_stack(step)
            if step.node in self.plan.products:
                return self._product(step)
            rule = rule_of(step.node)
            assert rule is not None, "a plan carries only operations that have a rule"
            return rule.apply(step, with_constants=True)
        except (RuntimeError, NotImplementedError) as error:
            raise SkiplensError(f"The path spectrum cannot be followed through {where(step.node)}: {error}") from error

    def _product(self, step: Step) -> Tensor:
        """The product of two stacks, each entry from the pairs of entries that make it."""
        slots, (left, right) = tuple(step.stacks), step.stacks.values()
        multiply = torch.vmap(lambda *factors: step.call(dict(zip(slots, factors, strict=True))))
        every = (self.counting.products(entry, len(left), len(right)) for entry in range(len(left) + len(right) - 1))
        ways = [tuple(zip(*pairs, strict=True)) for pairs in every if pairs]
        return torch.stack([multiply(left[list(lefts)], right[list(rights)]).sum(0) for lefts, rights in ways])


def _value(argument: Any) -> Any:
    return argument.value if isinstance(argument, Carried) else argument


def _is_plain_sum(node: fx.Node, stacks: dict[Slot, Tensor]) -> bool:
    """Whether an operation is the sum of two arguments, neither of which is stretched."""
    if operation(node) != "aten.add" or node.kwargs or len(stacks) != 2:
        return False
    left, right = stacks.values()
    return left.shape[1:] == right.shape[1:] and left.dtype == right.dtype


def entered(
    stacks: Mapping[Slot, Tensor], counting: Counting, block: int, positions: tuple[int, ...]
) -> dict[Slot, Tensor]:
    """The stacks of an operation's arguments, those of a branch (at `positions`) as they come out of it."""
    return {slot: counting.enter(s, block) if slot[0] in positions else s for slot, s in stacks.items()}


def _tangent_stack(step: Step) -> Stacks:
    """What the operation's derivative makes of the stacks of tangents of its arguments."""
    rule = rule_of(step.node)
    if isinstance(rule, Affine) and sum(slot[0] in rule.factors for slot in step.stacks) <= 1:
        if all(slot[0] in (*rule.terms, *rule.factors) for slot in step.stacks):
            return rule.apply(step, with_constants=False)
    slots = tuple(step.stacks)
    values = tuple(at_slot(step.arguments, slot) for slot in slots)
    function = differentiable(step, slots)
    stacks = tuple(step.stacks.values())
    result = over_entries(lambda *tangents: torch.func.jvp(function, values, tangents)[1], stacks)
    return tuple(result) if isinstance(result, list | tuple) else result


def differentiable(step: Step, slots: tuple[Slot, ...]) -> Callable[..., Any]:
    """The operation as a function of the arguments at `slots`, in a form that has all derivatives."""
    rule = rule_of(step.node)
    if isinstance(rule, Normalising) and slots == ((0,),):
        return rule.read(step)  # written out, because fused forms lack some
    return lambda *moved: step.call(dict(zip(slots, moved, strict=True)))
