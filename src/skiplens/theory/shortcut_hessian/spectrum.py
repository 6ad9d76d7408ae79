"""Statistics of a Hessian's spectrum, the same whether its eigenvalues are listed or can only be counted."""

import math
from abc import ABC, abstractmethod

from skiplens.core.errors import InvalidInputError

_ROUNDING = 1e-10  # an eigenvalue is negative beyond rounding if below this times the largest |eigenvalue|


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
    def eigenvalue(self, rank: int) -> float:
        """The eigenvalue of this rank; 1 is the smallest."""

    @abstractmethod
    def absolute_value(self, rank: int) -> float:
        """The absolute value of this rank among all absolute values; 1 is the smallest."""

    @property
    def smallest(self) -> float:
        """The smallest eigenvalue."""
        return self.eigenvalue(1)

    @property
    def largest(self) -> float:
        """The largest eigenvalue."""
        return self.eigenvalue(self.size)

    @property
    def largest_absolute(self) -> float:
        """The largest absolute value, |λ|max."""
        return max(abs(self.smallest), abs(self.largest))

    def absolute_quantile(self, share: float = 0.1) -> float:
        """The nearest-rank quantile of |λ|: the value of rank ⌈share · size⌉.

        The rule matters: at zero of a 2-shortcut network of width 10 exactly a tenth of the eigenvalues is smallest.
        """
        if not 0 < share <= 1:
            raise InvalidInputError(f"The share of a quantile must lie in (0, 1]; got {share!r}.")
        # The subtraction keeps 0.07 * 100 = 7.000000000000001 at rank 7.
        return self.absolute_value(max(1, math.ceil(share * self.size - 1e-9)))

    @property
    def condition_number(self) -> float:
        """|λ|max over the 10 % quantile of |λ|, the paper's proxy; infinite if that is 0, NaN for the zero matrix."""
        return _ratio(self.largest_absolute, self.absolute_quantile(0.1))

    @property
    def full_condition_number(self) -> float:
        """|λ|max over the smallest |λ|, the true condition number."""
        return _ratio(self.largest_absolute, self.absolute_value(1))

    @property
    def index(self) -> float:
        """The share of negative eigenvalues."""
        return self.count_below(0.0) / self.size

    @property
    def index_beyond_rounding(self) -> float:
        """The share of eigenvalues below −1e-10 |λ|max: exact zeros that rounding made negative do not count."""
        return self.count_below(-_ROUNDING * self.largest_absolute) / self.size


def check_rank(rank: int, size: int) -> int:
    """The rank, refused unless it is a whole number from 1 to the size."""
    if isinstance(rank, bool) or int(rank) != rank or not 1 <= rank <= size:
        raise InvalidInputError(f"Ranks count from 1 to the size {size}; got {rank!r}.")
    return int(rank)


def _ratio(largest: float, lower: float) -> float:
    if lower > 0:
        return largest / lower
    return math.inf if largest > 0 else math.nan
