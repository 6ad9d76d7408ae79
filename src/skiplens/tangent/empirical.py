"""The empirical neural tangent kernel of any model, exact and in bounded memory; its diagonal and its ends.

`problem` checks what is asked, `plan` chooses how to go through the Jacobian, a source (`gradients`, `layers`) fills
its pieces, and `contraction` multiplies them.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from skiplens.base import InvalidInputError, Progress, Randomness, give_back, silent
from skiplens.base.preserve_state import preserve_state
from skiplens.graph.functional import OutputChoice, ParameterChoice
from skiplens.graph.inputs import Inputs
from skiplens.linalg.conditioning import condition_number
from skiplens.linalg.lanczos import LanczosOptions, extreme_eigenpairs
from skiplens.tangent.calls import PatternChanged
from skiplens.tangent.gradients import KernelSum, buffer_bytes, diagonal_of
from skiplens.tangent.plan import Assignment, assign, assign_generally, make_plan
from skiplens.tangent.problem import Algorithm, Problem, Task, make_problem, require_kernel_fits
from skiplens.tangent.products import NTKOperator, kernel_by_products

_THRIFT = {"cpu": 1.05, "cuda": 1.0}  # a GPU's memory is its own, and more passes are more launches
_LARGEST_DENSE = 2048  # rows; the eigenvalues of a matrix of this size take seconds


def empirical_ntk(  # noqa: PLR0913 - options by keyword
    model: nn.Module,
    inputs: Inputs,
    other: Inputs | None = None,
    *,
    outputs: OutputChoice = "trace",
    parameters: ParameterChoice = None,
    algorithm: Algorithm = "auto",
    memory: int | None = None,
    progress: Progress = silent,
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
        parameters: Names of the parameters to differentiate, or a test on names; all that require a gradient if not
            given.
        algorithm: ``"auto"`` takes what is quickest by count; the others are there to check each other.
        memory: Bytes that may be used, the result included; half of what is free if not given.
        progress: Called with a label, the steps done and the steps in all.

    Returns:
        (samples, other samples), or (samples, outputs, other samples, outputs) for ``"full"``.

    Examples:
        >>> model = nn.Linear(3, 2, bias=False)
        >>> x = torch.eye(3)
        >>> torch.equal(empirical_ntk(model, x), 2 * torch.eye(3))
        True
    """
    with preserve_state(model):
        return kernel_of(make_problem(model, inputs, other, outputs, parameters, algorithm, memory, progress))


def kernel_of(problem: Problem) -> Tensor:
    """The kernel that a problem asks for; to be called where the state of its model is preserved."""
    room = problem.budget - require_kernel_fits(problem)
    if problem.algorithm == "products":
        return kernel_by_products(problem)
    try:
        return _compute(problem, assign(problem, room), room)
    except PatternChanged:
        return _compute(problem, [assign_generally(problem, problem.pure.parameters, room)], room)


@torch.no_grad()
def _compute(problem: Problem, assignments: list[Assignment], room: int) -> Tensor:
    """The kernel, piece by piece: of some parameters and some outputs the gradients of all samples at once."""
    give_back()  # the graph of the probe
    left, right = problem.left, problem.left if problem.right is None else problem.right
    outputs = problem.selection.count if problem.selection.separate else 0
    kernel = KernelSum((left.count, right.count), outputs, problem.right is None, problem.like)
    thrift = _THRIFT.get(problem.pure.device.type, 1.0)
    plans = [make_plan(problem.task, job.work, buffer_bytes(job.room_in(room)), thrift) for job in assignments]
    runs = [problem.selection.runs(plan.outputs_at_once) for plan in plans]
    done, total = 0, sum(len(some) * len(plan.groups) for some, plan in zip(runs, plans, strict=True))
    problem.progress("tangent kernel", done, total)
    for job, plan, some in zip(assignments, plans, runs, strict=True):
        buffer = problem.buffer(plan.memory)
        for run in some:
            for group in plan.groups:
                buffer.clear()
                ones = job.source.fill(left, group, run, buffer)
                others = ones if problem.right is None else job.source.fill(right, group, run, buffer)
                for one, another in zip(ones, others, strict=True):
                    kernel.add(one, another)
                done += 1
                problem.progress("tangent kernel", done, total)
    return kernel.result()


