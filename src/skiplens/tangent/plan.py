"""How to go through the Jacobian in bounded memory, all by counted operations and bytes.

`assign` says which source gives the gradients of which parameters; `make_plan` into which forms, groups of pieces and
runs of outputs they are cut. No clock is read: the same model, samples and memory give the same numbers to the bit.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from skiplens.base import Randomness, TooLargeError, readable
from skiplens.base.identity import architecture
from skiplens.graph.functional import PureModel, saved_bytes_per_sample
from skiplens.tangent import coverage
from skiplens.tangent.coverage import LayerCoverage, LayerRows, find_coverage
from skiplens.tangent.gradients import ParameterSlice, SingleRows, Source, VectorisedRows
from skiplens.tangent.problem import Problem, Task
from skiplens.tangent.rules import LocalGradient, OuterShape

_CHUNK_BYTES = 40 * 2**20  # on a processor larger chunks are no quicker: they only leave the caches
_STACK = {"cpu": 5, "cuda": 64}  # outputs at once: enough rows for matrix products at full speed
_NOT_VECTORISABLE = (RuntimeError, ValueError, TypeError, NotImplementedError)  # what vmap raises at some models
_MANY_ROWS = 1000  # of the Jacobian; fewer are done at once by any way
_CLEARLY = 1.5  # the layers' factors also save most of the products and memory
_VECTORISED_PASS = 12  # plain passes that take as long as one under vmap, whose cost hardly depends on what it carries
_OUTER_PENALTY = 2.0  # elementwise products and small matrices run slower than the one large product of plain gradients


@dataclass(frozen=True)
class Work:
    """One parameter's size and cost."""

    rows: int  # length of its first axis
    row_size: int  # numbers a row
    products: int  # multiplications of its gradient for one sample and output (its forward pass takes as many)
    outer: tuple[OuterShape, ...] = ()  # of each kind of use; none where its gradient is no sum of outer products
    order: int = 0  # when it is used first, counted in calls
    deferred: tuple[int, int] | None = None  # numbers of a sample's input and an output's cotangent, if they suffice

    @property
    def size(self) -> int:
        """How many numbers the parameter holds."""
        return self.rows * self.row_size


