"""Products of gradients, added up piece by piece into the kernel."""

from typing import Unpack

import torch
from torch import Tensor, nn

from skiplens.base.axes import Float
from skiplens.base.errors import InvalidInputError
from skiplens.base.memory import fresh_zeros
from skiplens.base.preserve_state import preserve_state
from skiplens.graph.functional import OutputChoice
from skiplens.graph.inputs import Inputs, Samples
from skiplens.tangent.calls import PatternChanged
from skiplens.tangent.gradients import Buffer, Deferred, GradientForm, Gradients, OuterProducts
from skiplens.tangent.plan import Assignment, KernelPlan, assign, assign_generally, make_plan
from skiplens.tangent.problem import KernelOptions, Problem, Task, make_problem

_SYMMETRIC_BLOCK = 128  # rows of a block of the upper triangle: large enough for full speed, small enough to skip half

_SCRATCH_BYTES = 2**25


class KernelSum:
    """The kernel as it grows: (left samples, right samples), or with an output axis beside each where `separate`.

    Only the upper triangle is computed where left and right are the same samples.
    """

    def __init__(self, counts: tuple[int, int], outputs: int, symmetric: bool, like: Tensor) -> None:
        """Start at zero.

        Args:
            counts: Numbers of left and right samples.
            outputs: Outputs with an axis of their own, or 0 to sum over outputs.
            symmetric: Whether left and right are the same samples.
            like: A tensor with the dtype and device of the kernel.
        """
        self.counts, self.outputs, self.symmetric = counts, outputs, symmetric
        per_sample = outputs or 1
        self.matrix = fresh_zeros(like, counts[0] * per_sample, counts[1] * per_sample)

    def add(self, left: GradientForm, right: GradientForm) -> None:
        """Add the products of all left gradients with all right gradients."""
        if isinstance(left, Gradients) and isinstance(right, Gradients):
            self._add_matrix_product(self._as_rows(left.rows), self._as_rows(right.rows))
        elif isinstance(left, OuterProducts) and isinstance(right, OuterProducts):
            self._add_outer_products(left, right)
        elif isinstance(left, Deferred) and left is right:
            for gradients in left.slices(left.rows_at_once, side=0):
                self.add(gradients, gradients)
        elif isinstance(left, Deferred) and isinstance(right, Deferred):
            rows = min(left.rows_at_once, right.rows_at_once)
            for one, another in zip(left.slices(rows, side=0), right.slices(rows, side=1), strict=True):
                self.add(one, another)

    def result(self) -> Tensor:
        """The kernel, mirrored where only its upper triangle was computed."""
        if self.symmetric:
            for rows in _blocks(self.matrix.shape[0], _SYMMETRIC_BLOCK):
                below = slice(rows.stop, None)
                self.matrix[below, rows] = self.matrix[rows, below].T
                corner = self.matrix[rows, rows]
                self.matrix[rows, rows] = torch.triu(corner) + torch.triu(corner, 1).T
        if not self.outputs:
            return self.matrix
        return self.matrix.reshape(self.counts[0], self.outputs, self.counts[1], self.outputs)

    def _as_rows(self, gradients: Float[Tensor, "samples outputs params"]) -> Float[Tensor, "rows columns"]:
        return gradients.flatten(0, 1) if self.outputs else gradients.flatten(1)

    def _add_matrix_product(self, left: Float[Tensor, "rows params"], right: Float[Tensor, "columns params"]) -> None:
        if not self.symmetric:
            self.matrix.addmm_(left, right.T)
            return
        for rows in _blocks(len(left), _SYMMETRIC_BLOCK):
            self.matrix[rows, rows.start :].addmm_(left[rows], right[rows.start :].T)

    def _add_outer_products(self, left: OuterProducts, right: OuterProducts) -> None:
        size = _block_of_samples(left)
        per_sample = self.outputs or 1
        for rows in _blocks(self.counts[0], size):
            for columns in _blocks(self.counts[1], size):
                if not self.symmetric or columns.start >= rows.start:
                    block = _outer_block(_take(left, rows), _take(right, columns), bool(self.outputs))
                    self.matrix[_widen(rows, per_sample), _widen(columns, per_sample)] += block


