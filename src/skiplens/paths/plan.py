"""Which nodes carry a stack of coefficients, which are constants or gates, and whose stacks are needed at all."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from operator import or_

from torch import fx

from skiplens.base.errors import InvalidInputError, NoFrozenFormError
from skiplens.graph.export import module_calls, module_of
from skiplens.graph.functional import STILL
from skiplens.graph.network import ResidualNetwork, is_floating, node_bytes, sources_of
from skiplens.graph.network import plan as operations_before
from skiplens.graph.operations import NOISE, drops_at_random, operation, read_by
from skiplens.paths.rule_table import rule_of
from skiplens.paths.rules import CONSTANT, Affine, Fate, Fates, all_slots, status_at
from skiplens.paths.step import Slot, at_slot

GETITEM = "_operator.getitem"
SPLITTING = {"aten.split", "aten.split_with_sizes", "aten.chunk", "aten.unbind", "aten.tensor_split"}
Branches = dict[str, tuple[int, tuple[int, ...]]]
RANDOM = NOISE | {"aten.rand", "aten.rand_like", "aten.bernoulli", "aten.randint"}


@dataclass(frozen=True, eq=False)
class StackPlan:
    """What becomes of each node on the way from the sources of the signal to `output`."""

    network: ResidualNetwork
    output: fx.Node
    sources: tuple[fx.Node, ...]  # where the signal starts: floating inputs, and embeddings of integer inputs
    fates: Fates
    others: tuple[fx.Node, ...] = ()  # nodes beside the output whose stacks are wanted too

    @cached_property
    def needed(self) -> frozenset[fx.Node]:
        """The nodes whose stacks reach the output's, or that of another wanted node."""
        found, pending = set[fx.Node](), [self.output, *self.others]
        while pending:
            node = pending.pop()
            if node not in found and self.fates[node].status == "carried":
                found.add(node)
                pending += [at_slot(node.args, slot) for slot in self.fates[node].slots]
        return frozenset(found)

    @cached_property
    def products(self) -> tuple[fx.Node, ...]:
        """The operations that multiply two sums over paths, in execution order."""
        rules = ((node, rule_of(node)) for node in sorted(self.needed) if self.fates[node].passes)
        factors = ((node, rule.factors) for node, rule in rules if isinstance(rule, Affine))
        return tuple(n for n, places in factors if sum(slot[0] in places for slot in self.fates[n].slots) == 2)

    @cached_property
    def held(self) -> frozenset[int]:
        """The blocks that reach the output in gates alone: no path leads through them, though the output is theirs."""
        above = {node.name for node in operations_before([self.output], ())}
        reaching = {block.index for block in self.network.blocks if block.join in above}
        return frozenset(index for index in reaching if not self.fates[self.output].passes >> index & 1)

    @cached_property
    def towers(self) -> tuple[frozenset[int], ...]:
        """The blocks of each tower where the output is the product of several; empty for any other network."""
        found, seen = list[int](), 0
        for node in self.products:
            passed = [self.fates[at_slot(node.args, slot)].passes & ~seen for slot in self.fates[node].slots]
            found += [own for own in passed if own]
            seen |= passed[0] | passed[1]
        whole = seen == self.fates[self.output].passes and len(found) == len(self.products) + 1
        blocks = range(len(self.network.blocks))
        return tuple(frozenset(i for i in blocks if own >> i & 1) for own in found) if whole else ()

    def is_sole_reader(self, node: fx.Node) -> bool:
        """Whether the stack of an operation's first argument was made for this operation alone."""
        source, wanted = node.args[0] if node.args else None, {self.output, *self.others, *self.sources}
        while isinstance(source, fx.Node) and len(source.users) == 1 and source not in wanted:
            if operation(source) != GETITEM:
                rule = rule_of(source)
                return rule is not None and rule.is_fresh
            source = source.args[0]
        return False


def frozen_plan(network: ResidualNetwork, output: fx.Node) -> StackPlan:
    """The plan that decomposes the output itself, each operation frozen at its operating point.

    Raises:
        NoFrozenFormError: What an operation without a frozen form computes is added to the signal.
        InvalidInputError: The network draws at random.
    """
    plan = activation_plan(network, output, ())
    if plan.fates[output].status != "carried":
        blocker = network.node(plan.fates[output].blocker or "")
        raise NoFrozenFormError(
            f"The operation {where(blocker)} has no frozen form (it is not a frozen factor times its argument), and "
            "what it computes is added to the signal. Ask for of='jacobian', which follows the derivative through any "
            "operation, or look at a model without it (at logits instead of probabilities, say)."
        )
    return plan


def activation_plan(network: ResidualNetwork, output: fx.Node, wanted: Iterable[fx.Node]) -> StackPlan:
    """The plan that decomposes those of the `wanted` nodes, all before the output, that are sums over paths."""
    _require_repeatable(output)
    sources = sources_of(network, output)
    fates = _fates(network, sources, partial(_frozen_fate, branches=branch_arguments(network)))
    return StackPlan(network, output, sources, fates, tuple(node for node in wanted if fates[node].status == "carried"))


