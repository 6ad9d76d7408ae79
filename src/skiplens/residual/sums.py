"""Sums of activations: additions that feed nothing but another addition are one sum of several terms."""

from dataclasses import dataclass

from torch import fx

from skiplens.residual.flow import DataFlow
from skiplens.residual.operations import COPYING, DROPPING, MATRIX_PRODUCTS, SCALING, SIDES


@dataclass(frozen=True)
class Step:
    """One addition on the way from a sum to one of its terms, and the side on which the term lies."""

    addition: int
    side: int


@dataclass(frozen=True)
class Term:
    """One term of a sum.

    Attributes:
        nodes: What enters the innermost addition: one activation, or the factors of a fused product.
        steps: The additions from the whole sum inwards.
        scalings: Operations on the way that multiply the partial sum by a constant.
    """

    nodes: tuple[int, ...]
    steps: tuple[Step, ...]
    scalings: tuple[int, ...]


def sum_roots(flow: DataFlow) -> list[int]:
    """The additions that are not themselves a term of a larger sum, in execution order."""
    additions = [number for number in range(len(flow.nodes)) if is_addition(flow, number)]
    steps = (Step(number, side) for number in additions for side in (0, 1))
    swallowed = {inner.addition for step in steps if (inner := inner_sum(flow, step))}
    return [number for number in additions if number not in swallowed]


def terms_of(flow: DataFlow, root: int) -> list[Term]:
    """The terms of the sum that ends in `root`, left to right."""
    terms: list[Term] = []
    pending = _sides(flow, Term((), (), ()), root)
    while pending:  # a loop, because a sum over a list of a thousand branches nests a thousand deep
        term = pending.pop()
        inner = inner_sum(flow, term.steps[-1])
        if inner is None:
            terms.append(term)
        else:
            outer = Term((), term.steps, (*term.scalings, *inner.scalings))
            pending += _sides(flow, outer, inner.addition)
    return terms


def _sides(flow: DataFlow, outer: Term, addition: int) -> list[Term]:
    """Both summands of an addition as terms, the right one first."""
    return [
        Term(side_nodes(flow, addition, side), (*outer.steps, Step(addition, side)), outer.scalings) for side in (1, 0)
    ]


def is_addition(flow: DataFlow, number: int) -> bool:
    """Whether a node adds two different floating activations, or one and its product with parameters."""
    if flow.operation(number) not in SIDES or not flow.is_floating(number):
        return False
    left, right = side_nodes(flow, number, 0), side_nodes(flow, number, 1)
    differ = left != right or bool(fused_parameters(flow, Step(number, 1)))
    return bool(left and right) and differ and all(flow.is_floating(n) for n in (*left, *right))


def side_nodes(flow: DataFlow, number: int, side: int) -> tuple[int, ...]:
    """The activations that make up one summand of an addition."""
    node = flow.nodes[number]
    positions = SIDES[flow.operation(number)][side]
    arguments = [node.args[position] for position in positions if position < len(node.args)]
    numbers = [flow.number[argument] for argument in arguments if isinstance(argument, fx.Node)]
    return tuple(number for number in numbers if flow.above[number])


def fused_parameters(flow: DataFlow, step: Step) -> frozenset[str]:
    """The parameters by which an addition multiplies a summand before it adds it: W in ``addmm(x, g(x), W)``."""
    node = flow.nodes[step.addition]
    positions = SIDES[flow.operation(step.addition)][step.side]
    arguments = [node.args[position] for position in positions if position < len(node.args)]
    constants = (flow.number[argument] for argument in arguments if isinstance(argument, fx.Node))
    return frozenset().union(*(flow.parameters[number] for number in constants if not flow.above[number]))


def fused_depth(flow: DataFlow, step: Step) -> int:
    """1 where an addition multiplies a summand by a weight matrix, else 0."""
    return int(multiplies_matrix(flow, step) and bool(fused_parameters(flow, step)))


def multiplies_matrix(flow: DataFlow, step: Step) -> bool:
    """Whether an addition makes a summand by a matrix product."""
    return step.side == 1 and flow.operation(step.addition) in MATRIX_PRODUCTS


@dataclass(frozen=True)
class InnerSum:
    """An addition that only a larger sum reads, and the constants by which it is multiplied before."""

    addition: int
    scalings: tuple[int, ...]


def inner_sum(flow: DataFlow, step: Step) -> InnerSum | None:
    """The sum that a summand is, or is a constant multiple of, if nothing else reads it."""
    nodes = side_nodes(flow, step.addition, step.side)
    if multiplies_matrix(flow, step):
        return None
    number, scalings = nodes[0], list[int]()
    while len(nodes) == 1 and len(flow.nodes[number].users) == 1:
        if is_addition(flow, number):
            return InnerSum(number, tuple(scalings))
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
        return flow.operation(sources[0]) in DROPPING
    if kind == "aten.div":
        return flow.nodes[number].args[0] is flow.nodes[sources[0]]
    return kind in SCALING or kind in COPYING or kind in DROPPING
