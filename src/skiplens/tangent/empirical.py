"""The empirical neural tangent kernel of any model: exact, in bounded memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Unpack

import torch
from torch import Tensor, nn

from skiplens.base.preserve_state import preserve_state
from skiplens.graph.functional import OutputChoice
from skiplens.graph.inputs import Inputs
from skiplens.linalg.conditioning import condition_number
from skiplens.linalg.lanczos import LanczosOptions, extreme_eigenpairs
from skiplens.tangent.calls import PatternChanged
from skiplens.tangent.contraction import KernelSum
from skiplens.tangent.gradients import Buffer, ParameterSlice, Source, buffer_bytes
from skiplens.tangent.plan import Assignment, KernelPlan, assign, assign_generally, make_plan
from skiplens.tangent.problem import KernelOptions, Problem, make_problem, require_kernel_fits
from skiplens.tangent.products import NTKOperator, kernel_by_products

_THRIFT = {"cpu": 1.05, "cuda": 1.0}  # a GPU's memory is its own, and more passes are more launches


def empirical_ntk(
    model: nn.Module,
    inputs: Inputs,
    other: Inputs | None = None,
    outputs: OutputChoice = "trace",
    **options: Unpack[KernelOptions],
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
    with preserve_state(model):
        problem = make_problem(model, inputs, other, outputs, options)
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

    pieces: Sequence[ParameterSlice]
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


def _steps(problem: Problem, plan: KernelPlan) -> int:
    return -(-problem.selection.count // plan.outputs_at_once) * len(plan.groups)


_LARGEST_DENSE = 2048  # rows; the eigenvalues of a matrix of this size take seconds


@dataclass(frozen=True)
class KernelCondition:
    """The ends of a tangent kernel's spectrum.

    Attributes:
        largest: Largest eigenvalue.
        smallest: Smallest eigenvalue.
        largest_error: An eigenvalue lies at most this far from `largest`.
        smallest_error: An eigenvalue lies at most this far from `smallest`.
        converged: Whether both errors are within the tolerance that was asked for.
        resolution: Eigenvalues below this cannot be told from zero in the kernel's dtype.
    """

    largest: float
    smallest: float
    largest_error: float
    smallest_error: float
    converged: bool
    resolution: float

    @property
    def condition_number(self) -> float:
        """Largest over smallest eigenvalue; infinite where the smallest cannot be told from zero."""
        return condition_number(self.largest, self.smallest, self.resolution)


def ntk_condition(
    model: nn.Module,
    inputs: Inputs,
    generator: torch.Generator,
    outputs: OutputChoice = "full",
    lanczos: LanczosOptions | None = None,
    **options: Unpack[KernelOptions],
) -> KernelCondition:
    """The largest and smallest eigenvalue of the tangent kernel and its condition number.

    A kernel of at most 2,048 rows is formed and its eigenvalues are exact; a larger one, or any where `lanczos` options
    are given, is only multiplied with. The upper end then converges within tens of products; the lower end of a badly
    conditioned kernel may not, and `converged` says so.

    Args:
        model: Any module.
        inputs: A tensor, a tuple of positional arguments or a mapping of keyword arguments.
        generator: Source of the start vectors.
        outputs: ``"full"``, ``"trace"`` or an index.
        lanczos: Tolerance, products, basis and block size; given, the kernel is not formed.
        **options: See `TangentOptions`.
    """
    operator = NTKOperator(model, inputs, outputs, **options)
    resolution = operator.size * torch.finfo(operator.dtype).eps
    if lanczos is None and operator.size <= _LARGEST_DENSE:
        return _dense(empirical_ntk(model, inputs, None, outputs, **options), operator.size, resolution)
    pairs = extreme_eigenpairs(operator, generator, 1, 1 if operator.size > 1 else 0, lanczos)
    (smallest, largest), (low, high) = pairs.values[[0, -1]].tolist(), pairs.residuals[[0, -1]].tolist()
    return KernelCondition(largest, smallest, high, low, bool(pairs.converged.all()), resolution * largest)


def _dense(kernel: Tensor, size: int, resolution: float) -> KernelCondition:
    values = torch.linalg.eigvalsh(kernel.reshape(size, size))
    smallest, largest = values[0].item(), values[-1].item()
    error = resolution * largest
    return KernelCondition(largest, smallest, error, error, True, error)
