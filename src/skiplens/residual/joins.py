"""Which additions join a branch with a shortcut.

A *residual join* is an addition of floating activations that come from the inputs and have a floating activation in
common, where one side reads parameters after the fork that the other does not. Rotary embeddings and the tanh form of
GELU add without parameters of their own; word and position embeddings have no floating activation in common: no joins.

Additions that feed only each other are one sum, and one sum makes one block: ``x + f(x) + g(x)`` is a block with two
branches, whichever addition comes first. Of the terms of a sum the one with the fewest weight matrices since the fork
is the shortcut. A term may itself be a sum with an identity shortcut, ``x + (h + g(h))``: that is a block in a block.

The definition knows no intentions: two learned maps of one activation that are added are a block with a projection
shortcut, be they a ResNet's first block of a stage, a linear layer with a low-rank adapter, or the mean and the noise
of a variational encoder. Highway and recurrent cells are blocks whose shortcut is of kind ``other``.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from skiplens.residual.block import ShortcutKind
from skiplens.residual.flow import DataFlow, Nodes, union
from skiplens.residual.fork import find_fork
from skiplens.residual.operations import factor
from skiplens.residual.shortcut import multiplies_activations, shortcut_kind
from skiplens.residual.sums import Step, Term, fused_depth, fused_parameters, inner_sum, side_nodes, sum_roots, terms_of


@dataclass(frozen=True)
class Join:
    """A residual join in numbers of nodes.

    Attributes:
        fork: The activation where shortcut and branches part.
        steps: The additions that bring in a branch, in execution order, each with the side of the shortcut.
        kind: Kind of the shortcut.
        shortcut: Operations of the shortcut.
        branch: Operations of the branches.
    """

    fork: int
    steps: tuple[Step, ...]
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
        ways = (flow.between(self.fork, _other_side(flow, step)) for step in self.steps)
        fused = (fused_depth(flow, _other(step)) for step in self.steps)
        return max(flow.depth(way) + own for way, own in zip(ways, fused, strict=True))


@dataclass(frozen=True)
class _Trunk:
    """A term of a sum seen as its shortcut."""

    term: Term
    fork: int
    nodes: Nodes


def find_joins(flow: DataFlow) -> list[Join]:
    """All residual joins of a graph in execution order."""
    joins = [join for root in sum_roots(flow) for join in _joins_of_sum(flow, root)]
    return sorted(joins, key=lambda join: join.number)


def _joins_of_sum(flow: DataFlow, root: int, outer_fork: int | None = None) -> Iterator[Join]:
    """The join that a sum makes, and those that sums among its terms make."""
    trunk = _choose_trunk(flow, terms_of(flow, root))
    if trunk is None:
        return
    # inside a term of a larger sum, parallel branches without an identity (attention + MLP) are gathered, not joined
    kind = _kind(flow, trunk)
    gathers = outer_fork is not None and (kind != "identity" or trunk.fork == outer_fork)
    if not gathers:
        join = _make_join(flow, trunk, kind)
        if join is not None:
            yield join
    for step in trunk.term.steps:
        inner = inner_sum(flow, _other(step))
        if inner is not None:
            yield from _joins_of_sum(flow, inner.addition, trunk.fork)


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
    return None if multiplies_activations(flow, nodes) else _Trunk(term, fork, nodes)


def _kind(flow: DataFlow, trunk: _Trunk) -> ShortcutKind:
    kept = all(factor(flow.nodes[step.addition], step.side) == 1.0 for step in trunk.term.steps)
    return shortcut_kind(flow, trunk.nodes) if kept else "other"


def _make_join(flow: DataFlow, trunk: _Trunk, kind: ShortcutKind) -> Join | None:
    steps = tuple(step for step in reversed(trunk.term.steps) if _brings_branch(flow, trunk, step, kind))
    if not steps:
        return None
    branch = flow.between(trunk.fork, [number for step in steps for number in _other_side(flow, step)])
    join = Join(trunk.fork, steps, kind, trunk.nodes, branch)
    shortest = flow.depth(trunk.nodes) + fused_depth(flow, trunk.term.steps[-1])
    return None if join.branch_depth(flow) < shortest else join  # summed attention scores, each from its projections


def _brings_branch(flow: DataFlow, trunk: _Trunk, step: Step, kind: ShortcutKind) -> bool:
    """Whether the other summand is computed from the fork with other parameters than the shortcut."""
    entering = _other_side(flow, step)
    nodes, fused = flow.between(trunk.fork, entering), fused_parameters(flow, _other(step))
    if not (nodes or fused) or flow.parameters_in(nodes) | fused == _parameters_of(flow, trunk):
        return False
    full = len(entering) > 1 or flow.shape(entering[0]) == flow.shape(step.addition)
    return full or kind == "identity"  # a broadcast branch is one only beside the very thing it was made from


def _parameters_of(flow: DataFlow, trunk: _Trunk) -> frozenset[str]:
    return flow.parameters_in(trunk.nodes) | fused_parameters(flow, trunk.term.steps[-1])


def _other(step: Step) -> Step:
    return Step(step.addition, 1 - step.side)


def _other_side(flow: DataFlow, step: Step) -> tuple[int, ...]:
    return side_nodes(flow, step.addition, 1 - step.side)