def diagonal_of(factor: GradientForm) -> Float[Tensor, "samples outputs"]:
    """Each gradient's squared length."""
    if isinstance(factor, Gradients):
        return torch.linalg.vector_norm(factor.rows, dim=-1).square()
    if isinstance(factor, Deferred):
        slices = factor.slices(factor.rows_at_once, side=0)
        return torch.stack([diagonal_of(gradients) for gradients in slices]).sum(0)
    left, right = factor.left, factor.right
    meet = left @ left.transpose(1, 2) if left.is_floating_point() else left[:, :, None] == left[:, None, :]
    return (meet[:, None] * (right @ right.transpose(2, 3))).sum((2, 3))


def _outer_block(left: OuterProducts, right: OuterProducts, separate: bool) -> Float[Tensor, "rows columns"]:
    inputs = _meetings(left.left, right.left).to(left.right.dtype)
    if not separate:
        return (inputs * _meetings(_join_outputs(left.right), _join_outputs(right.right))).sum((1, 3))
    (n, K, T, C), m = left.right.shape, len(right.right)
    if T == 1:
        cotangents = left.right.reshape(n * K, C) @ right.right.reshape(m * K, C).T
        return (cotangents.reshape(n, K, m, K) * inputs.reshape(n, 1, m, 1)).reshape(n * K, m * K)
    # First the left cotangents are carried to the right terms, then they meet the right ones: K²TC instead of K²T²C.
    carried = inputs.permute(0, 2, 3, 1).reshape(n, m * T, T) @ left.right.transpose(1, 2).reshape(n, T, K * C)
    carried = carried.reshape(n, m, T, K, C).permute(1, 0, 3, 2, 4).reshape(m, n * K, T * C)
    block = carried @ right.right.reshape(m, K, T * C).transpose(1, 2)
    return block.permute(1, 0, 2).reshape(n * K, m * K)


def _meetings(left: Tensor, right: Tensor) -> Tensor:
    """Inner products of all left terms with all right terms: (samples, terms, samples, terms)."""
    if not left.is_floating_point():
        return left[:, :, None, None] == right[None, None, :, :]
    (n, T, C), (m, S, _) = left.shape, right.shape
    return (left.reshape(n * T, C) @ right.reshape(m * S, C).T).reshape(n, T, m, S)


def _join_outputs(right: Float[Tensor, "samples outputs terms channels"]) -> Float[Tensor, "samples terms joined"]:
    return right.transpose(1, 2).flatten(2)


def _take(factor: OuterProducts, samples: slice) -> OuterProducts:
    return OuterProducts(factor.left[samples], factor.right[samples])


def _block_of_samples(factor: OuterProducts) -> int:
    _, K, T, C = factor.right.shape
    per_pair = max(2 * T * T, T * K * C + K * K) * factor.right.element_size()
    return max(1, int((_SCRATCH_BYTES / per_pair) ** 0.5))


def _blocks(total: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, total)) for start in range(0, total, size)]


def _widen(samples: slice, outputs: int) -> slice:
    return slice(samples.start * outputs, samples.stop * outputs)


def ntk_diagonal(
    model: nn.Module, inputs: Inputs, outputs: OutputChoice = "trace", **options: Unpack[KernelOptions]
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
    with preserve_state(model), torch.no_grad():
        problem = make_problem(model, inputs, None, outputs, options)
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


def _lengths_of_run(
    chunk: Samples, job: Assignment, plan: KernelPlan, outputs: tuple[int, ...], buffer: Buffer
) -> Tensor:
    lengths = []
    for group in plan.groups:
        buffer.clear()
        lengths += [diagonal_of(factor) for factor in job.source.fill(chunk, group, outputs, buffer)]
    return torch.stack(lengths).sum(0)
