"""Statistics of a Hessian's spectrum, the same whether its eigenvalues are listed or can only be counted."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from skiplens.base import Float, Int, InvalidInputError, refuse_if
from skiplens.linalg.conditioning import condition_number, nearest_rank
from skiplens.linalg.second_moments import require_finite


class Spectrum(ABC):
    """The eigenvalues of a symmetric matrix in ascending order; ranks count from 1."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of eigenvalues with their multiplicities."""

    @abstractmethod
    def count_below(self, level: float) -> int:
        """Number of eigenvalues strictly below `level`."""

    @abstractmethod
    def _of_rank(self, rank: int, absolute: bool) -> float:
        """The eigenvalue of a rank from 1 to the size, or the absolute value of that rank among absolute values."""

    def eigenvalue(self, rank: int) -> float:
        """The eigenvalue of this rank; 1 is the smallest."""
        return self._of_rank(self._checked(rank), absolute=False)

    def absolute_value(self, rank: int) -> float:
        """The absolute value of this rank among all absolute values; 1 is the smallest."""
        return self._of_rank(self._checked(rank), absolute=True)

    def _checked(self, rank: int) -> int:
        if isinstance(rank, bool) or int(rank) != rank or not 1 <= rank <= self.size:
            raise InvalidInputError(f"Ranks count from 1 to the size {self.size}; got {rank!r}.")
        return int(rank)

    @cached_property
    def smallest(self) -> float:
        """The smallest eigenvalue."""
        return self.eigenvalue(1)

    @cached_property
    def largest(self) -> float:
        """The largest eigenvalue."""
        return self.eigenvalue(self.size)

    @property
    def largest_absolute(self) -> float:
        """The largest absolute value, |λ|max."""
        return max(abs(self.smallest), abs(self.largest))

    def absolute_quantile(self, share: float = 0.1) -> float:
        """The nearest-rank quantile of |λ|."""
        refuse_if(not 0 < share <= 1, f"The share of a quantile must lie in (0, 1]; got {share!r}.")
        return self.absolute_value(nearest_rank(share, self.size))

    @property
    def condition_number(self) -> float:
        """|λ|max over the 10 % quantile of |λ|, the paper's proxy; infinite if that is 0, NaN for the zero matrix."""
        return condition_number(self.largest_absolute, self.absolute_quantile(0.1))

    @property
    def full_condition_number(self) -> float:
        """|λ|max over the smallest |λ|, the true condition number."""
        return condition_number(self.largest_absolute, self.absolute_value(1))

    @property
    def index(self) -> float:
        """The share of negative eigenvalues."""
        return self.count_below(0.0) / self.size

    @property
    def index_beyond_rounding(self) -> float:
        """The share of eigenvalues below −1e-10 |λ|max: exact zeros that rounding made negative do not count."""
        return self.count_below(-1e-10 * self.largest_absolute) / self.size


class CountedSpectrum(Spectrum):
    """Eigenvalues by bisection of their counting function; each costs about one count for each binary digit."""

    accuracy: float = 2.0**-50
    """Error of each eigenvalue relative to `bound`; by default four roundings of float64."""

    @property
    @abstractmethod
    def bound(self) -> float:
        """A number that every |λ| stays below; asked for only when an eigenvalue is."""

    def _of_rank(self, rank: int, absolute: bool) -> float:
        low, high = 0.0 if absolute else -self.bound, self.bound
        while high - low > self.accuracy * self.bound:
            middle = (low + high) / 2
            if middle in (low, high):  # no number lies between: a bound so small that its accuracy underflows
                break
            count = self.count_below(middle) - (self.count_below(-middle) if absolute else 0)
            low, high = (low, middle) if count >= rank else (middle, high)
        return (low + high) / 2


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

    def _of_rank(self, rank: int, absolute: bool) -> float:
        values, order = (self.values.abs() if absolute else self.values).sort()
        return values[torch.searchsorted(self.multiplicities[order].cumsum(0), rank)].item()

    def expanded(self) -> Float[Tensor, " params"]:
        """Every eigenvalue as often as it occurs, ascending."""
        return self.values.repeat_interleave(self.multiplicities)


def listed_spectrum(
    eigenvalues: Float[Tensor, " distinct"], multiplicities: Int[Tensor, " distinct"] | None = None
) -> ListedSpectrum:
    """The spectrum of these eigenvalues in any order, each once unless `multiplicities` says how often."""
    refuse_if(eigenvalues.numel() == 0, "A spectrum needs at least one eigenvalue; got none.")
    require_finite(eigenvalues, "eigenvalues")
    values, order = eigenvalues.sort()
    return ListedSpectrum(values, torch.ones_like(order) if multiplicities is None else multiplicities[order])


def spectrum_of(matrix: Float[Tensor, "params params"]) -> ListedSpectrum:
    """The spectrum of a symmetric matrix from all its eigenvalues, in float64."""
    require_finite(matrix, "matrix entries")
    return listed_spectrum(torch.linalg.eigvalsh(matrix.double()))
