"""Symmetric linear operators: what Lanczos and trace estimators ask of a matrix that is never formed."""

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
import scipy.sparse.linalg
import torch
from torch import Tensor

from skiplens.base.axes import Float
from skiplens.base.errors import InvalidInputError


class SymmetricOperator(ABC):
    """A symmetric matrix known by its products with blocks of vectors."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of rows, and of columns."""

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """Type of the vectors it takes and gives."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
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
        product = self.apply(vectors.reshape(self.size, -1))
        return product.reshape(vectors.shape)

    def dense(self) -> Float[Tensor, "size size"]:
        """The matrix itself, one product with the identity."""
        return self.apply(torch.eye(self.size, dtype=self.dtype, device=self.device))

    def to_scipy(self) -> scipy.sparse.linalg.LinearOperator:
        """A SciPy view for `scipy.sparse.linalg` solvers; vectors go through NumPy and back."""

        def matmat(block: np.ndarray) -> np.ndarray:
            tensor = torch.as_tensor(np.ascontiguousarray(block), dtype=self.dtype, device=self.device)
            return (self @ tensor).cpu().numpy()

        shape, dtype = (self.size, self.size), torch.empty(0, dtype=self.dtype).numpy().dtype
        return scipy.sparse.linalg.LinearOperator(shape, matvec=matmat, matmat=matmat, rmatvec=matmat, dtype=dtype)


class DenseOperator(SymmetricOperator):
    """A symmetric matrix that is there in full."""

    def __init__(self, matrix: Float[Tensor, "size size"]) -> None:
        self._matrix = matrix

    @property
    def size(self) -> int:
        """Number of rows, and of columns."""
        return self._matrix.shape[0]

    @property
    def dtype(self) -> torch.dtype:
        """Type of the matrix."""
        return self._matrix.dtype

    @property
    def device(self) -> torch.device:
        """Where the matrix lives."""
        return self._matrix.device

    def apply(self, block: Float[Tensor, "size vectors"]) -> Float[Tensor, "size vectors"]:
        """The matrix times each column of `block`."""
        return self._matrix @ block


class FunctionOperator(SymmetricOperator):
    """A symmetric matrix given by a function that multiplies one vector with it."""

    def __init__(self, product: Callable[[Tensor], Tensor], like: Float[Tensor, " size"]) -> None:
        """Take the product and any vector that tells the size, dtype and device.

        Args:
            product: Maps a vector of shape (size,) to the matrix times that vector.
            like: A vector of the same shape, dtype and device as those that `product` takes.
        """
        self._product = product
        self._like = like.detach()

    @property
    def size(self) -> int:
        """Number of rows, and of columns."""
        return self._like.shape[0]

    @property
    def dtype(self) -> torch.dtype:
        """Type of the vectors."""
        return self._like.dtype

    @property
    def device(self) -> torch.device:
        """Where the vectors live."""
        return self._like.device

    def apply(self, block: Float[Tensor, "size vectors"]) -> Float[Tensor, "size vectors"]:
        """The product with each column of `block`, one after the other."""
        if block.shape[1] == 0:
            return torch.zeros_like(block)
        return torch.stack([self._product(column) for column in block.unbind(1)], dim=1)
