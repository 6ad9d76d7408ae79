"""What the tangent lens saw: the empirical tangent kernel of a model on a few samples."""

from dataclasses import dataclass

import torch

from skiplens.core.axes import Float, Int, Tensor
from skiplens.readings.reading import Reading


@dataclass(frozen=True, kw_only=True, eq=False)
class TangentReading(Reading, kind="tangent"):
    """The tangent kernel summed over outputs, and what follows from it.

    Attributes:
        kernel: Θ(x, x′) = Σ_o ⟨∇f_o(x), ∇f_o(x′)⟩.
        targets: The classes of the samples, or empty where the targets are no classes.
        angles: Angles between the inputs, or empty where the inputs are no vectors (token ids).
        parameters: How many parameters were differentiated.
        batch_coupled: Whether a sample's output depends on the other samples (batch norm in training mode).
    """

    kernel: Float[Tensor, "samples samples"]
    targets: Int[Tensor, " samples"]
    angles: Float[Tensor, "samples samples"]
    parameters: int
    batch_coupled: bool

    @property
    def eigenvalues(self) -> Float[Tensor, " samples"]:
        """The eigenvalues of the kernel, largest first: how fast each direction of the outputs is learned."""
        return torch.linalg.eigvalsh(self.kernel.double()).flip(0)

    @property
    def condition_number(self) -> float:
        """Largest over smallest eigenvalue; infinite where the kernel is singular to working precision."""
        values = self.eigenvalues
        floor = values[0] * len(values) * torch.finfo(self.kernel.dtype).eps
        return float(values[0] / values[-1]) if values[-1] > floor else float("inf")

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
