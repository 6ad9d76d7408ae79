"""The gradient of weights by the length of whole paths: what comes before the weight and what comes after it.

Coefficient r of the gradient of a block's weight W is Σ_{i+j+1=r} u_i ⊗ z_j, with the coefficients u_i of the signal
that W reads and z_j of the gradient that arrives behind the block (Littwin & Wolf 2016, in the form of our notes). The
gradient that arrives inside the branch counts the block's own branch already, so indices simply add up here.
"""

from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import Tensor, fx

from skiplens.derivatives.functional import transformable
from skiplens.derivatives.polynomial.backward import Cotangents, pull_back
from skiplens.derivatives.polynomial.interpreter import expand_activations
from skiplens.derivatives.polynomial.joins import Counting, PathOrders, branch_arguments
from skiplens.derivatives.polynomial.plan import activation_plan, tangent_plan
from skiplens.derivatives.polynomial.rules import Fate, rule_of
from skiplens.derivatives.polynomial.rules.affine import Affine
from skiplens.derivatives.polynomial.rules.normalisation import Normalising, RunningBatchNorm
from skiplens.derivatives.polynomial.stacks import summed
from skiplens.derivatives.polynomial.step import Slot, Step, at_slot, slots_at, with_slots
from skiplens.residual import ResidualNetwork

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
