"""The gradient as a stack of coefficients: the polynomial in t carried backwards through the graph."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from skiplens.base.errors import SkiplensError
from skiplens.graph.functional import transformable
from skiplens.graph.network import ResidualNetwork
from skiplens.graph.operations import operation
from skiplens.paths.forward import Counting, PathOrders, differentiable, expand_activations
from skiplens.paths.plan import GETITEM, StackPlan, activation_plan, branch_arguments, tangent_plan, where
from skiplens.paths.rule_table import Normalising, RunningBatchNorm, rule_of
from skiplens.paths.rules import Affine
from skiplens.paths.step import Fate, Slot, Step, at_slot, padded, slots_at, summed, with_slots


@dataclass(frozen=True, eq=False)
class Cotangents:
    """What arrives at a source of the signal or at a parameter."""

    name: str
    stack: Tensor


Visit = Callable[[Step, Tensor], None]


def pull_back(
    plan: StackPlan, counting: Counting, cotangent: Tensor, inputs: Any = None, visit: Visit | None = None
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


def _values(plan: StackPlan, inputs: Any) -> dict[fx.Node, Any]:
    """The plain values of everything that the backward pass reads."""
    read = {source for node in plan.needed for source in node.all_input_nodes}
    wanted = sorted(read | plan.needed)
    with torch.no_grad(), transformable():
        values = plan.network.run([node.name for node in wanted], inputs=inputs)
    return {node: values[node.name] for node in wanted}


class _Sweep:
    """The backward pass: stacks that wait at nodes, and one operation after the other."""

    def __init__(self, plan: StackPlan, counting: Counting, values: dict[fx.Node, Any], visit: Visit | None) -> None:
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


_LINEAR_IN_WEIGHTS = (Affine, Normalising, RunningBatchNorm)
"""Rules under which an operation is linear in its weights once its operating point is frozen."""


def weight_paths(
    network: ResidualNetwork, parameters: Iterable[str], cotangent: Tensor, counting: Counting | None = None
) -> Iterator[Cotangents]:
    """The gradient of each parameter, entry r of its stack from all whole paths through exactly r branches.

    Each stack adds up to the gradient that autograd has. Parameters that no operation reads itself, or that only read
    what has no frozen form, are left out; `name` is the full name of a parameter.

    Args:
        network: The network.
        parameters: Full names of the parameters.
        cotangent: Gradient of a loss by the output.
        counting: What the entries of the stacks count instead of branches.
    """
    counting = counting or PathOrders()
    readers = _Readers(network, set(parameters), counting)
    found: dict[str, Tensor] = {}

    def visit(step: Step, arrived: Tensor) -> None:
        for name, stack in readers.gradients(step, arrived):
            found[name] = summed(found[name], stack) if name in found else stack

    plan = tangent_plan(network, network.node(network.output), readers.names)
    for one in pull_back(plan, counting, cotangent, visit=visit):
        name = network.exported.parameters.get(one.name)
        if name is not None and name in found:
            yield Cotangents(name, found.pop(name))


class _Readers:
    """The operations that read parameters, with the stacks of the signals that they read beside them."""

    def __init__(self, network: ResidualNetwork, wanted: set[str], counting: Counting) -> None:
        self.counting = counting
        self.parameters = {n: network.exported.parameters[n.name] for n in _placeholders(network, wanted)}
        reading = [node for node in network.graph.nodes if self._readable(node)]
        read = {source for node in reading for source in node.all_input_nodes if source not in self.parameters}
        output = network.node(network.output)
        plan = activation_plan(network, output, sorted(read))
        self.fates: Mapping[fx.Node, Fate] = plan.fates
        self.reading = {node for node in reading if plan.fates[node].status == "carried"}
        self.names = {name for node, name in self.parameters.items() if node.users and self.reading >= set(node.users)}
        self.stacks = expand_activations(plan, counting)
        self.branches = branch_arguments(network)

    def _readable(self, node: fx.Node) -> bool:
        reads = not self.parameters.keys().isdisjoint(node.all_input_nodes)
        return reads and isinstance(rule_of(node), _LINEAR_IN_WEIGHTS)

    def gradients(self, step: Step, arrived: Tensor) -> Iterator[tuple[str, Tensor]]:
        """The convolved stacks of the parameters that an operation reads."""
        if step.node not in self.reading:
            return
        slots = dict(self._slots(step.node))
        leaves = {slot: at_slot(step.arguments, slot).detach().requires_grad_() for slot in slots}
        moved = Step(step.node, with_slots(step.arguments, leaves), step.keywords, step.value, self._signals(step.node))
        rule = rule_of(step.node)
        assert rule is not None, "a reader has a rule"
        with torch.enable_grad(), transformable():
            made = rule.apply(moved, with_constants=True)
        assert isinstance(made, Tensor), "an operation with weights makes one tensor"
        entries = list(self._entries(made, arrived, list(leaves.values())))
        for index, name in enumerate(slots.values()):
            yield name, torch.stack([gradients[index] for gradients in entries])

    def _entries(self, made: Tensor, arrived: Tensor, leaves: list[Tensor]) -> Iterator[list[Tensor]]:
        """For each entry what the arrived gradient says to the weights through the signal."""
        for entry in range(len(made) + len(arrived) - 1):
            pairs = self.counting.products(entry, len(made), len(arrived))
            if pairs:
                yield _pulled(made, arrived, leaves, pairs)

    def _signals(self, node: fx.Node) -> dict[Slot, Tensor]:
        """The stacks of the arguments that carry one, those of a branch as they come out of it."""
        block, positions = self.branches.get(node.name, (0, ()))
        found = {slot: self.stacks[at_slot(node.args, slot)] for slot in self.fates[node].slots}
        return {slot: self.counting.enter(s, block) if slot[0] in positions else s for slot, s in found.items()}

    def _slots(self, node: fx.Node) -> Iterator[tuple[Slot, str]]:
        for position in range(len(node.args)):
            for slot in slots_at(node.args, position):
                argument = at_slot(node.args, slot)
                if isinstance(argument, fx.Node) and self.parameters.get(argument) in self.names:
                    yield slot, self.parameters[argument]


def _placeholders(network: ResidualNetwork, wanted: set[str]) -> list[fx.Node]:
    return [node for node in network.graph.nodes if network.exported.parameters.get(node.name) in wanted]


def _pulled(made: Tensor, arrived: Tensor, leaves: list[Tensor], pairs: list[tuple[int, int]]) -> list[Tensor]:
    """The gradient by the leaves of Σ ⟨made_i, arrived_j⟩ over pairs (i, j)."""
    signals, partners = ([made[i] for i, _ in pairs], [arrived[j] for _, j in pairs])
    gradients = torch.autograd.grad(signals, leaves, partners, retain_graph=True, allow_unused=True)
    return [torch.zeros_like(leaf) if g is None else g for leaf, g in zip(leaves, gradients, strict=True)]
