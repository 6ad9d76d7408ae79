"""A spectrum whose eigenvalues are known one by one, or as distinct values with multiplicities."""

from dataclasses import dataclass

import torch

from skiplens.core.axes import Float, Int, Tensor
from skiplens.core.errors import InvalidInputError
from skiplens.theory.shortcut_hessian.arguments import require_finite
from skiplens.theory.shortcut_hessian.spectrum import Spectrum, check_rank


@dataclass(frozen=True, eq=False)
class ListedSpectrum(Spectrum):
    """Eigenvalues in ascending order, each with how often it occurs."""

    values: Float[Tensor, " distinct"]
    multiplicities: Int[Tensor, " distinct"]

    @property
    def size(self) -> int:
        """Number of eigenvalues with their multiplicities."""
        return int(self.multiplicities.sum())

    def count_below(self, level: float) -> int:
        """Number of eigenvalues strictly below `level`."""
        return int(self.multiplicities[self.values < level].sum())

    def eigenvalue(self, rank: int) -> float:
        """The eigenvalue of this rank; 1 is the smallest."""
        return _of_rank(self.values, self.multiplicities, check_rank(rank, self.size))

    def absolute_value(self, rank: int) -> float:
        """The absolute value of this rank among all absolute values; 1 is the smallest."""
        values, order = self.values.abs().sort()
        return _of_rank(values, self.multiplicities[order], check_rank(rank, self.size))

    @property
    def negative_mass(self) -> float:
        """The share of Σ|λ| that lies on negative eigenvalues; NaN for the zero matrix."""
        mass = self.values.abs() * self.multiplicities
        return (mass[self.values < 0].sum() / mass.sum()).item()

    def expanded(self) -> Float[Tensor, " params"]:
        """Every eigenvalue as often as it occurs, ascending."""
        return self.values.repeat_interleave(self.multiplicities)


def listed_spectrum(
    eigenvalues: Float[Tensor, " distinct"], multiplicities: Int[Tensor, " distinct"] | None = None
) -> ListedSpectrum:
    """The spectrum of these eigenvalues in any order, each once unless `multiplicities` says how often."""
    if eigenvalues.numel() == 0:
        raise InvalidInputError("A spectrum needs at least one eigenvalue; got none.")
    require_finite(eigenvalues, "eigenvalues")
    values, order = eigenvalues.sort()
    counts = torch.ones_like(order) if multiplicities is None else multiplicities[order]
    return ListedSpectrum(values, counts)


def spectrum_of(matrix: Float[Tensor, "params params"]) -> ListedSpectrum:
    """The spectrum of a symmetric matrix from all its eigenvalues, in float64."""
    require_finite(matrix, "matrix entries")
    return listed_spectrum(torch.linalg.eigvalsh(matrix.double()))


def _of_rank(values: Tensor, multiplicities: Tensor, rank: int) -> float:
    place = torch.searchsorted(multiplicities.cumsum(0), rank)
    return values[place].item()
