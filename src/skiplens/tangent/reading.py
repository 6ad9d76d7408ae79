"""What the tangent lens saw: the empirical tangent kernel of a model on a few samples."""

from collections.abc import Mapping
from dataclasses import field
from typing import ClassVar

import torch
from torch import Tensor

from skiplens.base.axes import Float, Int
from skiplens.linalg.conditioning import condition_number
from skiplens.readings.reading import Reading, no_numbers


class TangentReading(Reading, kind="tangent"):
    """The tangent kernel summed over outputs, and what follows from it."""

    may_lack: ClassVar[Mapping[str, str]] = {"predicted_variance": "theory does not know this network"}

    kernel: Float[Tensor, "samples samples"]  # Θ(x, x′) = Σ_o ⟨∇f_o(x), ∇f_o(x′)⟩
    targets: Int[Tensor, " classified"]  # the classes of the samples, or empty where the targets are no classes
    # angles between the inputs, or empty where the inputs are no vectors (token ids)
    angles: Float[Tensor, "vectors vectors"]
    parameters: int  # how many parameters were differentiated
    batch_coupled: bool  # whether a sample's output depends on the other samples (batch norm in training mode)
    outputs: int = 0  # how many outputs a sample has; 0 in files from before this was reported
    sampled_outputs: int = 0  # how many of them, drawn at random, the kernel was estimated from; 0 for all
    # standard error of each entry of an estimated kernel; empty where it is exact
    kernel_error: Float[Tensor, "estimated estimated"] = field(default_factory=lambda: no_numbers(0, 0))
    # Θ(x, x) of one output by the parameters of the branches, for networks redrawn with other seeds; empty if not
    # measured
    seed_diagonals: Float[Tensor, "seeds few"] = field(default_factory=lambda: no_numbers(0, 0))
    # the relative variance of that number in theory; NaN where theory does not know the network
    predicted_variance: float = float("nan")
    # the correlations of the infinitely wide network of this architecture; empty where none is known
    limit_correlations: Float[Tensor, "compared compared"] = field(default_factory=lambda: no_numbers(0, 0))
    # those of this network by the parameters of its branches, to compare with
    branch_correlations: Float[Tensor, "compared compared"] = field(default_factory=lambda: no_numbers(0, 0))
    # the kernel of this very module with infinite widths and the variances of its weights, on the first samples; empty
    # where it has no such limit or it would take too long
    module_limit: Float[Tensor, "limited limited"] = field(default_factory=lambda: no_numbers(0, 0))
    depth_steps: tuple[str, ...] = ()  # its nonlinearities, each with the matrix behind it
    # slope χ₁, fixed variance q*, fixed correlation c* and depth scale ξ of each
    depth_scales: Float[Tensor, "steps 4"] = field(default_factory=lambda: no_numbers(0, 4))
    no_limit: str = ""  # why there is none; empty in files from before this was reported
    limit_operations: tuple[str, ...] = ()  # of the limit, in order
    # behind each of them the variance of the first sample and the correlation of the first two
    limit_maps: Float[Tensor, "operations 2"] = field(default_factory=lambda: no_numbers(0, 2))
    notes: tuple[str, ...] = ()  # what a person should know before reading on
    classes: tuple[str, ...] = ()  # the names of the classes, where the data knows them
    pictures: tuple[str, ...] = ()  # of the samples, where they are images; see `skiplens.plots.thumbnails`

    @property
    def eigenvalues(self) -> Float[Tensor, " samples"]:
        """The eigenvalues of the kernel, largest first: how fast each direction of the outputs is learned.

        NaN where an entry of the kernel passed the largest number of its type.
        """
        kernel = self.kernel.double()
        if not bool(kernel.isfinite().all()):
            return torch.full_like(kernel[0], float("nan"))
        return torch.linalg.eigvalsh(kernel).flip(0)

    @property
    def condition_number(self) -> float:
        """Largest over smallest eigenvalue; infinite where the kernel is singular to working precision, NaN for NaN."""
        values = self.eigenvalues
        if bool(values.isnan().any()):
            return float("nan")
        resolution = values[0] * len(values) * torch.finfo(self.kernel.dtype).eps
        return condition_number(float(values[0]), float(values[-1]), float(resolution))

    @property
    def effective_rank(self) -> float:
        """(tr Θ)² / ‖Θ‖²: how many directions share the kernel, between 1 and the number of samples."""
        kernel = self.kernel.double()
        return float(kernel.trace() ** 2 / (kernel * kernel).sum())

    @property
    def correlations(self) -> Float[Tensor, "samples samples"]:
        """The kernel divided by its diagonal, Θ(x, x′)/√(Θ(x, x) Θ(x′, x′))."""
        scale = self.kernel.diagonal().clamp_min(torch.finfo(self.kernel.dtype).tiny).sqrt()
        return self.kernel / scale[:, None] / scale[None, :]

    @property
    def alignment(self) -> float | None:
        """Correlation, over all pairs of different samples, of the kernel with 'same class', between −1 and 1.

        A sample's kernel with itself is left out: it would make any kernel look aligned. None where no pair is of the
        same class, or all are.
        """
        if not len(self.targets):
            return None
        first, second = torch.triu_indices(len(self.kernel), len(self.kernel), offset=1)
        same = (self.targets[first] == self.targets[second]).double()
        if not 0 < same.mean() < 1:
            return None
        return float(torch.corrcoef(torch.stack([self.correlations[first, second].double(), same]))[0, 1])

    @property
    def seed_variance(self) -> tuple[float, float]:
        """Variance over mean² of Θ(x, x) over seeds, averaged over samples, and its jackknife error; NaN without seeds.

        A heavy tail makes it an underestimate with few seeds; the error tells how far to trust it.
        """
        rows = self.seed_diagonals.double()
        if len(rows) < 3:
            return float("nan"), float("nan")
        without_one = torch.stack([_relative_variance(torch.cat([rows[:i], rows[i + 1 :]])) for i in range(len(rows))])
        count = len(rows)
        error = ((count - 1) / count * (without_one - without_one.mean()).square().sum()).sqrt()
        return float(_relative_variance(rows)), float(error)

    @property
    def limit_distance(self) -> float:
        """Root mean square difference, over pairs of samples, from the infinitely wide network; NaN without one."""
        if not self.limit_correlations.numel():
            return float("nan")
        first, second = torch.triu_indices(len(self.kernel), len(self.kernel), offset=1)
        difference = self.branch_correlations.double() - self.limit_correlations.double()
        return float(difference[first, second].square().mean().sqrt())

    @property
    def module_limit_deviation(self) -> float:
        """‖Θ − Θ_∞‖/‖Θ_∞‖ from the limit of this module, in the Frobenius norm; NaN without one."""
        count = len(self.module_limit)
        if not count:
            return float("nan")
        difference = self.kernel[:count, :count].double() - self.module_limit
        return float(torch.linalg.matrix_norm(difference) / torch.linalg.matrix_norm(self.module_limit))


def _relative_variance(rows: Float[Tensor, "seeds samples"]) -> Tensor:
    return (rows.var(0) / rows.mean(0).square()).mean()
