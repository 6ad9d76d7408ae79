"""The spectral density of an operator by stochastic Lanczos quadrature.

For a random probe v the Lanczos matrix T holds the best quadrature for the measure μ_v that the eigenvalues carry when
each is weighted by how much of v lies along it; the mean of μ_v over probes is the density of eigenvalues.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from skiplens.base import Bool, Float, InvalidInputError, Progress, Randomness, refuse_if, silent
from skiplens.linalg.lanczos import tridiagonalise_each
from skiplens.linalg.operator import SymmetricOperator
from skiplens.linalg.trace import draw

Levels = Float[Tensor, " levels"]
Grid = Float[Tensor, " grid"]
CONFIDENCE = 0.95


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

    def share_below(self, levels: Levels) -> Float[Tensor, "probes levels"]:
        """For each probe the weight of its nodes strictly below each level."""
        return self._sums().take_along_dim(self._count(levels, right=False), dim=1)

    def bounds_below(self, levels: Levels) -> tuple[Float[Tensor, "probes levels"], Float[Tensor, "probes levels"]]:
        """For each probe the least and the most that its measure can have below (or up to) each level.

        The inequalities of Chebyshev, Markov and Stieltjes: below a node lies at least the weight of the nodes before
        it, and up to a node at most that weight and its own. They hold for any spectrum.
        """
        sums, last = self._sums(), self.nodes.shape[1]
        low = sums.take_along_dim((self._count(levels, right=True) - 1).clamp_min(0), dim=1)
        high = sums.take_along_dim((self._count(levels, right=False) + 1).clamp_max(last), dim=1)
        exact = self.share_below(levels)
        whole = self.complete[:, None]
        return torch.where(whole, exact, low), torch.where(whole, exact, high)

    def smoothed(self, grid: Grid, width: float) -> tuple[Grid, Grid]:
        """The density on `grid`, each node spread to a normal curve of this width, and its standard error."""
        curves = normal_curves(self.nodes, self.weights, grid, width)
        return curves.mean(0), curves.std(0) / self.probes**0.5

    def _sums(self) -> Float[Tensor, "probes ranks"]:
        """Weights of the first 0, 1, 2, … nodes."""
        return torch.nn.functional.pad(self.weights.cumsum(1), (1, 0))

    def _count(self, levels: Tensor, right: bool) -> Tensor:
        return torch.searchsorted(self.nodes, levels.expand(self.probes, -1).contiguous(), right=right)


def normal_curves(
    nodes: Float[Tensor, "probes steps"], weights: Float[Tensor, "probes steps"], grid: Grid, width: float
) -> Float[Tensor, "probes grid"]:
    """For each row of nodes the sum of normal curves of this width and of these weights, on `grid`."""
    refuse_if(not width > 0, f"A density was asked for with width={width}; the width must be positive.")
    distance = (grid[None, None, :] - nodes[:, :, None]) / width
    return (weights[:, :, None] * torch.exp(-distance.square() / 2)).sum(1) / (width * (2 * torch.pi) ** 0.5)


@dataclass(frozen=True)
class DensityOptions:
    """How much is drawn and kept."""

    probes: int = 4  # random vectors; at least 2, whose scatter is the error
    steps: int = 30  # products for each
    at_once: int | None = None  # probes multiplied as one block, all if not given; the numbers do not depend on it
    reorthogonalise: bool = True  # keep every vector (size × probes at once × steps numbers); see `tridiagonalise_each`


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
    streams = [randomness.child("probe", number).torch() for number in range(options.probes)]
    width, parts = max(1, options.at_once or options.probes), []
    for start in range(0, options.probes, width):
        drawn = (draw(operator, 1, stream) for stream in streams[start : start + width])
        # handed over as they are: a tuple of arguments would hold them until the end
        probes, steps, keep = [torch.cat([*drawn], dim=1)], options.steps, options.reorthogonalise
        found = tridiagonalise_each(operator, probes.pop(), steps, keep, progress)
        nodes, vectors = torch.linalg.eigh(found.matrices())
        weights = vectors[:, 0].square()
        residuals = found.off_diagonal[:, -1:] * vectors[:, -1].abs()
        parts.append((nodes, weights / weights.sum(1, keepdim=True), residuals))
    nodes, weights, residuals = (torch.cat(columns) for columns in zip(*parts, strict=True))
    return SpectralDensity(nodes, weights, residuals, operator.size)


def share_below_interval(density: SpectralDensity, level: float = 0.0) -> tuple[float, float]:
    """95 % interval for the share of eigenvalues below `level`."""
    low, high = density.bounds_below(density.nodes.new_tensor([level]))
    return _limit(low, density, -1).item(), _limit(high, density, 1).item()


def share_within_interval(density: SpectralDensity, level: float) -> tuple[float, float]:
    """95 % interval for the share of eigenvalues with |λ| up to `level`."""
    low, high = _bounds_within(density, density.nodes.new_tensor([level]))
    return _limit(low, density, -1).item(), _limit(high, density, 1).item()


def absolute_quantile_interval(density: SpectralDensity, share: float) -> tuple[float, float]:
    """95 % interval for the quantile of |λ|: where the share of |λ| up to a level can, and must, reach `share`.

    (Woodruff's way: an interval for the share at each level, read sideways. A quantile is no smooth function of the
    sample, so the jackknife does not apply.)
    """
    levels = density.nodes.abs().flatten().unique()
    low, high = _bounds_within(density, levels)
    possible, certain = _limit(high, density, 1) >= share, _limit(low, density, -1) >= share
    # What is possible at a level is possible right after the level before it.
    first = int(possible.long().argmax()) if bool(possible.any()) else len(levels) - 1
    last = int(certain.long().argmax()) if bool(certain.any()) else len(levels) - 1
    return (float(levels[first - 1]) if first else 0.0), float(levels[last])


def ratio_of_means(
    density: SpectralDensity, numerator: Callable[[Tensor], Tensor], denominator: Callable[[Tensor], Tensor]
) -> tuple[float, float]:
    """Mean of one function of the eigenvalues over the mean of another, and its jackknife standard error."""
    above = (density.weights * numerator(density.nodes)).sum(1)
    below = (density.weights * denominator(density.nodes)).sum(1)
    without = (above.sum() - above) / (below.sum() - below)
    error = math.sqrt((density.probes - 1) / density.probes * (without - without.mean()).square().sum().item())
    return (above.sum() / below.sum()).item(), error


def _bounds_within(density: SpectralDensity, levels: Levels) -> tuple[Tensor, Tensor]:
    """For each probe the least and the most that its measure can have between −level and level."""
    low_above, high_above = density.bounds_below(levels)
    low_below, high_below = density.bounds_below(-levels)
    return (low_above - high_below).clamp_min(0), (high_above - low_below).clamp_max(1)


def _limit(shares: Tensor, density: SpectralDensity, sign: int) -> Tensor:
    """Wilson's limit: the share furthest from the mean of `shares` from which that mean is still 95 % likely."""
    from scipy.special import ndtri

    z, draws = float(ndtri((1 + CONFIDENCE) / 2)), density.probes * density.size / 2
    mean = shares.mean(0)
    half = z * (mean * (1 - mean).clamp_min(0) / draws + (z / (2 * draws)) ** 2).sqrt()
    return ((mean + z * z / (2 * draws) + sign * half) / (1 + z * z / draws)).clamp(0, 1)


def weighted_quantiles(values: Float[Tensor, " values"], weights: Float[Tensor, " values"], levels: Levels) -> Levels:
    """The smallest value below or at which a share of at least each level lies; values are descending."""
    ascending, shares = values.double().flip(0), weights.double().flip(0)
    index = torch.searchsorted(shares.cumsum(0), levels.double() * shares.sum() * (1 - 1e-12))
    return ascending[index.clamp(max=len(values) - 1)]
