"""What is asked, checked once at the door: model, samples, outputs, memory."""

import math
from dataclasses import dataclass

import torch
from torch import nn

from skiplens.core.axes import Tensor
from skiplens.core.memory import budget_bytes, require_fits
from skiplens.core.progress import Progress, silent
from skiplens.derivatives.functional import PureModel, is_batch_coupled, output_shape, pure_model
from skiplens.derivatives.outputs import OutputChoice, OutputSelection, select_outputs
from skiplens.derivatives.samples import Inputs, Samples, samples_of
from skiplens.derivatives.tangent.buffer import Buffer
from skiplens.derivatives.tangent.options import TangentOptions, check_options
from skiplens.derivatives.tangent.plan import Task


@dataclass(frozen=True)
class Problem:
    """A kernel to compute.

    Attributes:
        pure: The model as a function of its chosen parameters.
        left: Samples of the kernel's rows.
        right: Samples of its columns, or None where they are those of the rows.
        selection: The outputs that are looked at.
        all_outputs: How many outputs a sample has.
        coupled: Whether a sample's outputs depend on the whole batch.
        algorithm: The algorithm asked for.
        budget: Bytes that may be used.
        progress: Called as work is done.
    """

    pure: PureModel
    left: Samples
    right: Samples | None
    selection: OutputSelection
    all_outputs: int
    coupled: bool
    algorithm: str
    budget: int
    progress: Progress

    @property
    def task(self) -> Task:
        """The sizes that a plan depends on."""
        right = self.right.count if self.right else 0
        return Task(self.left.count, right, self.selection.count, self.selection.separate, self.pure.dtype.itemsize)

    @property
    def like(self) -> Tensor:
        """An empty tensor with the dtype and device of the kernel."""
        return torch.empty(0, dtype=self.pure.dtype, device=self.pure.device)

    def buffer(self, size: int) -> Buffer:
        """Memory of `size` bytes for gradients."""
        return Buffer(self.like, size // self.pure.dtype.itemsize)

    @property
    def most_samples(self) -> Samples:
        """The side with more samples: a probe on it tells more."""
        return self.right if self.right and self.right.count > self.left.count else self.left


def pose(
    model: nn.Module, inputs: Inputs, other: Inputs | None, outputs: OutputChoice, options: TangentOptions
) -> Problem:
    """The problem that these arguments mean, or one clear error."""
    check_options(options)
    pure = pure_model(model, options.get("parameters"))
    left, right = samples_of(inputs), None if other is None else samples_of(other)
    shape = output_shape(pure, left)
    if right is not None:
        output_shape(pure, right)
    return Problem(
        pure,
        left,
        right,
        select_outputs(outputs, shape),
        math.prod(shape),
        is_batch_coupled(pure, left) or (right is not None and is_batch_coupled(pure, right)),
        options.get("algorithm", "auto"),
        budget_bytes(pure.device, options.get("budget")),
        options.get("progress", silent),
    )


def require_kernel_fits(problem: Problem) -> int:
    """Bytes of the kernel itself, refused where it does not leave room to compute it."""
    task = problem.task
    per_sample = task.outputs if task.separate else 1
    rows, columns = task.left * per_sample, (task.right or task.left) * per_sample
    needed = rows * columns * task.itemsize
    fitting = int((problem.budget / 2 / task.itemsize) ** 0.5) // per_sample
    instead = f"At most {fitting} samples on each side fit"
    instead += "; outputs='trace' or one output takes far less" if task.separate and task.outputs > 1 else ""
    what = f"A tangent kernel of {rows} × {columns} entries and the room to compute it"
    require_fits(
        2 * needed, what, f"{instead}; NTKOperator multiplies with the kernel without forming it.", problem.budget
    )
    return needed
