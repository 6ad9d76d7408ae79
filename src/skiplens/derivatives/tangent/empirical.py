"""The empirical neural tangent kernel of any model: exact, in bounded memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Unpack

import torch
from torch import nn

from skiplens.core.axes import Tensor
from skiplens.core.untouched import untouched
from skiplens.derivatives.outputs import OutputChoice
from skiplens.derivatives.samples import Inputs
from skiplens.derivatives.tangent.assignment import Assignment, assign, assign_generally
from skiplens.derivatives.tangent.buffer import Buffer, buffer_bytes
from skiplens.derivatives.tangent.calls import PatternChanged
from skiplens.derivatives.tangent.contraction import KernelSum
from skiplens.derivatives.tangent.options import TangentOptions
from skiplens.derivatives.tangent.pieces import Piece
from skiplens.derivatives.tangent.plan import Plan, make_plan
from skiplens.derivatives.tangent.problem import Problem, pose, require_kernel_fits
from skiplens.derivatives.tangent.products import kernel_by_products
from skiplens.derivatives.tangent.sources import Source

_THRIFT = {"cpu": 1.05, "cuda": 1.0}  # a GPU's memory is its own, and more passes are more launches


def empirical_ntk(
    model: nn.Module,
    inputs: Inputs,
    other: Inputs | None = None,
    outputs: OutputChoice = "trace",
    **options: Unpack[TangentOptions],
) -> Tensor:
    """The kernel of inner products of parameter gradients, Θ[n, o, m, p] = ⟨∇f_o(x_n), ∇f_p(y_m)⟩.

    The model is looked at in the mode it is in. Where a sample's output depends on the rest of the batch (batch norm in
    training mode), f_o(x_n) is that output for the batch as it was handed over.

    Args:
        model: Any module that maps samples to a tensor, a tuple or a mapping (its logits or first tensor is taken).
        inputs: Samples x: a tensor, a tuple of positional arguments or a mapping of keyword arguments.
        other: Samples y; by default x again.
        outputs: ``"trace"`` sums over o = p, ``"full"`` keeps all pairs, an index keeps one output. Outputs with
            several axes are numbered flat; a tuple is an index with one entry an axis.
        **options: See `TangentOptions`: parameters, algorithm, budget, progress.

    Returns:
        (samples, other samples), or (samples, outputs, other samples, outputs) for ``"full"``.

    Examples:
        >>> model = nn.Linear(3, 2, bias=False)
        >>> x = torch.eye(3)
        >>> torch.equal(empirical_ntk(model, x), 2 * torch.eye(3))
        True
    """
    with untouched(model):
        problem = pose(model, inputs, other, outputs, options)
        room = problem.budget - require_kernel_fits(problem)
        if problem.algorithm == "products":
            return kernel_by_products(problem)
        try:
            return _compute(problem, assign(problem, room), room)
        except PatternChanged:
            return _compute(problem, [assign_generally(problem, problem.pure.parameters, room)], room)


@torch.no_grad()
def _compute(problem: Problem, assignments: list[Assignment], room: int) -> Tensor:
    kernel = _empty_kernel(problem)
    thrift = _THRIFT.get(problem.pure.device.type, 1.0)
    plans = [make_plan(problem.task, job.work, _room_for_buffer(room, job), thrift) for job in assignments]
    done, total = 0, sum(_steps(problem, plan) for plan in plans)
    problem.progress("tangent kernel", done, total)
    for job, plan in zip(assignments, plans, strict=True):
        buffer = problem.buffer(plan.memory)
        for outputs in problem.selection.runs(plan.outputs_at_once):
            for group in plan.groups:
                _add_group(problem, kernel, job.source, _Share(group, outputs, buffer))
                done += 1
                problem.progress("tangent kernel", done, total)
    return kernel.result()


@dataclass(frozen=True)
class _Share:
    """A part of the Jacobian that is in memory at once: some pieces, some outputs, and the memory."""

    pieces: Sequence[Piece]
    outputs: Sequence[int]
    buffer: Buffer


def _add_group(problem: Problem, kernel: KernelSum, source: Source, share: _Share) -> None:
    share.buffer.clear()
    left = source.fill(problem.left, share.pieces, share.outputs, share.buffer)
    right = left if problem.right is None else source.fill(problem.right, share.pieces, share.outputs, share.buffer)
    for one, another in zip(left, right, strict=True):
        kernel.add(one, another)


def _room_for_buffer(room: int, job: Assignment) -> int:
    return buffer_bytes(max(room // 4, room - job.overhead))


def _empty_kernel(problem: Problem) -> KernelSum:
    symmetric = problem.right is None
    right = problem.left if problem.right is None else problem.right
    outputs = problem.selection.count if problem.selection.separate else 0
    return KernelSum((problem.left.count, right.count), outputs, symmetric, problem.like)


def _steps(problem: Problem, plan: Plan) -> int:
    return -(-problem.selection.count // plan.outputs_at_once) * len(plan.groups)