def ntk_diagonal(  # noqa: PLR0913 - options by keyword
    model: nn.Module,
    inputs: Inputs,
    *,
    outputs: OutputChoice = "trace",
    parameters: ParameterChoice = None,
    algorithm: Algorithm = "auto",
    memory: int | None = None,
    progress: Progress = silent,
) -> Tensor:
    """The squared lengths of each sample's gradients, Θ[n, n]: what `empirical_ntk` has on its diagonal.

    Args:
        model: Any module.
        inputs: A tensor, a tuple of positional arguments or a mapping of keyword arguments.
        outputs: ``"trace"`` sums over outputs, ``"full"`` keeps them, an index keeps one.
        parameters: As in `empirical_ntk`,
        algorithm: likewise, but not ``"products"``,
        memory: likewise,
        progress: likewise.

    Returns:
        (samples,), or (samples, outputs) for ``"full"``.
    """
    if algorithm == "products":
        raise InvalidInputError(
            "algorithm='products' gives whole columns of the kernel; for the diagonal use 'auto', 'layers', "
            "'jacobian' or 'rows'."
        )
    with preserve_state(model), torch.no_grad():
        problem = make_problem(model, inputs, None, outputs, parameters, algorithm, memory, progress)
        try:
            lengths = torch.stack([_lengths(problem, job) for job in assign(problem, problem.budget)]).sum(0)
        except PatternChanged:
            lengths = _lengths(problem, assign_generally(problem, problem.pure.parameters, problem.budget))
    return lengths if problem.selection.separate else lengths.sum(1)


def _lengths(problem: Problem, job: Assignment) -> Tensor:
    """Squared lengths of the gradients of one job's parameters, some samples at a time."""
    pure, samples, room = problem.pure, problem.left, job.room_in(problem.budget)
    numbers = sum(entry.size for entry in job.work.values()) * problem.selection.count * pure.dtype.itemsize
    count = samples.count if problem.coupled else max(1, min(samples.count, room // (4 * numbers), 64))
    # One sample meets only itself: a plan for one sample weighs the forms of each layer rightly.
    alone = Task(1, 0, problem.selection.count, False, pure.dtype.itemsize)
    parts = []
    for where, chunk in samples.chunks(count):
        plan = make_plan(alone, job.work, max(1, room // chunk.count))
        buffer, columns = problem.buffer(plan.memory * chunk.count), []
        for run in problem.selection.runs(plan.outputs_at_once):
            lengths = []
            for group in plan.groups:
                buffer.clear()
                lengths += [diagonal_of(form) for form in job.source.fill(chunk, group, run, buffer)]
            columns.append(torch.stack(lengths).sum(0))
        parts.append(torch.cat(columns, dim=1))
        problem.progress("tangent kernel diagonal", where.stop, samples.count)
    return torch.cat(parts)


@dataclass(frozen=True)
class KernelCondition:
    """The ends of a tangent kernel's spectrum.

    Attributes:
        largest_error: An eigenvalue lies at most this far from the `largest`.
        smallest_error: An eigenvalue lies at most this far from the `smallest`.
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


def ntk_condition(  # noqa: PLR0913 - options by keyword
    model: nn.Module,
    inputs: Inputs,
    *,
    outputs: OutputChoice = "full",
    parameters: ParameterChoice = None,
    lanczos: LanczosOptions | None = None,
    memory: int | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> KernelCondition:
    """The largest and smallest eigenvalue of the tangent kernel and its condition number.

    A kernel of at most 2,048 rows is formed and its eigenvalues are exact; a larger one, or any where `lanczos` options
    are given, is only multiplied with. The upper end then converges within tens of products; the lower end of a badly
    conditioned kernel may not, and `converged` says so.

    Args:
        model: Any module.
        inputs: A tensor, a tuple of positional arguments or a mapping of keyword arguments.
        outputs: ``"full"``, ``"trace"`` or an index.
        parameters: As in `empirical_ntk`.
        lanczos: Tolerance, products, basis and block size; given, the kernel is not formed.
        memory: Bytes that may be used; half of what is free if not given.
        seed: Names the start vectors.
        progress: Called as a kernel is formed.
    """
    operator = NTKOperator(model, inputs, outputs=outputs, parameters=parameters, memory=memory)
    resolution = operator.size * torch.finfo(operator.dtype).eps
    if lanczos is None and operator.size <= _LARGEST_DENSE:
        kernel = empirical_ntk(model, inputs, outputs=outputs, parameters=parameters, memory=memory, progress=progress)
        values = torch.linalg.eigvalsh(kernel.reshape(operator.size, operator.size))
        smallest, largest = values[0].item(), values[-1].item()
        error = resolution * largest
        return KernelCondition(largest, smallest, error, error, True, error)
    generator = Randomness(seed).child("ntk_condition").torch()
    pairs = extreme_eigenpairs(operator, generator, 1, 1 if operator.size > 1 else 0, lanczos)
    (smallest, largest), (low, high) = pairs.values[[0, -1]].tolist(), pairs.residuals[[0, -1]].tolist()
    return KernelCondition(largest, smallest, high, low, bool(pairs.converged.all()), resolution * largest)
