"""A spectrum known only by counting: how many eigenvalues lie below a level. Bisection gives any of them."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from skiplens.theory.shortcut_hessian.spectrum import Spectrum, check_rank


class Counts(ABC):
    """The counting function of a symmetric matrix's eigenvalues."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of eigenvalues."""

    @property
    @abstractmethod
    def bound(self) -> float:
        """A number that every |λ| stays below; asked for only when an eigenvalue is."""

    @abstractmethod
    def __call__(self, level: float) -> int:
        """Number of eigenvalues below `level`."""


@dataclass(frozen=True)
class CountedSpectrum(Spectrum):
    """Eigenvalues by bisection of their counting function.

    An eigenvalue costs about one count for each binary digit.
    """

    counts: Counts
    accuracy: float = 2.0**-50
    """Error of each eigenvalue relative to the largest; by default four roundings of float64."""

    @property
    def size(self) -> int:
        """Number of eigenvalues with their multiplicities."""
        return self.counts.size

    def count_below(self, level: float) -> int:
        """Number of eigenvalues strictly below `level`."""
        return self.counts(level)

    @cached_property
    def smallest(self) -> float:
        """The smallest eigenvalue."""
        return self.eigenvalue(1)

    @cached_property
    def largest(self) -> float:
        """The largest eigenvalue."""
        return self.eigenvalue(self.size)

    def eigenvalue(self, rank: int) -> float:
        """The eigenvalue of this rank; 1 is the smallest."""
        rank = check_rank(rank, self.size)
        return self._first_level(lambda level: self.counts(level) >= rank, -self.counts.bound)

    def absolute_value(self, rank: int) -> float:
        """The absolute value of this rank among all absolute values; 1 is the smallest."""
        rank = check_rank(rank, self.size)
        return self._first_level(lambda level: self.counts(level) - self.counts(-level) >= rank, 0.0)

    def _first_level(self, reached: Callable[[float], bool], low: float) -> float:
        """The lowest level at which `reached` turns true, by bisection."""
        high, width = self.counts.bound, self.accuracy * self.counts.bound
        while high - low > width:
            middle = (low + high) / 2
            low, high = (low, middle) if reached(middle) else (middle, high)
        return (low + high) / 2
