"""Who depends on whom in an exported graph: ancestors, descendants, dominators and the parameters that each node reads.

A set of nodes is an integer whose bit i stands for node number i: with a few thousand nodes, union and intersection are
single operations and all ancestor sets together take a few megabytes.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, reduce

import torch
from torch import fx

from skiplens.graph.export import ExportedGraph, module_calls, module_of
from skiplens.graph.operations import MATRIX_PRODUCTS, NORMALISING, REARRANGING, REPEATING, SIDES, operation, read_by

Nodes = int  # a set of nodes as bits
NOWHERE = -1  # number of the imagined node above all inputs


def members(nodes: Nodes) -> Iterator[int]:
    """Numbers of the nodes in a set, ascending: in execution order."""
    while nodes:
        lowest = nodes & -nodes
        yield lowest.bit_length() - 1
        nodes ^= lowest


def union(sets: Iterable[Nodes]) -> Nodes:
    """All nodes of all sets."""
    return reduce(lambda left, right: left | right, sets, 0)


def known_shape(value: torch.Tensor) -> tuple[int, ...]:
    """Shape of a traced tensor; -1 where it depends on the data."""
    return tuple(size if isinstance(size, int) else -1 for size in value.shape)


def _meeting(dominators: Sequence[int], numbers: Iterable[int]) -> int:
    """Where the chains of dominators above these nodes meet; a dominator always has the smaller number."""

    def meet(left: int, right: int) -> int:
        while left != right:
            left, right = (dominators[left], right) if left > right else (left, dominators[right])
        return left

    return reduce(meet, numbers)


class DataFlow:
    """The activations of an exported graph (what depends on an input or a learned query) and how they depend."""

    def __init__(self, exported: ExportedGraph) -> None:
        self.nodes: tuple[fx.Node, ...] = tuple(exported.graph.nodes)
        self.number = {node: number for number, node in enumerate(self.nodes)}
        self._given = frozenset(exported.inputs) | learned_queries(exported)
        self._outputs = frozenset(exported.outputs.values())
        self._parameter_of = exported.parameters
        read = (node for node in self.nodes if node.name in exported.parameters)
        self.parameter_sizes = {exported.parameters[node.name]: node.meta["val"].numel() for node in read}

    @cached_property
    def calls(self) -> tuple[tuple[str, ...], ...]:
        """For each node the calls of modules that were running there."""
        return tuple(map(module_calls, self.nodes))

    @cached_property
    def running(self) -> tuple[tuple[str, ...], ...]:
        """For each node the modules running there, outermost first, without the model itself."""
        return tuple(tuple(module_of(call) for call in calls if call) for calls in self.calls)

    @cached_property
    def sources(self) -> tuple[tuple[int, ...], ...]:
        """For each node the activations that it reads."""
        return tuple(tuple(self.number[n] for n in read_by(node) if self.above[self.number[n]]) for node in self.nodes)

    @cached_property
    def above(self) -> tuple[Nodes, ...]:
        """For each activation the activations that it depends on, itself included; nothing for a constant."""
        above: list[Nodes] = []
        for number, node in enumerate(self.nodes):
            found = union(above[self.number[source]] for source in read_by(node))
            above.append(found | (1 << number) if found or node.name in self._given else 0)
        return tuple(above)

    @cached_property
    def below(self) -> tuple[Nodes, ...]:
        """For each activation the activations that depend on it, itself included."""
        below = [0] * len(self.nodes)
        for number in reversed(range(len(self.nodes))):
            if self.above[number]:
                below[number] |= 1 << number
                for source in self.sources[number]:
                    below[source] |= below[number]
        return tuple(below)

    @cached_property
    def parameters(self) -> tuple[frozenset[str], ...]:
        """For each node the parameters it reads, also those that reach it through constants (a normalised weight)."""
        reads: list[frozenset[str]] = []
        for node in self.nodes:
            own = {self._parameter_of[node.name]} if node.name in self._parameter_of else set()
            constants = (self.number[n] for n in node.all_input_nodes if not self.above[self.number[n]])
            reads.append(frozenset(own.union(*(reads[number] for number in constants))))
        return tuple(reads)

    @cached_property
    def live(self) -> Nodes:
        """The activations that an output depends on; the others check something or update running statistics."""
        return union(self.above[number] for number, node in enumerate(self.nodes) if node.name in self._outputs)

    @cached_property
    def dominator(self) -> tuple[int, ...]:
        """For each activation the nearest other one through which every way from the inputs leads, or `NOWHERE`."""
        dominators: list[int] = []
        for sources in self.sources:
            dominators.append(_meeting(dominators, sources) if sources else NOWHERE)
        return tuple(dominators)

    def readers(self, number: int) -> Iterator[int]:
        """The operations that read a value on its way to an output, and the output itself."""
        for reader in map(self.number.__getitem__, self.nodes[number].users):
            returned = self.nodes[reader].op == "output" and self.nodes[number].name in self._outputs
            if returned or self.live >> reader & 1:
                yield reader

    def between(self, start: int, ends: Iterable[int]) -> Nodes:
        """Every activation on a way from `start` to one of `ends`, the end included and the start not."""
        return self.below[start] & union(self.above[end] for end in ends) & ~(1 << start)

    def parameters_in(self, nodes: Nodes) -> frozenset[str]:
        """The parameters that the operations of a set read."""
        return frozenset().union(*(self.parameters[number] for number in members(nodes)))

    def names(self, nodes: Nodes) -> tuple[str, ...]:
        """Names of the nodes of a set in execution order."""
        return tuple(self.nodes[number].name for number in members(nodes))

    def is_floating(self, number: int) -> bool:
        """Whether a node is an activation of real or complex numbers with at least one axis."""
        value = self.nodes[number].meta.get("val")
        if not self.above[number] or not isinstance(value, torch.Tensor):
            return False
        return value.ndim > 0 and (value.is_floating_point() or value.is_complex())

    def shape(self, number: int) -> tuple[int, ...]:
        """Shape of a node's tensor, the first of several; -1 where it depends on the data."""
        value = self.nodes[number].meta["val"]
        return known_shape(value[0] if isinstance(value, tuple | list) else value)  # an LSTM returns its states too

    def operation(self, number: int) -> str:
        """The operation of a node without its overload."""
        return operation(self.nodes[number])

    def depth(self, nodes: Nodes) -> int:
        """Weight matrices (or convolutions) in series on the longest way through a set of nodes."""
        return self.longest(nodes, lambda n: self.operation(n) in MATRIX_PRODUCTS and bool(self.parameters[n]))

    def longest(self, nodes: Nodes, counts: Callable[[int], bool]) -> int:
        """The most nodes that `counts` accepts on one way through a set of nodes."""
        longest: dict[int, int] = {}
        for number in members(nodes):
            before = max((longest.get(source, 0) for source in self.sources[number]), default=0)
            longest[number] = before + counts(number)
        return max(longest.values(), default=0)


