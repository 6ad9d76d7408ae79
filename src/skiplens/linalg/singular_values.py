"""Singular values: all of a matrix that is there, or the density of one known by its products (Golub-Kahan)."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from skiplens.base.axes import Float
from skiplens.base.errors import InvalidInputError
from skiplens.base.memory import fresh_empty

Product = Callable[[Tensor], Tensor]  # from a block of vectors, one a row, to the block of their images


@dataclass(frozen=True)
class Density:
    """Nodes σ, descending, and the share of all singular values that each stands for; the shares add up to one."""

    nodes: Float[Tensor, " rank"]
    weights: Float[Tensor, " rank"]


def all_singular_values(matrices: Float[Tensor, "*batch rows columns"]) -> Float[Tensor, "*batch rank"]:
    """The min(rows, columns) singular values of each matrix, descending.

    Matrices in float32 hold errors of 1e-7 of their norm already. Their Gram matrix in float64 has eigenvalues that are
    right to 1e-16 of their largest one, so singular values right to 1e-8 of theirs, several times sooner than an SVD.
    """
    if matrices.dtype == torch.float64:
        return torch.linalg.svdvals(matrices)
    wide = matrices.double() if matrices.shape[-2] <= matrices.shape[-1] else matrices.double().mT
    values = torch.linalg.eigvalsh(wide @ wide.mT)
    return values.clamp_min(0).sqrt().flip(-1).to(matrices.dtype)


def singular_density(forward: Product, adjoint: Product, starts: Float[Tensor, "probes size"], steps: int) -> Density:
    """The density of singular values seen from random start vectors, by `steps` steps of Golub-Kahan for each.

    All start vectors advance together, so that each product takes a block of vectors. With full reorthogonalisation;
    nodes are the singular values of the bidiagonal matrices, weights the squared first entries of their right singular
    vectors, averaged over the starts. The largest node is the largest singular value to many digits; clusters (exact
    zeros, the ones of identity shortcuts) are smeared out.

    Args:
        forward: J times each row.
        adjoint: Jᵀ times each row.
        starts: Random vectors of the space that `forward` takes; give J on its smaller side.
        steps: Steps at most; fewer where the Krylov space ends.
    """
    if steps < 1 or not len(starts):
        raise InvalidInputError(f"{steps} steps from {len(starts)} vectors; ask for at least 1 of each.")
    steps = min(steps, starts.shape[1])
    diagonal, above = _bidiagonal(forward, adjoint, starts, steps)
    B = torch.diag_embed(diagonal) + torch.diag_embed(above, offset=1)
    _, nodes, Vh = torch.linalg.svd(B)
    weights = Vh[:, :, 0].square() / len(starts)
    order = nodes.flatten().argsort(descending=True)
    return Density(nodes.flatten()[order], weights.flatten()[order])


def _bidiagonal(forward: Product, adjoint: Product, starts: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Diagonal and superdiagonal of B with J V = U B, in float64, for each start vector."""
    right, left = _Basis(steps), _Basis(steps)
    v, _ = right.add(starts)
    diagonal = starts.new_zeros((len(starts), steps), dtype=torch.float64)
    above = diagonal[:, 1:].clone()
    for step in range(steps):
        u, diagonal[:, step] = left.add(forward(v))
        if step + 1 < steps:
            v, above[:, step] = right.add(adjoint(u))
    return diagonal, above


class _Basis:
    """Orthonormal vectors, some for each start, in memory that is taken once."""

    def __init__(self, most: int) -> None:
        self.most, self.count, self.vectors = most, 0, torch.empty(0)

    def add(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """What of each vector lies outside its basis, of length one, and its length; zero for mere rounding."""
        before = vectors.norm(dim=1)
        if not self.count:
            self.vectors = fresh_empty(vectors, len(vectors), self.most, vectors.shape[1])
        known = self.vectors[:, : self.count]
        for _ in range(2):  # twice is enough
            vectors = vectors - (known.mT @ (known @ vectors[:, :, None]))[:, :, 0]
        length = vectors.norm(dim=1)
        length = torch.where(length > 10 * torch.finfo(length.dtype).eps * before, length, 0)
        divisor = torch.where(length > 0, length, 1)
        new = torch.where(length[:, None] > 0, vectors / divisor[:, None], 0)
        self.vectors[:, self.count] = new
        self.count += 1
        return new, length


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
