"""The kernels of infinitely wide networks: `kernel.ntk(X)`, `kernel.nngp(X, Y)`, `kernel.diagonal(X)`."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, get_args

import torch
from torch import Tensor

from skiplens.base.errors import InvalidInputError, refuse_if, require_known
from skiplens.kernels import angular
from skiplens.kernels.angular import QUANTITIES, AngularKernel, DiagonalValue, Evaluation, Quantity
from skiplens.kernels.evaluate import kernel_matrix
from skiplens.kernels.infinite_network import InfiniteNetwork, infinite_densenet, infinite_resnet, infinite_vanilla
from skiplens.kernels.inputs import directions, directions_of_pair, require_inputs
from skiplens.kernels.tables import Table, quick_table

Trained = Literal["branches", "all"]
Architecture = Literal["resnet", "densenet", "vanilla"]
_MANY_ENTRIES = 2**18  # in float64 a look-up takes about as long to make as so many entries without it


class InfiniteWidthKernel(ABC):
    """A kernel of inputs x, x′: τ·k(angle) with τ = ‖x‖‖x′‖/d, in float32 or float64, on any device.

    Attributes:
        depth: L, the residual blocks or layers (of a plain network those with a ReLU).
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
    def limit(self) -> InfiniteNetwork:
        """The infinitely wide network behind this kernel."""

    def nngp(self, X: Tensor, Y: Tensor | None = None) -> Tensor:
        """The covariance of the network's outputs at initialisation, (samples of X, samples of Y or X)."""
        return self.matrix("nngp", X, Y)

    def ntk(self, X: Tensor, Y: Tensor | None = None) -> Tensor:
        """The tangent kernel, (samples of X, samples of Y or X)."""
        return self.matrix("ntk", X, Y)

    def diagonal(self, X: Tensor, quantity: Quantity = "ntk") -> Tensor:
        """The kernel of each input with itself in closed form, (samples)."""
        require_inputs(X)
        return self._peak(quantity).diagonal(directions(X))

    def angular(self, quantity: Quantity) -> AngularKernel:
        """The kernel as a function of the correlation of two inputs."""
        learned = torch.is_grad_enabled() and self._learns()
        kernels = _angular_kernels(self) if learned else _cached_angular_kernels(self._settled())
        return kernels[QUANTITIES.index(quantity)]

    def matrix(self, quantity: Quantity, X: Tensor, Y: Tensor | None = None) -> Tensor:
        """The kernel matrix of the wanted quantity for inputs (samples, features): `nngp(X, Y)` or `ntk(X, Y)`."""
        rows, columns = directions_of_pair(X, Y)
        self._peak(quantity).require_representable(X.dtype)
        entries = len(rows) * len(rows if columns is None else columns)
        worth_it = self.evaluation == "table" and (X.dtype == torch.float32 or entries >= _MANY_ENTRIES)
        lookup = quick_table_of(self._settled(), quantity, X.dtype) if worth_it else None
        return kernel_matrix(self.angular(quantity), lookup, rows, columns)

    def _peak(self, quantity: Quantity) -> DiagonalValue:
        return angular.diagonal_values(self.limit(), self.normalise)[QUANTITIES.index(quantity)]

    def _learns(self) -> bool:
        """Whether a hyperparameter is a tensor that asks for a gradient."""
        return False

    def _settled(self) -> "InfiniteWidthKernel":
        """The same kernel with plain numbers only, so that it can be looked up in a cache."""
        return self

    def _require_common_options(self) -> None:
        refuse_if(self.depth < 1, f"depth must be at least 1, got {self.depth}. It counts residual blocks or layers.")
        for name, choices in (("trained", get_args(Trained)), ("evaluation", get_args(Evaluation))):
            if (value := getattr(self, name)) not in choices:
                raise InvalidInputError(f"{name} must be one of {', '.join(choices)}, got {value!r}.")
        refuse_if(not self.accuracy > 0, f"accuracy must be positive, got {self.accuracy}. The default is 1e-12.")


def _angular_kernels(kernel: InfiniteWidthKernel) -> tuple[AngularKernel, ...]:
    return angular.angular_kernels(kernel.limit(), kernel.evaluation, kernel.accuracy, kernel.normalise)


_cached_angular_kernels = lru_cache(maxsize=64)(torch.no_grad()(_angular_kernels))


@lru_cache(maxsize=64)
def quick_table_of(kernel: InfiniteWidthKernel, quantity: Quantity, dtype: torch.dtype) -> Table | None:
    """The quick table, or None where it would add visibly to the error of the table in float64."""
    table = kernel.angular(quantity).table
    assert table is not None, "only tabulated kernels have a quick table"
    with torch.no_grad():
        quick = quick_table(table, dtype)
    return quick if dtype == torch.float32 or quick.error <= kernel.accuracy / 4 else None


