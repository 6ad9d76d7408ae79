"""Which additions join a branch with a shortcut.

A *residual join* is an addition of floating activations that come from the inputs and have a floating activation in
common, where one side reads parameters after the fork that the other does not. Rotary embeddings and the tanh form of
GELU add without parameters of their own; word and position embeddings have no floating activation in common: no joins.
Beside an identity, a branch that mixes positions without parameters is one too (Fourier mixing, attention); and learned
queries are activations. No joins are sums whose shortcut is a branch itself (experts, steps of a scan), those that mark
a stream which goes on without them (positions that are added again), those made to be compared or to weigh something
else (errors, scores, gates of attention), those that gather what a stream held at several places (the skips of WaveNet,
log-determinants of a flow), and those whose shortcut cancels (``z + (q - z)``, a straight-through estimate).

Additions that feed only each other are one sum, and one sum makes one block: ``x + f(x) + g(x)`` is a block with two
branches, whichever addition comes first. Of the terms of a sum the one with the fewest weight matrices since the fork
is the shortcut. A term may itself be a sum with an identity shortcut, ``x + (h + g(h))``: that is a block in a block.

The definition knows no intentions: two learned maps of one activation that are added are a block with a projection
shortcut, be they a ResNet's first block of a stage or a linear layer with a low-rank adapter; what multiplies Gaussian
noise is no branch. Highway and recurrent cells are blocks whose shortcut is of kind ``other``.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from torch import fx

from skiplens.graph import operations as ops
from skiplens.graph.blocks import ShortcutKind
from skiplens.graph.flow import DataFlow, Nodes, find_fork, members, union


@dataclass(frozen=True)
class Step:
    """One addition on the way from a sum to one of its terms, and the side on which the term lies."""

    addition: int
    side: int


@dataclass(frozen=True)
class Join:
    """A residual join in numbers of nodes."""

    fork: int  # the activation where shortcut and branches part
    steps: tuple[Step, ...]  # the additions that bring in a branch, in their order, with the side of the shortcut
    kind: ShortcutKind
    shortcut: Nodes
    branch: Nodes

    @property
    def number(self) -> int:
        """The addition after which shortcut and branches are one."""
        return self.steps[-1].addition

    def branch_parameters(self, flow: DataFlow) -> frozenset[str]:
        """The parameters of the branches, those by which the additions themselves multiply them included."""
        return flow.parameters_in(self.branch).union(*(fused_parameters(flow, _other(step)) for step in self.steps))

    def shortcut_parameters(self, flow: DataFlow) -> frozenset[str]:
        """The parameters of the shortcut, those by which the first addition multiplies it included."""
        return flow.parameters_in(self.shortcut) | fused_parameters(flow, self.steps[0])

    def branch_depth(self, flow: DataFlow) -> int:
        """Weight matrices in series on the longest way through a branch, one fused with its addition included."""
        ways = (flow.between(self.fork, side_nodes(flow, _other(step))) for step in self.steps)
        fused = (fused_depth(flow, _other(step)) for step in self.steps)
        return max(flow.depth(way) + own for way, own in zip(ways, fused, strict=True))


@dataclass(frozen=True)
class Term:
    """One term of a sum."""

    nodes: tuple[int, ...]  # what enters the innermost addition: one activation, or the factors of a fused product
    steps: tuple[Step, ...]  # the additions from the whole sum inwards
    scalings: tuple[int, ...]  # operations on the way that multiply the partial sum by a constant


@dataclass(frozen=True)
class _Trunk:
    """A term of a sum seen as its shortcut."""

    term: Term
    fork: int
    nodes: Nodes


def find_joins(flow: DataFlow, every: bool = False) -> list[Join]:
    """All residual joins of a graph in execution order; with `every` also sums that do not look like one."""
    joins = [join for root in sum_roots(flow) for join in _joins_of_sum(flow, root, every=every)]
    if not every:  # none that only marks a stream which goes on without it: positions, added again in each layer
        streams = {join.fork for join in joins if join.kind == "identity"}
        joins = [join for join in joins if (streams - {join.fork}).isdisjoint(_branch_ends(flow, join.steps))]
        joins = [join for join in joins if join.kind == "identity" or not any(_leaves(join, other) for other in joins)]
    return sorted(joins, key=lambda join: join.number)


def _leaves(join: Join, block: Join) -> bool:
    """Whether a join takes its input inside the branch of a block and ends outside: a skip beside the stream."""
    inside = block.kind == "identity" and block.branch >> join.fork & 1 and block.number != join.fork
    return bool(inside and join.branch >> block.number & 1)


def _branch_ends(flow: DataFlow, steps: tuple[Step, ...]) -> list[int]:
    return [number for step in steps for number in side_nodes(flow, _other(step))]


def _joins_of_sum(flow: DataFlow, root: int, outer_fork: int | None = None, every: bool = False) -> Iterator[Join]:
    """The join that a sum makes, and those that sums among its terms make."""
    terms = terms_of(flow, root)
    trunk = _choose_trunk(flow, terms)
    if trunk is None or (not every and _cancels(flow, trunk.term, terms)):
        return
    # inside a term of a larger sum, parallel branches without an identity (attention + MLP) are gathered, not joined
    kept = all(ops.factor(flow.nodes[step.addition], step.side) == 1.0 for step in trunk.term.steps)
    kind = shortcut_kind(flow, trunk.nodes) if kept else "other"
    gathers = outer_fork is not None and (kind != "identity" or trunk.fork == outer_fork)
    if not gathers:
        join = _make_join(flow, trunk, kind, every)
        if join is not None:
            yield join
    for step in trunk.term.steps:
        if inner := inner_sum(flow, _other(step)):
            yield from _joins_of_sum(flow, inner[0], trunk.fork, every)


def _cancels(flow: DataFlow, shortcut: Term, terms: list[Term]) -> bool:
    """Whether a sum takes off again what its shortcut adds."""
    return any(term.nodes == shortcut.nodes and _sign(flow, term) == -_sign(flow, shortcut) for term in terms)


def _sign(flow: DataFlow, term: Term) -> float:
    factors = (ops.factor(flow.nodes[step.addition], step.side) for step in term.steps)
    scaled = any(flow.operation(number) not in ops.COPYING for number in term.scalings)
    return math.nan if scaled else math.prod(math.nan if factor is None else factor for factor in factors)


def _choose_trunk(flow: DataFlow, terms: list[Term]) -> _Trunk | None:
    """The term that does least to the input it shares with the others: fewest matrices, parameters, operations."""
    trunks = [trunk for term in terms if (trunk := _as_trunk(flow, term, terms))]

    def effort(trunk: _Trunk) -> tuple[int, ...]:
        size = sum(flow.parameter_sizes[name] for name in _parameters_of(flow, trunk))
        fused = fused_depth(flow, trunk.term.steps[-1])
        return flow.depth(trunk.nodes) + fused, size, fused, trunk.nodes.bit_count(), trunk.term.nodes[0]

    return min(trunks, key=effort, default=None)


def _as_trunk(flow: DataFlow, term: Term, terms: list[Term]) -> _Trunk | None:
    if len(term.nodes) != 1 or flow.shape(term.nodes[0]) != flow.shape(term.steps[-1].addition):
        return None
    end = term.nodes[0]
    fork = find_fork(flow, end, [number for other in terms if other is not term for number in other.nodes])
    if fork is None:
        return None
    nodes = flow.between(fork, [end]) | union(1 << number for number in term.scalings)
    if multiplies_activations(flow, nodes) and flow.operation(end) == "aten.cat":  # a class token beside the stream
        fork = max(flow.sources[end])
        nodes = 1 << end if all(flow.above[n] >> fork & 1 for t in terms if t is not term for n in t.nodes) else nodes
    return None if multiplies_activations(flow, nodes) else _Trunk(term, fork, nodes)


def _make_join(flow: DataFlow, trunk: _Trunk, kind: ShortcutKind, every: bool) -> Join | None:
    steps = tuple(step for step in reversed(trunk.term.steps) if every or _brings_branch(flow, trunk, step, kind))
    if not steps:
        return None
    join = Join(trunk.fork, steps, kind, trunk.nodes, flow.between(trunk.fork, _branch_ends(flow, steps)))
    if every:
        return join
    shortest, depth = flow.depth(trunk.nodes) + fused_depth(flow, trunk.term.steps[-1]), join.branch_depth(flow)
    if depth < shortest or _is_compared(flow, join, depth):  # summed attention scores, each from its projections
        return None
    if kind == "projection" and depth == shortest == 1 and _is_affine(flow, join.branch):
        if _readers(flow, join.number, ops.REARRANGING) <= ops.SCALING:
            return None  # the mean of two heads
    if kind == "truncated" and not depth:
        return None  # a step of a scan takes in its place of the inputs
    ways = [flow.between(join.fork, side_nodes(flow, _other(step))) for step in steps]
    if kind != "identity" and any(flow.depth(one & other) for one, other in pairwise(ways)):
        return None  # branches that share weights: the sum gathers what one stream held at several places
    return join if kind == "identity" or _carries(flow, trunk, depth) else None


def _carries(flow: DataFlow, trunk: _Trunk, depth: int) -> bool:
    """Whether a way through the shortcut only projects what it carries, only bends it or only multiplies it by a gate.

    One that does two of these is a branch of its own: experts and focal contexts are gathered. Beside a branch without
    weight matrices it may do none: a step of a scan gates both its state and its input.
    """
    projects, bends, gates = 1, 2, 4
    ways = {trunk.fork: {0}}
    for number in members(trunk.nodes):
        role, several, own = _role(flow, number), len(flow.sources[number]) > 1, 0
        if several:
            own = gates if flow.operation(number) in ops.SCALING else 0
        elif role in ("projects", "bends"):
            own = projects if role == "projects" else bends
        # what a gate is multiplied by has the shape of the product; the gate itself may be broadcast
        carrying = (s for s in flow.sources[number] if not own & gates or flow.shape(s) == flow.shape(number))
        ways[number] = {way | own for source in carrying for way in ways.get(source, ())}
    return not ({0, projects, bends, gates} if depth else {0}).isdisjoint(ways[max(ways)])


def _is_compared(flow: DataFlow, join: Join, depth: int) -> bool:
    """Whether a sum is made for a comparison: the error of a loss, the score of an attention, an exponent."""
    if flow.operation(join.number) == "aten.sub" and _readers(flow, join.number, ops.REARRANGING) <= ops.MEASURING:
        return True
    if join.kind == "identity":
        return not depth and _readers(flow, join.number, ops.REARRANGING) <= {"aten.exp"}
    bending = ops.REARRANGING | ops.NORMALISING | ops.BENDING | {"_operator.getitem"}
    bent = _read_by(flow, join.number, bending)
    scored = bent if len(bent) == 1 and _kinds(flow, bent) <= ops.MATRIX_PRODUCTS else set()
    return any(_weighs(flow, number) for number in (join.number, *scored))


def _weighs(flow: DataFlow, score: int) -> bool:
    """Whether all that is made of a value is the weights of a mean, or a gate."""
    scoring = ops.REARRANGING | ops.SCALING | ops.MASKING | ops.NORMALISING | {"_operator.getitem", *ops.SIDES}
    gates = {number for number in _read_by(flow, score, scoring) if flow.operation(number) not in ops.WEIGHING}
    multiplied = (_readers(flow, gate, ops.REARRANGING) <= {"aten.mul"} for gate in gates)
    return _kinds(flow, gates) <= {"aten.sigmoid"} and all(multiplied)


def _readers(flow: DataFlow, number: int, through: set[str]) -> set[str]:
    return _kinds(flow, _read_by(flow, number, through))


def _kinds(flow: DataFlow, numbers: set[int]) -> set[str]:
    return {flow.operation(number) for number in numbers}


def _read_by(flow: DataFlow, number: int, through: set[str]) -> set[int]:
    """The operations that read a value, also behind operations of `through`; ``output`` where the model returns it."""
    waiting, seen, found = [number], set[int](), set[int]()
    while waiting:
        for reader in set(flow.readers(waiting.pop())) - seen:
            seen.add(reader)
            (waiting.append if flow.operation(reader) in through else found.add)(reader)
    return found


def _brings_branch(flow: DataFlow, trunk: _Trunk, step: Step, kind: ShortcutKind) -> bool:
    """Whether the other summand is computed from the fork with other parameters than the shortcut."""
    entering = side_nodes(flow, _other(step))
    if any(ops.operation(factor) in ops.NOISE for number in entering for factor in flow.nodes[number].all_input_nodes):
        return False
    nodes, fused = flow.between(trunk.fork, entering), fused_parameters(flow, _other(step))
    found = flow.parameters_in(nodes) | fused
    if not found and kind == "identity" and multiplies_activations(flow, nodes):
        return True
    if not (nodes or fused) or found == _parameters_of(flow, trunk):
        return False
    full = len(entering) > 1 or flow.shape(entering[0]) == flow.shape(step.addition)
    return full or kind == "identity"  # a broadcast branch is one only beside the very thing it was made from


def _parameters_of(flow: DataFlow, trunk: _Trunk) -> frozenset[str]:
    return flow.parameters_in(trunk.nodes) | fused_parameters(flow, trunk.term.steps[-1])


def _other(step: Step) -> Step:
    return Step(step.addition, 1 - step.side)


Role = Literal["rearranges", "crops", "pools", "projects", "normalises", "scales", "bends"]
_FIXED: set[Role] = {"rearranges", "crops", "pools", "scales"}
_LINEAR: set[Role] = {*_FIXED, "projects", "normalises"}

_ROLES: list[tuple[Role, set[str]]] = [
    ("rearranges", ops.REARRANGING | ops.DROPPING),
    ("crops", ops.CROPPING),
    ("pools", ops.POOLING),
    ("projects", ops.MATRIX_PRODUCTS),
    ("normalises", ops.NORMALISING),
    ("scales", ops.SCALING | {"aten.add", "aten.sub"}),  # by constants, as a batch norm with frozen statistics does
]


def shortcut_kind(flow: DataFlow, nodes: Nodes) -> ShortcutKind:
    """The kind of the shortcut that consists of these operations."""
    roles = {_role(flow, number) for number in members(nodes)}
    if roles <= {"rearranges"}:
        return "identity"
    if roles <= {"rearranges", "crops"}:
        return "truncated"
    if "pools" in roles and roles <= _FIXED and not flow.parameters_in(nodes):
        return "pooling"
    return "projection" if "projects" in roles and roles <= _LINEAR else "other"


def _is_affine(flow: DataFlow, nodes: Nodes) -> bool:
    """Whether operations are a matrix product and what changes no more than size and place."""
    roles = {_role(flow, number) for number in members(nodes)}
    return "projects" in roles and roles <= {"rearranges", "scales", "projects"}


def multiplies_activations(flow: DataFlow, nodes: Nodes) -> bool:
    """Whether a product of two activations is among these operations, such as attention, or a Fourier transform."""
    return any(
        flow.operation(number) in ops.ATTENTION
        or "fft" in flow.operation(number)
        or (flow.operation(number) in ops.MATRIX_PRODUCTS and len(flow.sources[number]) > 1)
        for number in members(nodes)
    )


def _role(flow: DataFlow, number: int) -> Role:
    kind, node, sources = flow.operation(number), flow.nodes[number], flow.sources[number]
    if len(sources) > 1 or ops.drops_at_random(node):
        return "bends"
    if kind == "aten.add" and 0 in node.args:  # sum() of a list starts with 0 + the first entry
        return "rearranges"
    if kind == "_operator.getitem" and flow.operation(sources[0]) in ops.NORMALISING | ops.DROPPING | ops.POOLING:
        return "rearranges"
    if kind in ops.CONVOLUTIONS and not flow.parameters[number]:
        return "pools"  # an average pool is a convolution with a fixed filter too
    return next((role for role, operations in _ROLES if kind in operations), "bends")


def sum_roots(flow: DataFlow) -> list[int]:
    """The additions that are not themselves a term of a larger sum, in execution order."""
    additions = [number for number in range(len(flow.nodes)) if is_addition(flow, number)]
    steps = (Step(number, side) for number in additions for side in (0, 1))
    swallowed = {inner[0] for step in steps if (inner := inner_sum(flow, step))}
    return [number for number in additions if number not in swallowed]


def terms_of(flow: DataFlow, root: int) -> list[Term]:
    """The terms of the sum that ends in `root`, left to right."""
    terms: list[Term] = []
    pending = _sides(flow, Term((), (), ()), root)
    while pending:  # a loop, because a sum over a list of a thousand branches nests a thousand deep
        term = pending.pop()
        if inner := inner_sum(flow, term.steps[-1]):
            addition, scalings = inner
            pending += _sides(flow, Term((), term.steps, (*term.scalings, *scalings)), addition)
        else:
            terms.append(term)
    return terms


def _sides(flow: DataFlow, outer: Term, addition: int) -> list[Term]:
    """Both summands of an addition as terms, the right one first."""
    steps = (Step(addition, 1), Step(addition, 0))
    return [Term(side_nodes(flow, step), (*outer.steps, step), outer.scalings) for step in steps]


def is_addition(flow: DataFlow, number: int) -> bool:
    """Whether a node adds two different floating activations, or one and its product with parameters."""
    if flow.operation(number) not in ops.SIDES or not flow.is_floating(number):
        return False
    left, right = side_nodes(flow, Step(number, 0)), side_nodes(flow, Step(number, 1))
    differ = left != right or bool(fused_parameters(flow, Step(number, 1)))
    return bool(left and right) and differ and all(flow.is_floating(n) for n in (*left, *right))


def side_nodes(flow: DataFlow, step: Step) -> tuple[int, ...]:
    """The activations that make up one summand of an addition."""
    return tuple(number for number in _read(flow, step) if flow.above[number])


def fused_parameters(flow: DataFlow, step: Step) -> frozenset[str]:
    """The parameters by which an addition multiplies a summand before it adds it: W in ``addmm(x, g(x), W)``."""
    constants = (number for number in _read(flow, step) if not flow.above[number])
    return frozenset().union(*(flow.parameters[number] for number in constants))


def _read(flow: DataFlow, step: Step) -> list[int]:
    """The nodes, activations and constants, that an addition reads on one side."""
    node, positions = flow.nodes[step.addition], ops.SIDES[flow.operation(step.addition)][step.side]
    arguments = [node.args[position] for position in positions if position < len(node.args)]
    return [flow.number[argument] for argument in arguments if isinstance(argument, fx.Node)]


def fused_depth(flow: DataFlow, step: Step) -> int:
    """1 where an addition multiplies a summand by a weight matrix, else 0."""
    return int(multiplies_matrix(flow, step) and bool(fused_parameters(flow, step)))


def multiplies_matrix(flow: DataFlow, step: Step) -> bool:
    """Whether an addition makes a summand by a matrix product."""
    return step.side == 1 and flow.operation(step.addition) in ops.MATRIX_PRODUCTS


def inner_sum(flow: DataFlow, step: Step) -> tuple[int, tuple[int, ...]] | None:
    """The addition that a summand is, or is a constant multiple of, if nothing else reads it; and its scalings."""
    nodes = side_nodes(flow, step)
    if multiplies_matrix(flow, step):
        return None
    number, scalings = nodes[0], list[int]()
    while len(nodes) == 1 and len(flow.nodes[number].users) == 1:
        if is_addition(flow, number):
            return number, tuple(scalings)
        if not _is_multiple(flow, number):
            return None
        scalings.append(number)
        number = flow.sources[number][0]
    return None


def _is_multiple(flow: DataFlow, number: int) -> bool:
    """Whether a node is its one source times constants (a number, a parameter, a dropout mask)."""
    kind, sources = flow.operation(number), flow.sources[number]
    if len(sources) != 1:
        return False
    if kind == "_operator.getitem":
        return flow.operation(sources[0]) in ops.DROPPING
    if kind == "aten.div":
        return flow.nodes[number].args[0] is flow.nodes[sources[0]]
    return kind in ops.SCALING or kind in ops.COPYING or kind in ops.DROPPING
