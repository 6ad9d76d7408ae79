"""The polynomial in t carried backwards: gradients, of inputs and of weights, as stacks of coefficients."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, fx

from skiplens.base.errors import SkiplensError
from skiplens.graph.functional import transformable
from skiplens.graph.network import ResidualNetwork
from skiplens.graph.operations import operation
from skiplens.paths.forward import Counting, PathOrders, differentiable, entered, expand_activations
from skiplens.paths.plan import GETITEM, StackPlan, activation_plan, branch_arguments, tangent_plan, where
from skiplens.paths.rule_table import Normalising, RunningBatchNorm, rule_of
from skiplens.paths.rules import Affine, all_slots
from skiplens.paths.step import Slot, Step, at_slot, padded, summed, with_slots

Visit = Callable[[Step, Tensor], None]

# Rules under which an operation is linear in its weights once its operating point is frozen.
_LINEAR_IN_WEIGHTS = (Affine, Normalising, RunningBatchNorm)


def pull_back(
    plan: StackPlan, counting: Counting, cotangent: Tensor, visit: Visit | None = None
) -> Iterator[tuple[str, Tensor]]:
    """The gradient with respect to each source of the plan, by its name, from that with respect to the output.

    The entries of the stacks count branches from the output backwards. Each stack is yielded as soon as it is complete
    and is let go then: those of parameters, where they are among the sources of a `tangent_plan`, may be large.
    `visit` is called at each operation with its plain values and the stack that arrived at its (first) result.
    """
    sweep = _Sweep(plan, counting, visit)
    sweep.stacks[plan.output] = cotangent[None]
    steps = sorted(plan.needed - set(plan.sources), reverse=True)
    waiting = {source: {node for node in steps if source in node.all_input_nodes} for source in plan.sources}
    for node in steps:
        with transformable():
            sweep.through(node)
        for source in [source for source, readers in waiting.items() if node in readers]:
            waiting[source].discard(node)
            if not waiting[source] and source in sweep.stacks:
                yield source.name, sweep.stacks.pop(source)


class _Sweep:
    """The backward pass: stacks that wait at nodes, and one operation after the other."""

    def __init__(self, plan: StackPlan, counting: Counting, visit: Visit | None) -> None:
        self.plan, self.counting, self.visit = plan, counting, visit
        self.stacks: dict[Any, Tensor] = {}
        self.branches = branch_arguments(plan.network)
        read = sorted(plan.needed.union(*(node.all_input_nodes for node in plan.needed)))
        with torch.no_grad(), transformable():
            values = plan.network.run([node.name for node in read])
        self.values = {node: values[node.name] for node in read}

    def through(self, node: fx.Node) -> None:
        """Pull what arrived at a node back to the arguments that it carries."""
        if operation(node) == GETITEM:
            if node in self.stacks:
                self._add((node.args[0], node.args[1]), self.stacks.pop(node))
            return
        several = isinstance(self.values[node], list | tuple)
        keys = [(node, index) for index in range(len(self.values[node]))] if several else [node]
        arrived = {index: self.stacks.pop(key) for index, key in enumerate(keys) if key in self.stacks}
        if not arrived:
            return
        pulled = self._pulled(node, self.plan.fates[node].slots, arrived)
        for slot, gradient in entered(pulled, self.counting, *self.branches.get(node.name, (0, ()))).items():
            self._add(at_slot(node.args, slot), gradient)

    def _pulled(self, node: fx.Node, slots: tuple[Slot, ...], arrived: dict[int, Tensor]) -> dict[Slot, Tensor]:
        """The gradients with respect to the arguments at `slots`; those that nothing depends on are left out."""
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
            reached, weights = [outputs[i] for i in arrived], [padded(stack, length) for stack in arrived.values()]
            gradients = torch.autograd.grad(reached, leaves, weights, is_grads_batched=True, allow_unused=True)
        except (RuntimeError, NotImplementedError) as error:
            raise SkiplensError(f"The gradient cannot be followed through {where(node)}: {error}") from error
        return {slot: gradient for slot, gradient in zip(slots, gradients, strict=True) if gradient is not None}

    def _add(self, key: Any, stack: Tensor) -> None:
        self.stacks[key] = summed(stack, self.stacks[key]) if key in self.stacks else stack


def weight_paths(
    network: ResidualNetwork, parameters: Iterable[str], cotangent: Tensor, counting: Counting | None = None
) -> Iterator[tuple[str, Tensor]]:
    """The gradient of each parameter, entry r of its stack from all whole paths through exactly r branches.

    Each stack adds up to the gradient that autograd has, and comes with the full name of its parameter. Parameters that
    no operation reads itself, or that only read what has no frozen form, are left out. `cotangent` is the gradient of a
    loss with respect to the output; the entries may count something else than branches.
    """
    counting = counting or PathOrders()
    readers = _Readers(network, set(parameters), counting)
    found: dict[str, Tensor] = {}

    def visit(step: Step, arrived: Tensor) -> None:
        for name, stack in readers.gradients(step, arrived):
            found[name] = summed(found[name], stack) if name in found else stack

    plan = tangent_plan(network, network.node(network.output), readers.names)
    for node, _ in pull_back(plan, counting, cotangent, visit):
        name = network.exported.parameters.get(node)
        if name in found:
            yield name, found.pop(name)


class _Readers:
    """The operations that read parameters, with the stacks of the signals that they read beside them."""

    def __init__(self, network: ResidualNetwork, wanted: set[str], counting: Counting) -> None:
        self.counting = counting
        named = ((node, network.exported.parameters.get(node.name)) for node in network.graph.nodes)
        self.parameters: Mapping[fx.Node, str] = {node: name for node, name in named if name in wanted}
        readers = [node for node in network.graph.nodes if self.parameters.keys() & set(node.all_input_nodes)]
        reading = [node for node in readers if isinstance(rule_of(node), _LINEAR_IN_WEIGHTS)]
        read = {source for node in reading for source in node.all_input_nodes if source not in self.parameters}
        plan = activation_plan(network, network.node(network.output), sorted(read))
        self.fates = plan.fates
        self.reading = {node for node in reading if plan.fates[node].status == "carried"}
        self.names = {name for node, name in self.parameters.items() if node.users and self.reading >= set(node.users)}
        self.stacks = expand_activations(plan, counting)
        self.branches = branch_arguments(network)

    def gradients(self, step: Step, arrived: Tensor) -> Iterator[tuple[str, Tensor]]:
        """The convolved stacks of the parameters that an operation reads."""
        node = step.node
        if node not in self.reading:
            return
        taken = {slot: at_slot(node.args, slot) for slot in all_slots(node, range(len(node.args)))}
        named = {slot: self.parameters.get(value) for slot, value in taken.items() if isinstance(value, fx.Node)}
        slots = {slot: name for slot, name in named.items() if name is not None and name in self.names}
        leaves = {slot: at_slot(step.arguments, slot).detach().requires_grad_() for slot in slots}
        signals = {slot: self.stacks[at_slot(node.args, slot)] for slot in self.fates[node].slots}
        signals = entered(signals, self.counting, *self.branches.get(node.name, (0, ())))
        rule = rule_of(node)
        assert rule is not None, "a reader has a rule"
        with torch.enable_grad(), transformable():
            moved = Step(node, with_slots(step.arguments, leaves), step.keywords, step.value, signals)
            made = rule.apply(moved, with_constants=True)
        assert isinstance(made, Tensor), "an operation with weights makes one tensor"
        entries = list(self._entries(made, arrived, list(leaves.values())))
        for index, name in enumerate(slots.values()):
            yield name, torch.stack([gradients[index] for gradients in entries])

    def _entries(self, made: Tensor, arrived: Tensor, leaves: list[Tensor]) -> Iterator[list[Tensor]]:
        """For each entry the gradient with respect to the leaves of Σ ⟨made_i, arrived_j⟩ over its pairs (i, j)."""
        for entry in range(len(made) + len(arrived) - 1):
            pairs = self.counting.products(entry, len(made), len(arrived))
            if pairs:
                signals, partners = ([made[i] for i, _ in pairs], [arrived[j] for _, j in pairs])
                found = torch.autograd.grad(signals, leaves, partners, retain_graph=True, allow_unused=True)
                yield [torch.zeros_like(leaf) if g is None else g for leaf, g in zip(leaves, found, strict=True)]
