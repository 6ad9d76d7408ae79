"""How to go through the Jacobian in bounded memory: forms, groups of pieces and runs of outputs, by counted cost."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from skiplens.core.errors import TooLargeError
from skiplens.core.memory import readable
from skiplens.derivatives.tangent.pieces import Piece
from skiplens.derivatives.tangent.work import Work

_FORWARD_COST = 1  # a forward pass, in passes backward from one output
_NEVER = 2**63
_OUTER_PENALTY = 2.0  # elementwise products and small matrices run slower than the one large product of plain gradients


@dataclass(frozen=True)
class Task:
    """What the planner must know of the kernel.

    Attributes:
        left: Samples on the left.
        right: Samples on the right that differ from those on the left; 0 for a symmetric kernel.
        outputs: Outputs that are looked at.
        separate: Whether outputs keep their own axis, so that all of them must be there at once.
        itemsize: Bytes of a number.
    """

    left: int
    right: int
    outputs: int
    separate: bool
    itemsize: int

    @property
    def samples(self) -> int:
        """Samples whose gradients are kept at a time."""
        return self.left + self.right

    @property
    def pairs(self) -> float:
        """Pairs of samples that are multiplied."""
        return float(self.left * self.right) if self.right else self.left**2 / 2


@dataclass(frozen=True)
class Plan:
    """Groups of pieces, each kept for all samples at once, and how many outputs are looked at in one go."""

    groups: tuple[tuple[Piece, ...], ...]
    outputs_at_once: int
    cost: float
    memory: int


def make_plan(task: Task, work: Mapping[str, Work], budget: int, thrift: float = 1.05) -> Plan:
    """The plan with the least memory among those that cost at most `thrift` times as much as the quickest that fits.

    Args:
        task: The kernel.
        work: Its parameters.
        budget: Bytes that a plan must fit in.
        thrift: What less memory may cost.
    """
    runs = [task.outputs] if task.separate else _halvings(task.outputs)
    plans = [plan for run in runs for plan in _plans(task, work, run, budget)]
    if not plans:
        smallest = max(_bytes_of_rows(task, entry, 1, runs[-1]) for entry in work.values())
        raise TooLargeError(
            f"The gradients of {task.samples} samples need {readable(smallest)} for a single row of a layer, and only "
            f"{readable(budget)} may be used; about {max(1, task.samples * budget // max(1, smallest))} samples fit. "
            "Hand over fewer samples, raise budget=…, or use NTKOperator, which keeps no gradients."
        )
    quickest = min(plan.cost for plan in plans)
    return min((p for p in plans if p.cost <= thrift * quickest), key=lambda p: (p.memory, p.cost))


def _plans(task: Task, work: Mapping[str, Work], run: int, budget: int) -> list[Plan]:
    """Plans with less and less memory, until more passes make them twice as costly as the first."""
    plans: list[Plan] = []
    for buffer in _halvings(budget):
        plan = _plan(task, work, run, buffer)
        if plan is None or (plans and plan.cost > 2 * plans[0].cost):
            break
        plans.append(plan)
    return plans


def costs(task: Task, work: Work) -> tuple[float, float]:
    """Multiplications of one parameter's contribution: with plain gradients, and as outer products of their factors."""
    outputs = task.outputs
    output_pairs = outputs * (outputs if task.separate else 1)
    plain = task.samples * outputs * work.products + task.pairs * output_pairs * work.size
    if work.outer is None:
        return plain, math.inf
    T, left, right = work.outer.terms, work.outer.left, work.outer.right
    if T == 1:
        return plain, task.pairs * (left + output_pairs * right)
    carried = outputs**2 * T * right if task.separate else 0
    return plain, _OUTER_PENALTY * task.pairs * (T * T * (left + outputs * right) + carried)


def _plan(task: Task, work: Mapping[str, Work], run: int, buffer: int) -> Plan | None:
    groups: list[list[Piece]] = []
    room, largest = 0, 0
    for name in sorted(work, key=lambda name: -work[name].order):
        pieces = _pieces(task, name, work[name], run, buffer)
        if pieces is None:
            return None
        for piece, size in pieces:
            if size > room:
                groups.append([])
                room = buffer
            groups[-1].append(piece)
            room -= size
            largest = max(largest, buffer - room)
    return Plan(tuple(map(tuple, groups)), run, _cost(task, work, groups, run), largest)


def _pieces(task: Task, name: str, work: Work, run: int, buffer: int) -> list[tuple[Piece, int]] | None:
    """The parameter whole in its smallest form, or cut into rows that fit; None where not even one row fits."""
    plain, outer = costs(task, work)
    if outer < plain and (size := _bytes_of_outer(task, work, run)) <= buffer:
        return [(Piece(name, slice(0, work.rows), "outer"), size)]
    whole, deferred = _bytes_of_rows(task, work, work.rows, run), _bytes_of_deferred(task, work, run)
    if deferred < whole and deferred <= buffer:
        return [(Piece(name, slice(0, work.rows), "deferred"), deferred)]
    rows = min(work.rows, buffer // _bytes_of_rows(task, work, 1, run))
    if rows == 0:
        return None
    cuts = [slice(start, min(start + rows, work.rows)) for start in range(0, work.rows, rows)]
    return [(Piece(name, cut), _bytes_of_rows(task, work, cut.stop - cut.start, run)) for cut in cuts]


def _bytes_of_rows(task: Task, work: Work, rows: int, run: int) -> int:
    return task.samples * run * rows * work.row_size * task.itemsize


def _bytes_of_outer(task: Task, work: Work, run: int) -> int:
    shape = work.outer
    if shape is None:
        return 0
    return task.samples * shape.terms * (shape.left + run * shape.right) * task.itemsize


def _bytes_of_deferred(task: Task, work: Work, run: int) -> int:
    if work.deferred is None:
        return _NEVER
    inputs, cotangents = work.deferred
    return task.samples * (inputs + run * cotangents) * task.itemsize


def _cost(task: Task, work: Mapping[str, Work], groups: Sequence[Sequence[Piece]], run: int) -> float:
    """Multiplications of all forward and backward passes, and of the gradients and their products."""
    forward = sum(entry.products for entry in work.values())
    depths = _depths(work)
    rounds = -(-task.outputs // run)
    backward = sum(max(depths[work[piece.parameter].order] for piece in group) for group in groups)
    passes = task.samples * (_FORWARD_COST * forward * rounds * len(groups) + task.outputs * backward)
    return passes + sum(min(costs(task, entry)) for entry in work.values())


def _depths(work: Mapping[str, Work]) -> dict[int, int]:
    """Multiplications of a backward pass that ends at the layers of each order."""
    depths, depth = dict[int, int](), 0
    for entry in sorted(work.values(), key=lambda entry: -entry.order):
        depth += entry.products
        depths[entry.order] = depth
    return depths


def _halvings(value: int) -> list[int]:
    """`value`, half of it, a quarter, … down to 1 (at most 16 of them)."""
    values: list[int] = []
    while value >= 1 and len(values) < 16:
        values.append(value)
        value = -(-value // 2) if value > 1 else 0
    return values