@dataclass(frozen=True)
class ResNetKernel(InfiniteWidthKernel):
    """The kernels of the infinitely wide ResNet (Littwin & Wolf 2020, theorem 1, corrected).

    Attributes:
        depth: L, the residual blocks.
        branch_depth: m, the matrices of a branch; between them are m − 1 ReLUs, so m = 1 is a linear network.
        branch_scale: α, the scale of each matrix of a branch (a = α^m in the paper); one number, one per block, or a
            tensor of either form that asks for a gradient.

    Examples:
        >>> kernel = ResNetKernel(depth=5, branch_depth=2, branch_scale=0.5)
        >>> X = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64) * 2**0.5
        >>> kernel.ntk(X).round(decimals=4).tolist()
        [[6.1035, 1.1621], [1.1621, 6.1035]]
    """

    depth: int
    branch_depth: int
    branch_scale: float | int | Sequence[float] | Tensor
    trained: Trained = "branches"
    evaluation: Evaluation = "table"
    accuracy: float = 1e-12
    normalise: bool = False

    def __post_init__(self) -> None:
        """Check the options and bring `branch_scale` to a number, a tuple or a tensor that asks for a gradient."""
        self._require_common_options()
        if self.branch_depth < 1:
            raise InvalidInputError(
                f"branch_depth must be at least 1, got {self.branch_depth}. It counts the matrices of a branch."
            )
        if not self._learns():
            object.__setattr__(self, "branch_scale", _plain(self.branch_scale))
        scales = self._scales().detach()
        if scales.ndim > 1 or (scales.ndim == 1 and len(scales) != self.depth):
            raise InvalidInputError(
                f"branch_scale must be one number or one for each of the {self.depth} blocks, "
                f"got {tuple(scales.shape)} values."
            )
        bad = scales[~((scales >= 0) & (scales < math.inf))].flatten()
        if len(bad):
            raise InvalidInputError(f"branch_scale must be finite and not negative, got {float(bad[0])}.")

    def limit(self) -> InfiniteNetwork:
        """The ResNet with a_l = α_l^m."""
        return self._limit_of(self._scales().expand(self.depth))

    def limit_at(self, scales: Tensor) -> InfiniteNetwork:
        """The ResNet with another α common to all blocks, or with one for each correlation it is evaluated at."""
        return self._limit_of(scales.expand(self.depth, *scales.shape))

    def branch_scale_derivative(self, X: Tensor, Y: Tensor | None = None, quantity: Quantity = "ntk") -> Tensor:
        """∂/∂α of each entry of the kernel matrix, for one `branch_scale` common to all blocks."""
        rows, columns = directions_of_pair(X, Y)
        settled = self._settled()
        if isinstance(settled.branch_scale, tuple):
            raise InvalidInputError(
                f"branch_scale has one value for each of {self.depth} blocks; the derivative is for one common value. "
                "Use a tensor with requires_grad=True and backpropagate instead."
            )
        with torch.no_grad():
            return kernel_matrix(_cached_derivatives(settled)[QUANTITIES.index(quantity)], None, rows, columns)

    def _limit_of(self, scales: Tensor) -> InfiniteNetwork:
        return infinite_resnet(scales**self.branch_depth, self.branch_depth, self.trained == "all")

    def _scales(self) -> Tensor:
        if isinstance(self.branch_scale, Tensor):
            return self.branch_scale.to("cpu", torch.float64)
        return torch.tensor(self.branch_scale, dtype=torch.float64)

    def _learns(self) -> bool:
        return isinstance(self.branch_scale, Tensor) and self.branch_scale.requires_grad

    def _settled(self) -> "ResNetKernel":
        return replace(self, branch_scale=_plain(self.branch_scale)) if self._learns() else self


def _plain(scale: float | int | Sequence[float] | Tensor) -> float | tuple[float, ...]:
    """One number, or one per block."""
    if isinstance(scale, Tensor):
        scale = scale.detach().double().tolist()
    return float(scale) if isinstance(scale, int | float) else tuple(float(value) for value in scale)


@lru_cache(maxsize=64)
def _cached_derivatives(kernel: ResNetKernel) -> tuple[AngularKernel, ...]:
    with torch.no_grad():
        assert isinstance(kernel.branch_scale, float)
        return angular.derivative_kernels(kernel.limit_at, kernel.branch_scale, kernel.accuracy, kernel.normalise)


@dataclass(frozen=True)
class _PlainKernel(InfiniteWidthKernel):
    """The fields of kernels without branches."""

    depth: int
    trained: Trained = "branches"
    evaluation: Evaluation = "table"
    accuracy: float = 1e-12
    normalise: bool = False

    def __post_init__(self) -> None:
        """Check the options."""
        self._require_common_options()


@dataclass(frozen=True)
class DenseNetKernel(_PlainKernel):
    """The kernels of the infinitely wide DenseNet (Littwin & Wolf 2020, theorem 2, corrected)."""

    def limit(self) -> InfiniteNetwork:
        """The DenseNet."""
        return infinite_densenet(self.depth, self.trained == "all")


@dataclass(frozen=True)
class VanillaKernel(_PlainKernel):
    """The kernels of the infinitely wide ReLU network without skip connections."""

    def limit(self) -> InfiniteNetwork:
        """The plain network."""
        return infinite_vanilla(self.depth, self.trained == "all")


def kernel_by_name(
    architecture: str, depth: int, branch_depth: int, branch_scale: float | Tensor, trained: Trained, normalise: bool
) -> InfiniteWidthKernel:
    """The kernel of an `Architecture`; `branch_depth` and `branch_scale` matter to a ResNet only."""
    if architecture == "resnet":
        return ResNetKernel(depth, branch_depth, branch_scale, trained=trained, normalise=normalise)
    plain = {"densenet": DenseNetKernel, "vanilla": VanillaKernel}
    require_known(architecture, ("resnet", *plain), f"There is no architecture {architecture!r}.")
    return plain[architecture](depth, trained=trained, normalise=normalise)
