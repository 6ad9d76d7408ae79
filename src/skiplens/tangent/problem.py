"""What is asked of a tangent kernel, checked once at the door: model, samples, outputs, memory."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from skiplens.base import Progress, budget_bytes, require_fits, require_known, silent
from skiplens.graph import functional
from skiplens.graph.inputs import Inputs, Samples, samples_of
from skiplens.tangent.gradients import Buffer

Algorithm = Literal["auto", "layers", "jacobian", "rows", "products"]
"""``"auto"`` takes what is quickest by count; the others are there to check each other."""


@dataclass(frozen=True)
class Task:
    """What the planner must know of the kernel: how many samples and outputs, and the bytes of a number."""

    left: int
    right: int  # samples that differ from those on the left; 0 for a symmetric kernel
    outputs: int
    separate: bool  # whether outputs keep their own axis, so that all of them must be there at once
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
class Problem:
    """A kernel to compute."""

    pure: functional.PureModel  # a function of the chosen parameters
    left: Samples
    right: Samples | None  # None where they are those on the left
    selection: functional.OutputSelection  # the outputs that are looked at
    all_outputs: int  # of a sample
    coupled: bool  # whether a sample's outputs depend on the whole batch
    algorithm: Algorithm
    budget: int  # bytes that may be used
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


def make_problem(  # noqa: PLR0913 - what the public functions take
    model: nn.Module,
    inputs: Inputs,
    other: Inputs | None,
    outputs: functional.OutputChoice,
    parameters: functional.ParameterChoice = None,
    algorithm: Algorithm = "auto",
    memory: int | None = None,
    progress: Progress = silent,
) -> Problem:
    """The problem that these arguments mean, or one clear error."""
    require_known(algorithm, get_args(Algorithm), f"There is no algorithm {algorithm!r}.")
    pure = functional.pure_model(model, parameters)
    left, right = samples_of(inputs), None if other is None else samples_of(other)
    shape = functional.output_shape(pure, left)
    if right is not None:
        functional.output_shape(pure, right)
    selection, count = functional.select_outputs(outputs, shape), math.prod(shape)
    coupled = any(functional.is_batch_coupled(pure, side) for side in (left, right) if side is not None)
    budget = budget_bytes(pure.device, memory)
    return Problem(pure, left, right, selection, count, coupled, algorithm, budget, progress)


def require_kernel_fits(problem: Problem) -> int:
    """Bytes of the kernel itself, refused where it does not leave room to compute it."""
    task = problem.task
    per_sample = task.outputs if task.separate else 1
    rows, columns = task.left * per_sample, (task.right or task.left) * per_sample
    needed = rows * columns * task.itemsize
    fitting = int((max(0, problem.budget) / 2 / task.itemsize) ** 0.5) // per_sample
    instead = f"At most {fitting} samples on each side fit"
    instead += "; outputs='trace' or one output takes far less" if task.separate and task.outputs > 1 else ""
    instead += "; NTKOperator multiplies with the kernel without forming it."
    what = f"A tangent kernel of {rows} × {columns} entries and the room to compute it"
    require_fits(2 * needed, what, instead, problem.budget)
    return needed