@dataclass(frozen=True)
class Assignment:
    """Parameters, what they cost, where their gradients come from and the bytes the source itself takes."""

    source: Source
    work: dict[str, Work]
    overhead: int

    def room_in(self, bytes_in_all: int) -> int:
        """What the source leaves of so many bytes."""
        return max(bytes_in_all // 4, bytes_in_all - self.overhead)


def assign(problem: Problem, room: int) -> list[Assignment]:
    """The assignments that together cover all chosen parameters, in about `room` bytes."""
    everything = problem.pure.parameters
    if problem.algorithm == "rows" or problem.coupled:
        return [_single(problem, everything)]
    if problem.algorithm == "jacobian":
        return [_vectorised(problem, everything, room)[1]]
    cover, found = _checked(problem)
    assignments = []
    if cover.uses:
        source, layered = _by_layers(problem, cover, found, room)
        if problem.algorithm == "auto" and (repeated := _repeated_passes(problem, cover, source)):
            rows, general = _vectorised(problem, everything, room)
            cheaper = prefers_general(repeated, _rounds(problem, rows.chunk), problem.task)
            if cheaper and _is_vectorisable(problem, general):
                return [general]
        assignments.append(layered)
    leftover = [*cover.leftover, *_used_after_all(problem, cover.unused)]
    if leftover:
        assignments.append(assign_generally(problem, leftover, room))
    return assignments


def assign_generally(problem: Problem, names: Iterable[str], room: int) -> Assignment:
    """The cheaper of the two algorithms that need no rules, by the passes through the model that each takes."""
    names = list(names)
    rows, vectorised = _vectorised(problem, names, room)
    fewer = prefers_vectorised(_rounds(problem, rows.chunk), problem.task)
    return vectorised if fewer and _is_vectorisable(problem, vectorised) else _single(problem, names)


def prefers_general(repeated: float, rounds: int, task: Task) -> bool:
    """Whether one vectorised Jacobian of the whole model takes clearly fewer passes than the layers' formulas.

    Known layers cost no pass beyond the backward one, so they are never given up. A parameter without a formula costs a
    vectorised pass through the smallest module around its uses, for each chunk of samples and stack of outputs: 7 bare
    matrices 13.4 passes against 2 `rounds` of the whole Jacobian (0.144 s against 0.087 s), the attention of a small
    transformer 8 `repeated` ones against 7 (0.41 s against 0.59 s). With few rows either way is done at once.
    """
    return task.samples * task.outputs >= _MANY_ROWS and repeated > _CLEARLY * rounds


def prefers_vectorised(rounds: int, task: Task) -> bool:
    """Whether `vmap` over samples and all outputs at once takes less than one backward pass a sample and output.

    `rounds` vectorised passes, each as long as `_VECTORISED_PASS` plain ones (1.6 ms against 6 plain passes in 1.1 ms
    for seven bare matrices), against a forward pass a sample and a backward pass an output of each: 100 samples and 10
    outputs take 0.09 s against 0.48 s. Where memory holds but one sample at a time there is nothing to gain.
    """
    return _VECTORISED_PASS * rounds <= task.samples * (1 + task.outputs)


def _repeated_passes(problem: Problem, cover: LayerCoverage, source: LayerRows) -> float:
    """Passes through the model, counted by the numbers of its parameters, that local gradients repeat."""
    sizes = {name: sum(p.numel() for p in module.parameters()) for name, module in problem.pure.model.named_modules()}
    every = [use for uses in cover.uses.values() for use in uses]
    again = sum(sizes[use.module] for use in every if isinstance(use.rule, LocalGradient))
    stacks = -(-problem.selection.count // source.stack)
    return _rounds(problem, source.chunk) * stacks * again / sizes[""]


def _rounds(problem: Problem, chunk: int) -> int:
    """Chunks of samples on both sides."""
    return -(-problem.task.left // chunk) + -(-problem.task.right // chunk)


def _is_vectorisable(problem: Problem, general: Assignment) -> bool:
    """Whether `vmap` accepts the model: tried on two samples and two outputs."""
    pieces = [ParameterSlice(name, slice(0, entry.rows)) for name, entry in general.work.items()]
    few = problem.most_samples.take(slice(0, 2))
    try:
        general.source.fill(few, pieces, problem.selection.indices[:2], problem.buffer(0))
    except _NOT_VECTORISABLE:
        return False
    return True


_Costs = tuple[dict[str, Work], int]  # of all covered parameters, and the bytes of a sample's and output's cotangents
_KNOWN: dict[str, tuple[LayerCoverage, _Costs]] = {}


def _checked(problem: Problem) -> tuple[LayerCoverage, _Costs]:
    """The coverage and what it costs, looked for once for all models that are built alike.

    On a GPU the look takes longer than a small kernel.
    """
    pure, samples = problem.pure, problem.most_samples
    few = samples.take(slice(0, coverage.PROBE_SAMPLES))
    key = architecture(pure.model, few.args, few.kwargs, tuple(pure.parameters))
    if key in _KNOWN:
        outline, known = _KNOWN[key]
        return outline.filled(pure), known
    cover = find_coverage(pure, samples)
    found = layer_work(pure, cover) if cover.uses else ({}, 0)
    if key is not None and (kept := cover.outline()) is not None:
        _KNOWN[key] = kept, found
    return cover, found


def _by_layers(problem: Problem, cover: LayerCoverage, found: _Costs, room: int) -> tuple[LayerRows, Assignment]:
    pure, (work, cotangents) = problem.pure, found
    stack = min(_STACK.get(pure.device.type, 5), problem.selection.count)
    bytes_per_sample = (stack + 1) * cotangents + saved_bytes_per_sample(pure, problem.most_samples)
    chunk = _chunk(problem, bytes_per_sample, room)
    # whose graph is not needed any more
    source = LayerRows(pure, replace(cover, recording=coverage.NOTHING), chunk, stack)
    return source, Assignment(source, work, chunk * bytes_per_sample)


def _single(problem: Problem, names: Iterable[str]) -> Assignment:
    return Assignment(SingleRows(problem.pure, problem.coupled), _plain_work(problem.pure, names), 0)


def _vectorised(problem: Problem, names: Iterable[str], room: int) -> tuple[VectorisedRows, Assignment]:
    work = _plain_work(problem.pure, names)
    numbers = sum(entry.size for entry in work.values())
    jacobian = 2 * problem.selection.count * numbers * problem.pure.dtype.itemsize
    saved = (1 + problem.selection.count) * saved_bytes_per_sample(problem.pure, problem.most_samples)
    source = VectorisedRows(problem.pure, _chunk(problem, jacobian + saved, room))
    return source, Assignment(source, work, source.chunk * (jacobian + saved))


def _chunk(problem: Problem, bytes_per_sample: int, room: int) -> int:
    """Samples in one pass."""
    allowed = room // 4 if problem.pure.device.type == "cuda" else min(room // 4, _CHUNK_BYTES)
    return max(1, min(problem.most_samples.count, allowed // max(1, bytes_per_sample)))


def _used_after_all(problem: Problem, names: Iterable[str]) -> list[str]:
    """Those of `names` that some sample's outputs depend on, though the probe's did not."""
    pure, names, found = problem.pure, list(names), set[str]()
    generator = Randomness(0).child("unused parameters").torch()
    for samples in (problem.left, problem.right) if names else ():
        for _, chunk in samples.chunks(64) if samples else ():
            leaves = pure.leaves(names)
            with torch.enable_grad():
                outputs = pure({**pure.parameters, **leaves}, chunk)
                weights = torch.randn(outputs.shape, generator=generator, dtype=torch.float64).to(outputs)
                total = (outputs * weights).sum()
            if outputs.requires_grad:
                gradients = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
                found.update(name for name, gradient in zip(leaves, gradients, strict=True) if gradient is not None)
    return sorted(found)


def _plain_work(pure: PureModel, names: Iterable[str]) -> dict[str, Work]:
    """Sizes alone, for algorithms that do not know the layers."""
    tensors = {name: pure.parameters[name] for name in names}
    return {name: Work(*_rows(tensor), products=tensor.numel()) for name, tensor in tensors.items()}


def layer_work(pure: PureModel, cover: LayerCoverage) -> tuple[dict[str, Work], int]:
    """The work of all covered parameters, and the bytes of one sample's and output's cotangents; read off the probe."""
    samples = len(cover.recording.outputs)
    calls = coverage.calls_of(cover.recording, cover, (use for uses in cover.uses.values() for use in uses))
    work = {}
    for name, uses in cover.uses.items():
        parameter, called = pure.parameters[name], [calls[use.module, use.call] for use in uses]
        with torch.no_grad():
            prepared = [use.rule.prepare(call, samples) for use, call in zip(uses, called, strict=True)]
        shapes = [use.rule.outer_shape(has) for use, has in zip(uses, prepared, strict=True)]
        products = sum(s.terms * s.left * s.right if s else parameter.numel() for s in shapes)
        known = [(use, shape) for use, shape in zip(uses, shapes, strict=True) if shape is not None]
        outer: tuple[OuterShape, ...] = ()
        if len(known) == len(uses) and coverage.have_products(uses):
            # Uses of one kind stand together: the terms of all of them are in one row.
            outer = tuple(_together([shape for use, shape in known if use in kind]) for kind in coverage.kinds_of(uses))
        deferred, first = None, called[0]
        if len(uses) == 1 and uses[0].rule.deferrable and first.input.shape[0] == samples == first.zeros[0].shape[0]:
            deferred = (first.input[0].numel(), first.zeros[0][0].numel())
        order = min(call.order for call in called)
        work[name] = Work(*_rows(parameter), products, outer, order, deferred)
    cotangents = sum(zero.numel() * zero.element_size() for call in calls.values() for zero in call.zeros)
    return work, cotangents // samples


def _together(shapes: list[OuterShape]) -> OuterShape:
    return replace(shapes[0], terms=sum(shape.terms for shape in shapes))


def _rows(parameter: Tensor) -> tuple[int, int]:
    """Length of the first axis and numbers a row; a scalar is one row."""
    rows = parameter.shape[0] if parameter.ndim else 1
    return rows, parameter.numel() // rows


@dataclass(frozen=True)
class KernelPlan:
    """Groups of pieces, each kept for all samples at once, and how many outputs are looked at in one go."""

    groups: tuple[tuple[ParameterSlice, ...], ...]
    outputs_at_once: int
    cost: float
    memory: int


def make_plan(task: Task, work: Mapping[str, Work], budget: int, thrift: float = 1.05) -> KernelPlan:
    """The plan with the least memory among those that cost at most `thrift` times as much as the quickest that fits."""
    runs = [task.outputs] if task.separate else _halvings(task.outputs)
    plans: list[KernelPlan] = []
    for run in runs:
        # From what all pieces take, rounded up to a power of two, so that the plan does not depend on how much memory
        # happens to be free; then less and less, until more passes make a plan twice as costly.
        forms = [_form_bytes(task, entry, run).values() for entry in work.values()]
        needed, widest = sum(map(max, forms)), max(map(min, forms), default=0)
        buffers = _halvings(min(budget, 2 ** max(0, needed - 1).bit_length()))
        # And as much as takes all of them in one group, where each is kept in a form that leaves room for the others.
        together = sum(size for name in work for _, size in _pieces(task, name, work[name], run, widest) or ())
        first: KernelPlan | None = None
        for buffer in sorted({*buffers, *[together] * (0 < together <= budget)}, reverse=True):
            plan = _plan(task, work, run, buffer)
            if plan is None or (first is not None and plan.cost > 2 * first.cost):
                break
            first = first or plan
            plans.append(plan)
    if not plans:
        smallest = max(_form_bytes(task, entry, runs[-1])["gradients"] // entry.rows for entry in work.values())
        raise TooLargeError(
            f"The gradients of {task.samples} samples need {readable(smallest)} for a single row of a layer, and only "
            f"{readable(budget)} may be used; about {max(1, task.samples * budget // max(1, smallest))} samples fit. "
            "Hand over fewer samples, raise memory=…, or use NTKOperator, which keeps no gradients."
        )
    quickest = min(plan.cost for plan in plans)
    return min((p for p in plans if p.cost <= thrift * quickest), key=lambda p: (p.memory, p.cost))


def costs(task: Task, work: Work) -> tuple[float, float]:
    """Multiplications of one parameter's contribution: with plain gradients, and as outer products of their factors."""
    outputs = task.outputs
    output_pairs = outputs * (outputs if task.separate else 1)
    plain = task.samples * outputs * work.products + task.pairs * output_pairs * work.size
    return plain, sum(_outer_cost(task, shape) for shape in work.outer) if work.outer else math.inf


def _outer_cost(task: Task, shape: OuterShape) -> float:
    """Multiplications of all products of factors of one kind of use."""
    T, left, right, outputs = shape.terms, shape.left, shape.right, task.outputs
    if T == 1:
        return task.pairs * (left + outputs * (outputs if task.separate else 1) * right)
    carried = outputs**2 * T * right if task.separate else 0
    return _OUTER_PENALTY * task.pairs * (T * T * (left + outputs * right) + carried)


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
    (plain, outer), sizes, everything = costs(task, work), _form_bytes(task, work, run), slice(0, work.rows)
    tied = len(work.outer) > 1 and sizes["gradients"] > buffer  # a whole vocabulary, of which few places count
    if sizes.get("outer", math.inf) <= buffer and (outer < plain or tied):
        return [(ParameterSlice(name, everything, "outer"), sizes["outer"])]
    if "deferred" in sizes and sizes["deferred"] < sizes["gradients"] and sizes["deferred"] <= buffer:
        return [(ParameterSlice(name, everything, "deferred"), sizes["deferred"])]
    row_bytes = sizes["gradients"] // work.rows
    rows = min(work.rows, buffer // row_bytes)
    if rows == 0:
        return None
    cuts = [slice(start, min(start + rows, work.rows)) for start in range(0, work.rows, rows)]
    return [(ParameterSlice(name, cut), (cut.stop - cut.start) * row_bytes) for cut in cuts]


def _form_bytes(task: Task, work: Work, run: int) -> dict[str, int]:
    """Bytes of the whole parameter in each form that it can be kept in, for `run` outputs at once."""
    number = task.samples * task.itemsize
    sizes = {"gradients": number * run * work.size}
    if work.outer:
        sizes["outer"] = number * sum(shape.terms * (shape.left + run * shape.right) for shape in work.outer)
    if work.deferred is not None:
        inputs, cotangents = work.deferred
        sizes["deferred"] = number * (inputs + run * cotangents)
    return sizes


def _cost(task: Task, work: Mapping[str, Work], groups: Sequence[Sequence[ParameterSlice]], run: int) -> float:
    """Multiplications of all forward and backward passes, and of the gradients and their products."""
    forward = sum(entry.products for entry in work.values())
    depths, depth = dict[int, int](), 0  # multiplications of a backward pass that ends at the layers of each order
    for entry in sorted(work.values(), key=lambda entry: -entry.order):
        depth += entry.products
        depths[entry.order] = depth
    rounds = -(-task.outputs // run)
    backward = sum(max(depths[work[piece.parameter].order] for piece in group) for group in groups)
    # A forward pass costs about as much as a pass backward from one output.
    passes = task.samples * (forward * rounds * len(groups) + task.outputs * backward)
    return passes + sum(min(costs(task, entry)) for entry in work.values())


def _halvings(value: int) -> list[int]:
    """`value`, half of it, a quarter, … down to 1 (at most 16 of them)."""
    values = [value] if value >= 1 else []
    while value > 1 and len(values) < 16:
        value = -(-value // 2)
        values.append(value)
    return values
