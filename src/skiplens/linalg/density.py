"""The spectral density of an operator by stochastic Lanczos quadrature.

For a random probe v the Lanczos matrix T holds the best quadrature for the measure μ_v that the eigenvalues carry when
each is weighted by how much of v lies along it; the mean of μ_v over probes is the density of eigenvalues.
"""

from dataclasses import dataclass

import torch

from skiplens.core.axes import Bool, Float, Tensor
from skiplens.core.errors import InvalidInputError
from skiplens.core.progress import Progress, silent
from skiplens.core.randomness import Randomness
from skiplens.linalg.operator import SymmetricOperator
from skiplens.linalg.probe_lanczos import Recurrences, tridiagonalise_each
from skiplens.linalg.probes import draw


@dataclass(frozen=True)
class SpectralDensity:
    """A quadrature for each probe: row i are its nodes in ascending order and their weights, which add up to one."""

    nodes: Float[Tensor, "probes steps"]
    weights: Float[Tensor, "probes steps"]
    residuals: Float[Tensor, "probes steps"]
    """An eigenvalue lies within this distance of each node."""
    size: int
    """Number of eigenvalues."""

    @property
    def probes(self) -> int:
        """Number of independent quadratures."""
        return self.nodes.shape[0]

    @property
    def complete(self) -> Bool[Tensor, " probes"]:
        """Where the Krylov space of a probe ended: its quadrature is its measure, not an approximation."""
        return (self.residuals == 0).all(1)

    def merged(self) -> tuple[Float[Tensor, " nodes"], Float[Tensor, " nodes"]]:
        """All nodes in ascending order with weights that add up to one."""
        nodes, order = self.nodes.flatten().sort()
        return nodes, self.weights.flatten()[order] / self.probes

    def share_below(self, levels: Float[Tensor, " levels"]) -> Float[Tensor, "probes levels"]:
        """For each probe the weight of its nodes strictly below each level."""
        return _gather(self._sums(), self._count(levels, right=False))

    def bounds_below(
        self, levels: Float[Tensor, " levels"]
    ) -> tuple[Float[Tensor, "probes levels"], Float[Tensor, "probes levels"]]:
        """For each probe the least and the most that its measure can have below (or up to) each level.

        The inequalities of Chebyshev, Markov and Stieltjes: below a node lies at least the weight of the nodes before
        it, and up to a node at most that weight and its own. They hold for any spectrum.
        """
        sums, last = self._sums(), self.nodes.shape[1]
        low = _gather(sums, (self._count(levels, right=True) - 1).clamp_min(0))
        high = _gather(sums, (self._count(levels, right=False) + 1).clamp_max(last))
        exact = self.share_below(levels)
        whole = self.complete[:, None]
        return torch.where(whole, exact, low), torch.where(whole, exact, high)

    def smoothed(
        self, grid: Float[Tensor, " grid"], width: float
    ) -> tuple[Float[Tensor, " grid"], Float[Tensor, " grid"]]:
        """The density on `grid`, each node spread to a normal curve of this width, and its standard error."""
        curves = normal_curves(self.nodes, self.weights, grid, width)
        return curves.mean(0), curves.std(0) / self.probes**0.5

    def _sums(self) -> Float[Tensor, "probes ranks"]:
        """Weights of the first 0, 1, 2, … nodes."""
        return torch.nn.functional.pad(self.weights.cumsum(1), (1, 0))

    def _count(self, levels: Tensor, right: bool) -> Tensor:
        return torch.searchsorted(self.nodes, levels.expand(self.probes, -1).contiguous(), right=right)


def normal_curves(
    nodes: Float[Tensor, "probes steps"],
    weights: Float[Tensor, "probes steps"],
    grid: Float[Tensor, " grid"],
    width: float,
) -> Float[Tensor, "probes grid"]:
    """For each row of nodes the sum of normal curves of this width and of these weights, on `grid`."""
    if not width > 0:
        raise InvalidInputError(f"A density was asked for with width={width}; the width must be positive.")
    distance = (grid[None, None, :] - nodes[:, :, None]) / width
    return (weights[:, :, None] * torch.exp(-distance.square() / 2)).sum(1) / (width * (2 * torch.pi) ** 0.5)


@dataclass(frozen=True)
class DensityOptions:
    """How much is drawn and kept."""

    probes: int = 4
    """Random vectors; at least 2, whose scatter is the error."""
    steps: int = 30
    """Products for each."""
    at_once: int | None = None
    """Probes multiplied as one block; all of them if not given. The numbers do not depend on it."""
    reorthogonalise: bool = True
    """Keep every vector (size × probes at once × steps numbers); see `tridiagonalise_each`."""


def spectral_density(
    operator: SymmetricOperator,
    randomness: Randomness,
    options: DensityOptions | None = None,
    progress: Progress = silent,
) -> SpectralDensity:
    """The density of the operator's eigenvalues, from `probes` × `steps` products.

    Examples:
        >>> from skiplens.linalg.operator import DenseOperator
        >>> matrix = DenseOperator(torch.diag(torch.tensor([1.0, 1.0, 3.0, 3.0], dtype=torch.float64)))
        >>> nodes, weights = spectral_density(matrix, Randomness(0)).merged()
        >>> round(float(weights[nodes > 2].sum()), 6)
        0.5
    """
    options = options or DensityOptions()
    if options.probes < 2 or options.steps < 1:
        raise InvalidInputError(
            f"A density was asked for with probes={options.probes} and steps={options.steps}; it takes at least 2 "
            "probes, whose scatter is its error, and at least 1 step."
        )
    numbers = range(options.probes)
    width = max(1, options.at_once or options.probes)
    parts = [
        _quadrature(_recurrences(operator, randomness, numbers[start : start + width], options, progress))
        for start in range(0, options.probes, width)
    ]
    nodes, weights, residuals = (torch.cat(columns) for columns in zip(*parts, strict=True))
    return SpectralDensity(nodes, weights, residuals, operator.size)


def _recurrences(
    operator: SymmetricOperator, randomness: Randomness, numbers: range, options: DensityOptions, progress: Progress
) -> Recurrences:
    """Lanczos from the probes of these numbers; each number has a stream of its own."""
    drawn = [draw(operator, 1, "rademacher", randomness.child("probe", number).torch()) for number in numbers]
    return tridiagonalise_each(
        operator, torch.cat(drawn, dim=1), options.steps, options.reorthogonalise, progress=progress
    )


def _quadrature(recurrences: Recurrences) -> tuple[Tensor, Tensor, Tensor]:
    nodes, vectors = torch.linalg.eigh(recurrences.matrices())
    weights = vectors[:, 0].square()
    residuals = recurrences.off_diagonal[:, -1:] * vectors[:, -1].abs()
    return nodes, weights / weights.sum(1, keepdim=True), residuals


def _gather(sums: Tensor, ranks: Tensor) -> Tensor:
    return torch.take_along_dim(sums, ranks, dim=1)