def tangent_plan(network: ResidualNetwork, output: fx.Node, parameters: Iterable[str] = ()) -> StackPlan:
    """The plan that carries derivatives of `output`: every floating argument that moves counts.

    Parameters, by their full names, may be sources beside the inputs.
    """
    _require_repeatable(output)
    wanted = set(parameters)
    placeholders = [n for n in operations_before([output], ()) if network.exported.parameters.get(n.name) in wanted]
    sources = (*sources_of(network, output), *placeholders)
    fates = _fates(network, sources, _tangent_fate)
    if fates[output].status != "carried":
        raise InvalidInputError("The output has no derivative with respect to the inputs: it does not depend on them.")
    return StackPlan(network, output, sources, fates)


def _require_repeatable(output: fx.Node) -> None:
    """Refuse a network that draws at random on the way to its output."""
    for node in operations_before([output], ()):
        if drops_at_random(node) or operation(node) in RANDOM:
            raise InvalidInputError(
                f"The model draws at random ({where(node)}), so that its output has no one path spectrum. {STILL}"
            )


def where(node: fx.Node) -> str:
    """An operation in words: what it is and which module runs it."""
    calls = module_calls(node)
    module = module_of(calls[-1]) if calls else ""
    return f"{operation(node)} in {module!r}" if module else f"{operation(node)}, node {node.name!r}"


def _fates(
    network: ResidualNetwork, sources: Iterable[fx.Node], fate_of: Callable[[fx.Node, Fates], Fate]
) -> dict[fx.Node, Fate]:
    fates: dict[fx.Node, Fate] = {source: Fate("carried") for source in sources}
    for node in network.graph.nodes:
        if node not in fates:
            moves = any(fates[source].status != "constant" for source in read_by(node))
            fates[node] = fate_of(node, fates) if moves else CONSTANT
    return fates


def _frozen_fate(node: fx.Node, fates: Fates, branches: Branches) -> Fate:
    moving = [fates[source] for source in read_by(node) if fates[source].status != "constant"]
    rule = rule_of(node) if is_floating(node, or_complex=True) else None
    curved = max(fate.curved for fate in moving) + (rule is not None and rule.curves)
    if operation(node) == GETITEM:
        # An entry of a tuple is carried if it is a piece of what was split, or the first (the others are statistics).
        whole, index = node.args
        assert isinstance(whole, fx.Node)
        is_piece = operation(whole) in SPLITTING or index == 0
        slots: tuple[Slot, ...] | None = ((0,),) if is_piece and fates[whole].status == "carried" else None
    else:
        slots = None if rule is None else rule.carried_slots(node, fates)
    if slots:
        passes = reduce(or_, (fates[at_slot(node.args, slot)].passes for slot in slots))
        own = 1 << branches[node.name][0] if node.name in branches else 0
        return Fate("carried", slots, curved, passes | own)
    blocker = next((fate.blocker for fate in moving if fate.blocker is not None), node.name)
    return Fate("gate", (), curved + 1, blocker=blocker)


def _tangent_fate(node: fx.Node, fates: Fates) -> Fate:
    if not is_floating(node, or_complex=True) or operation(node) == "aten.detach":
        return CONSTANT
    every = all_slots(node, range(len(node.args)))
    return Fate("carried", tuple(slot for slot in every if status_at(node, slot, fates) == "carried"))


def highest_orders(plan: StackPlan) -> dict[fx.Node, int]:
    """The most branches that a path to each carried node can pass."""
    branches, products = branch_arguments(plan.network), set(plan.products)
    orders: dict[fx.Node, int] = {}
    for node in sorted(plan.needed):
        _, positions = branches.get(node.name, (0, ()))
        arrived = (orders[at_slot(node.args, slot)] + (slot[0] in positions) for slot in plan.fates[node].slots)
        orders[node] = sum(arrived) if node in products else max(arrived, default=0)
    return orders


def peak_bytes(plan: StackPlan, most: int | None = None) -> int:
    """Bytes of all values and stacks that live at once, at the worst moment of a forward pass."""
    orders = highest_orders(plan)
    steps = [node for node in plan.network.graph.nodes if node in plan.needed]
    last_reader = {source: node for node in steps for source in node.all_input_nodes}
    live, peak = dict[fx.Node, int](), 0
    for node in steps:
        kept = orders[node] if most is None else min(orders[node], most)
        live[node] = node_bytes(node) * (kept + 2)
        # An operation's arguments, brought to one length, live beside its result.
        peak = max(peak, sum(live.values()) + 2 * live[node])
        for source in node.all_input_nodes:
            if last_reader.get(source) is node:
                live.pop(source, None)
    return peak


def all_bytes(plan: StackPlan) -> int:
    """Bytes of all values that a backward pass keeps."""
    return sum(node_bytes(node) for node in plan.needed)


def branch_arguments(network: ResidualNetwork) -> Branches:
    """For each addition that joins: the number of its block and the positions of the branch's arguments."""
    return {join.node: (block.index, join.branch_arguments) for block in network.blocks for join in block.additions}
