"""The two smallest numbers of a matrix that the theorems speak of, kept apart.

They agree (one is the square of the other) for a matrix with at most as many rows as columns. A tall matrix has a
smallest singular value, but A Aᵀ is singular: every bound that is written with λ is then 0.
"""

import torch

from skiplens.core.axes import Tensor
from skiplens.core.errors import InvalidInputError


def smallest_singular_value(matrix: Tensor) -> float:
    """σ(A): the smallest of the min(rows, columns) singular values."""
    return float(torch.linalg.svdvals(_not_empty(matrix))[-1])


def smallest_gram_eigenvalue(matrix: Tensor) -> float:
    """λ(A): the smallest eigenvalue of A Aᵀ; exactly 0 for a matrix with more rows than columns.

    Examples:
        >>> wide = torch.tensor([[3.0, 0.0]])
        >>> smallest_gram_eigenvalue(wide), smallest_gram_eigenvalue(wide.T)
        (9.0, 0.0)
    """
    if _not_empty(matrix).shape[0] > matrix.shape[1]:
        return 0.0
    return float(torch.linalg.svdvals(matrix)[-1] ** 2)


def largest_singular_value(matrix: Tensor) -> float:
    """The spectral norm |A|_2."""
    return float(torch.linalg.matrix_norm(_not_empty(matrix), 2))


def _not_empty(matrix: Tensor) -> Tensor:
    if matrix.ndim != 2 or matrix.numel() == 0:
        raise InvalidInputError(
            f"A matrix of shape {tuple(matrix.shape)} has no singular values. "
            "Give a matrix with at least one row and one column: a layer with outputs, on at least one sample."
        )
    return matrix