def learned_queries(exported: ExportedGraph) -> frozenset[str]:
    """Nodes that hold learned queries or latents: made of parameters alone, but activations in all they do.

    Weights or activations multiply them, and what attention makes of them and the inputs is added to them again. A
    position that is only added is none: nothing multiplies it alone. Where queries attend to each other first, it is
    their start.
    """
    nodes = {node: number for number, node in enumerate(exported.graph.nodes)}
    above, moving, products = dict[fx.Node, Nodes](), set[fx.Node](), Nodes()
    for node, number in nodes.items():
        above[node] = union(above[source] for source in node.all_input_nodes) | 1 << number
        if node.name in exported.inputs or not moving.isdisjoint(node.all_input_nodes):
            moving.add(node)
        if operation(node) in MATRIX_PRODUCTS:  # of parameters, or of an activation and them
            products |= union(1 << nodes[s] for s in {node, *node.all_input_nodes} - moving)
    listed, found = list(nodes), set[str]()
    for node in moving:
        summands = [source for source in node.all_input_nodes if operation(node) in SIDES]
        if len(summands) != 2 or len(still := [source for source in summands if source not in moving]) != 1:
            continue
        other = above[next(source for source in summands if source in moving)]
        query: fx.Node | None = still[0]
        while query is not None:
            if any(above[listed[place]] >> nodes[query] & 1 for place in members(other & products)):
                found.add(_first_query(query, lambda left, right: bool(above[right] >> nodes[left] & 1)).name)
                break
            plain = operation(query) in REARRANGING | REPEATING
            query = query.all_input_nodes[0] if plain else None
    return frozenset(found)


def _first_query(query: fx.Node, is_above: Callable[[fx.Node, fx.Node], bool]) -> fx.Node:
    """Where the stream of a query starts: at a parameter, before the sums that add to it what was made of it."""
    node, start = query, query
    while sources := node.all_input_nodes:
        kind = operation(node)
        if kind in SIDES:
            sides = (sources, sources[::-1]) if len(sources) == 2 else ()
            first = [one for one, other in sides if is_above(one, other)]
            if not first:
                break
            node = start = first[0]
        elif kind in NORMALISING | REARRANGING | REPEATING | {"_operator.getitem"}:
            node = sources[0]
        else:
            break
    return query if node.all_input_nodes else start


def find_fork(flow: DataFlow, end: int, others: Iterable[int]) -> int | None:
    """The floating activation from which both `end` and `others` are computed and where the ways to them part.

    It is `end` itself when the others are computed from it. Else it is the activation where the part of the graph that
    only `end` needs takes its input; of several such activations the one that the others are computed from, or the
    nearest one that all ways to them lead through. None when the two have no floating activation in common.
    """
    shared = flow.above[end] & union(flow.above[other] for other in others)
    if shared >> end & 1:
        return end
    alone = flow.above[end] & ~shared
    doors = {source for number in members(alone) for source in flow.sources[number] if shared >> source & 1}
    candidates = {_floating_at_or_above(flow, door) for door in doors} - {NOWHERE}
    if not candidates:
        return None
    first = min(candidates)
    if all(flow.above[candidate] >> first & 1 for candidate in candidates):
        return first
    meeting = _floating_at_or_above(flow, _meeting(flow.dominator, candidates))
    return meeting if meeting != NOWHERE else max(candidates)


def _floating_at_or_above(flow: DataFlow, number: int) -> int:
    while number != NOWHERE and not flow.is_floating(number):
        number = flow.dominator[number]
    return number
