"""How many eigenvalues of a symmetric matrix are negative, without computing any (Sylvester's law of inertia)."""

from typing import NamedTuple

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.core.errors import InvalidInputError


class Factored(NamedTuple):
    """The pivoted factors L D Lᵀ of a symmetric matrix."""

    factors: Tensor
    pivots: Tensor

    def negatives(self) -> int:
        """Number of negative eigenvalues: a 2×2 pivot of Bunch and Kaufman has exactly one."""
        single = self.pivots > 0
        diagonal = self.factors.diagonal()
        return int((single & (diagonal < 0)).sum()) + int((~single).sum()) // 2

    def solve(self, right: Tensor) -> Tensor:
        """The matrix's inverse times `right`."""
        return torch.linalg.ldl_solve(self.factors, self.pivots, right)


def factor(matrix: Float[Tensor, "size size"]) -> Factored:
    """The pivoted L D Lᵀ factors of a symmetric matrix; only its lower triangle is read."""
    factors, pivots, _ = torch.linalg.ldl_factor_ex(matrix)
    return Factored(factors, pivots)


def count_negative(matrix: Float[Tensor, "rows columns"], shift: float = 0.0) -> int:
    """Number of eigenvalues of a symmetric matrix below `shift`, several times faster than the eigenvalues.

    Eigenvalues within rounding (about machine epsilon times the largest one) of `shift` may be counted either way.
    """
    if matrix.shape[0] != matrix.shape[1]:
        raise InvalidInputError(f"Inertia needs a square symmetric matrix; got shape {tuple(matrix.shape)}.")
    if shift:
        matrix = matrix.clone()
        matrix.diagonal().sub_(shift)
    return factor(matrix).negatives()
