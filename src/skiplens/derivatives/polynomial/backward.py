"""The gradient as a stack of coefficients: the polynomial in t carried backwards through the graph."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from skiplens.core.errors import SkiplensError
from skiplens.derivatives.functional import transformable
from skiplens.derivatives.polynomial.joins import Counting, branch_arguments
from skiplens.derivatives.polynomial.plan import GETITEM, Plan, where
from skiplens.derivatives.polynomial.stacks import padded, summed
from skiplens.derivatives.polynomial.step import Step, at_slot
from skiplens.derivatives.polynomial.tangents import differentiable
from skiplens.residual.operations import operation


@dataclass(frozen=True, eq=False)
class Cotangents:
    """What arrives at a source of the signal or at a parameter."""

    name: str
    stack: Tensor


Visit = Callable[[Step, Tensor], None]


def pull_back(
    plan: Plan, counting: Counting, cotangent: Tensor, inputs: Any = None, visit: Visit | None = None
) -> Iterator[Cotangents]:
    """The gradient by each source of the plan, as a stack of coefficients, from that by the output.

    Each stack is yielded as soon as it is complete and is let go then: those of parameters may be large.

    Args:
        plan: Made by `tangent_plan`; parameters among its sources get their gradients too.
        counting: What the entries of the stacks count; here the branches from the output backwards.
        cotangent: Gradient of a loss by the output.
        inputs: Other inputs than those the network was taken apart with.
        visit: Called at each operation with its plain values and the stack that arrived at its (first) result.
    """
    sweep = _Sweep(plan, counting, _values(plan, inputs), visit)
    sweep.stacks[plan.output] = cotangent[None]
    steps = sorted(plan.needed - set(plan.sources), reverse=True)
    waiting = {source: _readers(source, steps) for source in plan.sources}
    for node in steps:
        with transformable():
            sweep.through(node)
        for source in [source for source, readers in waiting.items() if node in readers]:
            waiting[source].discard(node)
            if not waiting[source]:
                yield from sweep.arrived(source)


def _readers(source: fx.Node, steps: Iterable[fx.Node]) -> set[fx.Node]:
    return {node for node in steps if source in node.all_input_nodes}


def _values(plan: Plan, inputs: Any) -> dict[fx.Node, Any]:
    """The plain values of everything that the backward pass reads."""
    read = {source for node in plan.needed for source in node.all_input_nodes}
    wanted = sorted(read | plan.needed)
    with torch.no_grad(), transformable():
        values = plan.network.run([node.name for node in wanted], inputs=inputs)
    return {node: values[node.name] for node in wanted}


class _Sweep:
    """The backward pass: stacks that wait at nodes, and one operation after the other."""

    def __init__(self, plan: Plan, counting: Counting, values: dict[fx.Node, Any], visit: Visit | None) -> None:
        self.plan, self.counting, self.values, self.visit = plan, counting, values, visit
        self.stacks: dict[Any, Tensor] = {}
        self.branches = branch_arguments(plan.network)

    def arrived(self, source: fx.Node) -> Iterator[Cotangents]:
        if source in self.stacks:
            yield Cotangents(source.name, self.stacks.pop(source))

    def through(self, node: fx.Node) -> None:
        """Pull what arrived at a node back to the arguments that it carries."""
        if operation(node) == GETITEM:
            if node in self.stacks:
                self._add((node.args[0], node.args[1]), self.stacks.pop(node))
            return
        several = isinstance(self.values[node], list | tuple)
        keys = [(node, index) for index in range(len(self.values[node]))] if several else [node]
        arrived = {index: self.stacks.pop(key) for index, key in enumerate(keys) if key in self.stacks}
        if arrived:
            self._pull(node, arrived)

    def _pull(self, node: fx.Node, arrived: dict[int, Tensor]) -> None:
        slots = self.plan.fates[node].slots
        arguments = fx.node.map_arg(node.args, self.values.__getitem__)
        keywords = fx.node.map_arg(node.kwargs, self.values.__getitem__)
        step = Step(node, arguments, keywords, self.values[node], {})
        if self.visit is not None and 0 in arrived:
            self.visit(step, arrived[0])
        leaves = [at_slot(arguments, slot).detach().requires_grad_() for slot in slots]
        length = max(len(stack) for stack in arrived.values())
        try:
            with torch.enable_grad():
                result = differentiable(step, slots)(*leaves)
                outputs = list(result) if isinstance(result, list | tuple) else [result]
            gradients = torch.autograd.grad(
                [outputs[index] for index in arrived],
                leaves,
                [padded(stack, length) for stack in arrived.values()],
                is_grads_batched=True,
                allow_unused=True,
            )
        except (RuntimeError, NotImplementedError) as error:
            raise SkiplensError(f"The gradient cannot be followed through {where(node)}: {error}") from error
        for slot, gradient in zip(slots, gradients, strict=True):
            if gradient is not None:
                self._leave(node, slot[0], at_slot(node.args, slot), gradient)

    def _leave(self, node: fx.Node, position: int, source: fx.Node, gradient: Tensor) -> None:
        """Hand a stack to the node that made an argument, through the branch where the argument is one."""
        block, positions = self.branches.get(node.name, (0, ()))
        self._add(source, self.counting.enter(gradient, block) if position in positions else gradient)

    def _add(self, key: Any, stack: Tensor) -> None:
        self.stacks[key] = summed(stack, self.stacks[key]) if key in self.stacks else stack
