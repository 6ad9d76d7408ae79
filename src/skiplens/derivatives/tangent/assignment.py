"""Which algorithm computes which parameters' contribution: rules where they hold, else the quicker general one."""

import time
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from skiplens.core.randomness import Randomness
from skiplens.derivatives.functional import PureModel, saved_bytes_per_sample
from skiplens.derivatives.samples import Samples
from skiplens.derivatives.tangent.cover import find_cover
from skiplens.derivatives.tangent.layers import LayerRows
from skiplens.derivatives.tangent.pieces import Piece
from skiplens.derivatives.tangent.problem import Problem
from skiplens.derivatives.tangent.sources import SingleRows, Source, VectorisedRows
from skiplens.derivatives.tangent.work import Work, layer_work, plain_work

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
    cover = find_cover(pure, samples)
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
    pieces = [Piece(name, slice(0, entry.rows)) for name, entry in assignment.work.items()]
    few: Samples = problem.most_samples.take(slice(0, 2))
    seconds = []
    for _ in range(2):  # the first time, torch also chooses and loads what it needs
        start = time.perf_counter()
        assignment.source.fill(few, pieces, problem.selection.indices[:2], problem.buffer(0))
        seconds.append(time.perf_counter() - start)
    return min(seconds)
