"""How to go through the Jacobian in bounded memory: forms, groups of pieces and runs of outputs, by counted cost."""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from skiplens.base.errors import TooLargeError
from skiplens.base.memory import readable
from skiplens.base.randomness import Randomness
from skiplens.graph.functional import PureModel, saved_bytes_per_sample
from skiplens.graph.inputs import Samples
from skiplens.tangent.calls import Call
from skiplens.tangent.coverage import LayerCoverage, Use, calls_of, find_coverage
from skiplens.tangent.gradients import ParameterSlice, SingleRows, Source, VectorisedRows
from skiplens.tangent.layers import LayerRows
from skiplens.tangent.problem import Problem, Task
from skiplens.tangent.rules import OuterShape

_FORWARD_COST = 1  # a forward pass, in passes backward from one output

_NEVER = 2**63

_OUTER_PENALTY = 2.0  # elementwise products and small matrices run slower than the one large product of plain gradients


@dataclass(frozen=True)
class KernelPlan:
    """Groups of pieces, each kept for all samples at once, and how many outputs are looked at in one go."""

    groups: tuple[tuple[ParameterSlice, ...], ...]
    outputs_at_once: int
    cost: float
    memory: int


@dataclass(frozen=True)
class Work:
    """One parameter's size and cost.

    Attributes:
        rows: Length of its first axis.
        row_size: Numbers a row.
        products: Multiplications that its gradient for one sample and output takes (its forward pass takes as many).
        outer: Sizes of its outer products, or None where it has not that form.
        order: When it is used first, counted in calls.
        deferred: Numbers of a sample's input and of an output's cotangent, where these two suffice; else None.
    """

    rows: int
    row_size: int
    products: int
    outer: OuterShape | None = None
    order: int = 0
    deferred: tuple[int, int] | None = None

    @property
    def size(self) -> int:
        """How many numbers the parameter holds."""
        return self.rows * self.row_size


def make_plan(task: Task, work: Mapping[str, Work], budget: int, thrift: float = 1.05) -> KernelPlan:
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


def _plans(task: Task, work: Mapping[str, Work], run: int, budget: int) -> list[KernelPlan]:
    """Plans with less and less memory, until more passes make them twice as costly as the first."""
    plans: list[KernelPlan] = []
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


def _plan(task: Task, work: Mapping[str, Work], run: int, buffer: int) -> KernelPlan | None:
    groups: list[list[ParameterSlice]] = []
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
    return KernelPlan(tuple(map(tuple, groups)), run, _cost(task, work, groups, run), largest)


