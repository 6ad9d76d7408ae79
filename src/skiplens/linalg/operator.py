"""Symmetric linear operators: what Lanczos and trace estimators ask of a matrix that is never formed."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from skiplens.base import Float, InvalidInputError

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator


class SymmetricOperator(ABC):
    """A symmetric matrix known by its products with blocks of vectors."""

    size: int
    """Number of rows, and of columns."""
    dtype: torch.dtype
    """Type of the vectors it takes and gives."""
    device: torch.device
    """Where the vectors live."""

    @abstractmethod
    def apply(self, block: Float[Tensor, "size vectors"]) -> Float[Tensor, "size vectors"]:
        """The matrix times each column of `block`."""

    def __matmul__(self, vectors: Tensor) -> Tensor:
        """The matrix times one vector or each column of a block."""
        if vectors.ndim not in (1, 2) or vectors.shape[0] != self.size:
            raise InvalidInputError(
                f"An operator of size {self.size} got a tensor of shape {tuple(vectors.shape)}; "
                f"hand over a vector of shape ({self.size},) or a block of shape ({self.size}, vectors)."
            )
        return self.apply(vectors.reshape(self.size, -1)).reshape(vectors.shape)

    def dense(self) -> Float[Tensor, "size size"]:
        """The matrix itself, one product with the identity."""
        return self.apply(torch.eye(self.size, dtype=self.dtype, device=self.device))

    def to_scipy(self) -> "LinearOperator":
        """A SciPy view for `scipy.sparse.linalg` solvers; vectors go through NumPy and back."""
        from scipy.sparse.linalg import LinearOperator

        def matmat(block: np.ndarray) -> np.ndarray:
            tensor = torch.as_tensor(np.ascontiguousarray(block), dtype=self.dtype, device=self.device)
            return (self @ tensor).cpu().numpy()

        shape, dtype = (self.size, self.size), torch.empty(0, dtype=self.dtype).numpy().dtype
        return LinearOperator(shape, matvec=matmat, matmat=matmat, rmatvec=matmat, dtype=dtype)


class DenseOperator(SymmetricOperator):
    """A symmetric matrix that is there in full."""

    def __init__(self, matrix: Float[Tensor, "size size"]) -> None:
        self._matrix, self.size, self.dtype, self.device = matrix, len(matrix), matrix.dtype, matrix.device

    def apply(self, block: Float[Tensor, "size vectors"]) -> Float[Tensor, "size vectors"]:
        """The matrix times each column of `block`."""
        return self._matrix @ block


class FunctionOperator(SymmetricOperator):
    """A symmetric matrix given by a function that multiplies one vector with it."""

    def __init__(self, product: Callable[[Tensor], Tensor], like: Float[Tensor, " size"]) -> None:
        """Take the product with a vector, and any vector of the shape (size,), dtype and device that it takes."""
        self._product, self.size, self.dtype, self.device = product, len(like), like.dtype, like.device

    def apply(self, block: Float[Tensor, "size vectors"]) -> Float[Tensor, "size vectors"]:
        """The product with each column of `block`, one after the other."""
        if block.shape[1] == 0:
            return torch.zeros_like(block)
        return torch.stack([self._product(column) for column in block.unbind(1)], dim=1)
