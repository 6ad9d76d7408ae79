"""The diagonal of the tangent kernel alone: squared lengths of gradients, at the cost of a backward pass an output."""

from typing import Unpack

import torch
from torch import nn

from skiplens.core.axes import Tensor
from skiplens.core.errors import InvalidInputError
from skiplens.core.untouched import untouched
from skiplens.derivatives.outputs import OutputChoice
from skiplens.derivatives.samples import Inputs, Samples
from skiplens.derivatives.tangent.assignment import Assignment, assign, assign_generally
from skiplens.derivatives.tangent.buffer import Buffer
from skiplens.derivatives.tangent.calls import PatternChanged
from skiplens.derivatives.tangent.contraction import diagonal_of
from skiplens.derivatives.tangent.options import TangentOptions
from skiplens.derivatives.tangent.plan import Plan, Task, make_plan
from skiplens.derivatives.tangent.problem import Problem, pose


def ntk_diagonal(
    model: nn.Module, inputs: Inputs, outputs: OutputChoice = "trace", **options: Unpack[TangentOptions]
) -> Tensor:
    """The squared lengths of each sample's gradients, Θ[n, n]: what `empirical_ntk` has on its diagonal.

    Args:
        model: Any module.
        inputs: A tensor, a tuple of positional arguments or a mapping of keyword arguments.
        outputs: ``"trace"`` sums over outputs, ``"full"`` keeps them, an index keeps one.
        **options: See `TangentOptions`.

    Returns:
        (samples,), or (samples, outputs) for ``"full"``.
    """
    with untouched(model), torch.no_grad():
        problem = pose(model, inputs, None, outputs, options)
        if problem.algorithm == "products":
            raise InvalidInputError(
                "algorithm='products' gives whole columns of the kernel; for the diagonal use 'auto', 'layers', "
                "'jacobian' or 'rows'."
            )
        try:
            lengths = torch.stack([_lengths(problem, job) for job in assign(problem, problem.budget)]).sum(0)
        except PatternChanged:
            lengths = _lengths(problem, assign_generally(problem, problem.pure.parameters, problem.budget))
    return lengths if problem.selection.separate else lengths.sum(1)


def _lengths(problem: Problem, job: Assignment) -> Tensor:
    """Squared lengths of the gradients of one job's parameters, some samples at a time."""
    pure, chosen = problem.pure, problem.selection.indices
    room = max(problem.budget // 4, problem.budget - job.overhead)
    numbers = sum(entry.size for entry in job.work.values()) * len(chosen) * pure.dtype.itemsize
    count = problem.left.count if problem.coupled else max(1, min(problem.left.count, room // (4 * numbers), 64))
    parts = []
    for where, chunk in problem.left.chunks(count):
        parts.append(_lengths_of(chunk, job, problem, room))
        problem.progress("tangent kernel diagonal", where.stop, problem.left.count)
    return torch.cat(parts)


def _lengths_of(chunk: Samples, job: Assignment, problem: Problem, room: int) -> Tensor:
    # One sample meets only itself: a plan for one sample weighs the forms of each layer rightly.
    alone = Task(1, 0, problem.selection.count, False, problem.pure.dtype.itemsize)
    plan = make_plan(alone, job.work, max(1, room // chunk.count))
    buffer = problem.buffer(plan.memory * chunk.count)
    parts = [_lengths_of_run(chunk, job, plan, run, buffer) for run in problem.selection.runs(plan.outputs_at_once)]
    return torch.cat(parts, dim=1)


def _lengths_of_run(chunk: Samples, job: Assignment, plan: Plan, outputs: tuple[int, ...], buffer: Buffer) -> Tensor:
    lengths = []
    for group in plan.groups:
        buffer.clear()
        lengths += [diagonal_of(factor) for factor in job.source.fill(chunk, group, outputs, buffer)]
    return torch.stack(lengths).sum(0)
