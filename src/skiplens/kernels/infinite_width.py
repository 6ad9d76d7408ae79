"""What all kernels of infinitely wide networks share: `kernel.ntk(X)`, `kernel.nngp(X, Y)`, `kernel.diagonal(X)`."""

from abc import ABC, abstractmethod
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from skiplens.core.errors import InvalidInputError
from skiplens.kernels.angular import QUANTITIES, AngularKernel, Quantity
from skiplens.kernels.evaluate import kernel_matrix
from skiplens.kernels.from_limit import Evaluation, angular_kernels, peaks
from skiplens.kernels.inputs import directions, directions_of_pair, require_inputs
from skiplens.kernels.lookup import Lookup, lookup_of
from skiplens.kernels.peak import Peak
from skiplens.theory.infinite_width.limit import Limit

Trained = Literal["branches", "all"]

_MANY_ENTRIES = 2**18  # in float64 a look-up takes about as long to make as so many entries without it


class InfiniteWidthKernel(ABC):
    """A kernel of inputs x, x′: τ·k(angle) with τ = ‖x‖‖x′‖/d, in float32 or float64, on any device.

    Attributes:
        trained: ``"branches"`` freezes the first and the last layer, ``"all"`` trains them too.
        evaluation: ``"table"`` tabulates k once and costs the same at any depth; ``"recursion"`` walks all layers.
        accuracy: Largest error of the table, relative to equal inputs, as checked against the recursion.
        normalise: Divide by k at equal inputs, so that the kernel of x with itself is ‖x‖²/d.
    """

    depth: int
    trained: Trained
    evaluation: Evaluation
    accuracy: float
    normalise: bool

    @abstractmethod
    def limit(self) -> Limit:
        """The infinitely wide network behind this kernel."""

    def nngp(self, X: Tensor, Y: Tensor | None = None) -> Tensor:
        """The covariance of the network's outputs at initialisation, (samples of X, samples of Y or X).

        Args:
            X: Inputs, (samples, features).
            Y: Other inputs; `X` itself if not given.
        """
        return self._matrix("nngp", X, Y)

    def ntk(self, X: Tensor, Y: Tensor | None = None) -> Tensor:
        """The tangent kernel, (samples of X, samples of Y or X).

        Args:
            X: Inputs, (samples, features).
            Y: Other inputs; `X` itself if not given.
        """
        return self._matrix("ntk", X, Y)

    def diagonal(self, X: Tensor, quantity: Quantity = "ntk") -> Tensor:
        """The kernel of each input with itself in closed form, (samples)."""
        require_inputs(X)
        return self._peak(quantity).diagonal(directions(X))

    def angular(self, quantity: Quantity) -> AngularKernel:
        """The kernel as a function of the correlation of two inputs."""
        if torch.is_grad_enabled() and self._learns():
            return self._angular_kernels()[QUANTITIES.index(quantity)]
        return _cached_angular_kernels(self._settled())[QUANTITIES.index(quantity)]

    def _matrix(self, quantity: Quantity, X: Tensor, Y: Tensor | None) -> Tensor:
        rows, columns = directions_of_pair(X, Y)
        self._peak(quantity).require_representable(X.dtype)
        entries = len(rows) * len(rows if columns is None else columns)
        worth_it = self.evaluation == "table" and (X.dtype == torch.float32 or entries >= _MANY_ENTRIES)
        lookup = self._lookup(quantity, X.dtype) if worth_it else None
        return kernel_matrix(self.angular(quantity), lookup, rows, columns)

    def _peak(self, quantity: Quantity) -> Peak:
        return peaks(self.limit(), self.normalise)[QUANTITIES.index(quantity)]

    def _angular_kernels(self) -> tuple[AngularKernel, ...]:
        return angular_kernels(self.limit(), self.evaluation, self.accuracy, self.normalise)

    def _lookup(self, quantity: Quantity, dtype: torch.dtype) -> Lookup | None:
        return _cached_lookup(self._settled(), quantity, dtype)

    def _learns(self) -> bool:
        """Whether a hyperparameter is a tensor that asks for a gradient."""
        return False

    def _settled(self) -> "InfiniteWidthKernel":
        """The same kernel with plain numbers only, so that it can be looked up in a cache."""
        return self

    def _require_common_options(self) -> None:
        if self.depth < 1:
            raise InvalidInputError(f"depth must be at least 1, got {self.depth}. It counts residual blocks or layers.")
        for name, value, choices in (
            ("trained", self.trained, ("branches", "all")),
            ("evaluation", self.evaluation, ("table", "recursion")),
        ):
            if value not in choices:
                raise InvalidInputError(f"{name} must be one of {', '.join(choices)}, got {value!r}.")
        if not self.accuracy > 0:
            raise InvalidInputError(f"accuracy must be positive, got {self.accuracy}. The default is 1e-12.")


@lru_cache(maxsize=64)
def _cached_angular_kernels(kernel: InfiniteWidthKernel) -> tuple[AngularKernel, ...]:
    with torch.no_grad():
        return kernel._angular_kernels()


@lru_cache(maxsize=64)
def _cached_lookup(kernel: InfiniteWidthKernel, quantity: Quantity, dtype: torch.dtype) -> Lookup | None:
    """The look-up, or None where it would add visibly to the error of the table in float64."""
    table = kernel.angular(quantity).table
    assert table is not None, "only tabulated kernels have a look-up"
    with torch.no_grad():
        lookup = lookup_of(table, dtype)
    return lookup if dtype == torch.float32 or lookup.error <= kernel.accuracy / 4 else None