def _pieces(task: Task, name: str, work: Work, run: int, buffer: int) -> list[tuple[ParameterSlice, int]] | None:
    """The parameter whole in its smallest form, or cut into rows that fit; None where not even one row fits."""
    plain, outer = costs(task, work)
    if outer < plain and (size := _bytes_of_outer(task, work, run)) <= buffer:
        return [(ParameterSlice(name, slice(0, work.rows), "outer"), size)]
    whole, deferred = _bytes_of_rows(task, work, work.rows, run), _bytes_of_deferred(task, work, run)
    if deferred < whole and deferred <= buffer:
        return [(ParameterSlice(name, slice(0, work.rows), "deferred"), deferred)]
    rows = min(work.rows, buffer // _bytes_of_rows(task, work, 1, run))
    if rows == 0:
        return None
    cuts = [slice(start, min(start + rows, work.rows)) for start in range(0, work.rows, rows)]
    return [(ParameterSlice(name, cut), _bytes_of_rows(task, work, cut.stop - cut.start, run)) for cut in cuts]


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


def _cost(task: Task, work: Mapping[str, Work], groups: Sequence[Sequence[ParameterSlice]], run: int) -> float:
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


def plain_work(parameters: Mapping[str, Tensor]) -> dict[str, Work]:
    """Sizes alone, for algorithms that do not know the layers."""
    return {name: Work(*_rows(tensor), products=tensor.numel()) for name, tensor in parameters.items()}


def layer_work(pure: PureModel, cover: LayerCoverage) -> tuple[dict[str, Work], int]:
    """The work of all covered parameters, and the bytes of one sample's and output's cotangents; read off the probe."""
    samples = len(cover.recording.outputs)
    all_uses = [use for uses in cover.uses.values() for use in uses]
    calls = calls_of(cover.recording, cover, all_uses)
    with torch.no_grad():
        prepared = {id(use): use.rule.prepare(calls[use.module, use.call], samples) for use in all_uses}
    work = {}
    for name, uses in cover.uses.items():
        shapes = [use.rule.outer_shape(prepared[id(use)]) for use in uses]
        products = sum(s.terms * s.left * s.right if s else pure.parameters[name].numel() for s in shapes)
        order = min(calls[use.module, use.call].order for use in uses)
        deferred = _deferred(calls[uses[0].module, uses[0].call], samples) if _is_deferrable(uses) else None
        work[name] = Work(*_rows(pure.parameters[name]), products, _joint_shape(shapes, uses), order, deferred)
    cotangents = sum(zero.numel() * zero.element_size() for call in calls.values() for zero in call.zeros)
    return work, cotangents // samples


def _is_deferrable(uses: Sequence[Use]) -> bool:
    return len(uses) == 1 and uses[0].rule.deferrable


def _deferred(call: Call, samples: int) -> tuple[int, int] | None:
    """Numbers of a sample's input and cotangent, where the batch axis of both is the samples."""
    if call.input.shape[0] != samples or call.zeros[0].shape[0] != samples:
        return None
    return call.input[0].numel(), call.zeros[0][0].numel()


def _joint_shape(shapes: Sequence[OuterShape | None], uses: Sequence[Use]) -> OuterShape | None:
    """Outer products of all uses together, where all are of one kind: their terms stand in one row."""
    first = shapes[0]
    if first is None or any(shape is None or use.rule != uses[0].rule for shape, use in zip(shapes, uses, strict=True)):
        return None
    return OuterShape(sum(shape.terms for shape in shapes if shape), first.left, first.right)


def _rows(parameter: Tensor) -> tuple[int, int]:
    """Length of the first axis and numbers a row; a scalar is one row."""
    rows = parameter.shape[0] if parameter.ndim else 1
    return rows, parameter.numel() // rows


_CHUNK_BYTES = 40 * 2**20  # on a processor larger chunks are no quicker: they only leave the caches

_ROWS_WORTH_MEASURING = 1000  # rows of the Jacobian; fewer are done before a measurement pays

_CLEARLY = 1.5  # the layers' factors also save most of the products, which the measurement does not see

_NOT_VECTORISABLE = (RuntimeError, ValueError, TypeError, NotImplementedError)  # what vmap raises at some models

_STACK = {"cpu": 5, "cuda": 64}  # outputs at once: enough rows for matrix products at full speed


@dataclass(frozen=True)
class Assignment:
    """Parameters, what they cost, where their gradients come from and the bytes the source itself takes."""

    source: Source
    work: dict[str, Work]
    overhead: int


def assign(problem: Problem, room: int) -> list[Assignment]:
    """The assignments that together cover all chosen parameters, in about `room` bytes."""
    if problem.algorithm == "rows" or problem.coupled:
        return [_single(problem, problem.pure.parameters)]
    if problem.algorithm == "jacobian":
        return [_vectorised(problem, problem.pure.parameters, room)]
    layered = _by_layers(problem, room)
    rows = (problem.task.left + problem.task.right) * problem.task.outputs
    few = rows < _ROWS_WORTH_MEASURING
    if problem.algorithm == "layers" or few or problem.pure.device.type != "cpu":
        return layered  # a few samples would not keep a GPU busy, so they tell nothing about many
    return _quicker(problem, layered, _vectorised(problem, problem.pure.parameters, room))


def assign_generally(problem: Problem, names: Iterable[str], room: int) -> Assignment:
    """The quicker of the two algorithms that need no rules, both tried on a few samples and two outputs."""
    names = list(names)
    vectorised, single = _vectorised(problem, names, room), _single(problem, names)
    try:
        fast = _seconds_a_row(vectorised, problem)
    except _NOT_VECTORISABLE:
        return single
    return vectorised if fast <= _seconds_a_row(single, problem) else single


def _quicker(problem: Problem, layered: list[Assignment], vectorised: Assignment) -> list[Assignment]:
    """The layers' own formulas, unless the general algorithm is clearly quicker on a few samples and two outputs."""
    try:
        general = _seconds_a_row(vectorised, problem)
    except _NOT_VECTORISABLE:
        return layered
    by_layers = sum(_seconds_a_row(job, problem) for job in layered)
    return [vectorised] if _CLEARLY * general < by_layers else layered


def _by_layers(problem: Problem, room: int) -> list[Assignment]:
    pure, samples = problem.pure, problem.most_samples
    cover = find_coverage(pure, samples)
    assignments = []
    if cover.uses:
        work, cotangents = layer_work(pure, cover)
        stack = min(_STACK.get(pure.device.type, 5), problem.selection.count)
        bytes_per_sample = (stack + 1) * cotangents + saved_bytes_per_sample(pure, samples)
        chunk = _chunk(problem, bytes_per_sample, room)
        assignments.append(Assignment(LayerRows(pure, cover, chunk, stack), work, chunk * bytes_per_sample))
    leftover = [*cover.leftover, *_used_after_all(problem, cover.unused)]
    if leftover:
        assignments.append(assign_generally(problem, leftover, room))
    return assignments


def _used_after_all(problem: Problem, names: Iterable[str]) -> list[str]:
    """Those of `names` that some sample's outputs depend on, though the probe's did not."""
    pure, found = problem.pure, set[str]()
    names = list(names)
    generator = Randomness(0).child("unused parameters").torch()
    for samples in (problem.left, problem.right) if names else ():
        for _, chunk in samples.chunks(64) if samples else ():
            leaves = pure.leaves(names)
            with torch.enable_grad():
                outputs = pure({**pure.parameters, **leaves}, chunk)
                total = (
                    outputs * torch.randn(outputs.shape, generator=generator, dtype=torch.float64).to(outputs)
                ).sum()
            if not outputs.requires_grad:
                continue
            gradients = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
            found.update(name for name, gradient in zip(leaves, gradients, strict=True) if gradient is not None)
    return sorted(found)


def _chunk(problem: Problem, bytes_per_sample: int, room: int) -> int:
    allowed = room // 4 if problem.pure.device.type == "cuda" else min(room // 4, _CHUNK_BYTES)
    return max(1, min(problem.most_samples.count, allowed // max(1, bytes_per_sample)))


def _single(problem: Problem, names: Iterable[str]) -> Assignment:
    return Assignment(SingleRows(problem.pure, problem.coupled), plain_work(_subset(problem.pure, names)), 0)


def _vectorised(problem: Problem, names: Iterable[str], room: int) -> Assignment:
    parameters = _subset(problem.pure, names)
    numbers = sum(parameter.numel() for parameter in parameters.values())
    jacobian = 2 * problem.selection.count * numbers * problem.pure.dtype.itemsize
    saved = (1 + problem.selection.count) * saved_bytes_per_sample(problem.pure, problem.most_samples)
    chunk = _chunk(problem, jacobian + saved, room)
    return Assignment(VectorisedRows(problem.pure, chunk), plain_work(parameters), chunk * (jacobian + saved))


def _subset(pure: PureModel, names: Iterable[str]) -> dict[str, torch.Tensor]:
    return {name: pure.parameters[name] for name in names}


def _seconds_a_row(assignment: Assignment, problem: Problem) -> float:
    pieces = [ParameterSlice(name, slice(0, entry.rows)) for name, entry in assignment.work.items()]
    few: Samples = problem.most_samples.take(slice(0, 2))
    seconds = []
    for _ in range(2):  # the first time, torch also chooses and loads what it needs
        start = time.perf_counter()
        assignment.source.fill(few, pieces, problem.selection.indices[:2], problem.buffer(0))
        seconds.append(time.perf_counter() - start)
    return min(seconds)
