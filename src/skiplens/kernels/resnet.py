"""The infinitely wide ResNet's kernels."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from skiplens.core.errors import InvalidInputError
from skiplens.kernels.angular import QUANTITIES, AngularKernel, Quantity
from skiplens.kernels.evaluate import kernel_matrix
from skiplens.kernels.from_limit import Evaluation, derivative_kernels
from skiplens.kernels.infinite_width import InfiniteWidthKernel, Trained
from skiplens.kernels.inputs import directions_of_pair
from skiplens.theory.infinite_width import Limit, ResNetLimit


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
        _require_scales(self._scales().detach(), self.depth)

    def limit(self) -> Limit:
        """The ResNet with a_l = α_l^m."""
        scales = self._scales()
        return self._limit_of(scales) if scales.ndim == 1 else self.limit_at(scales)

    def limit_at(self, scales: Tensor) -> Limit:
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

    def _limit_of(self, scales: Tensor) -> Limit:
        return ResNetLimit(scales**self.branch_depth, self.branch_depth, self.trained == "all")

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


def _require_scales(scales: Tensor, depth: int) -> None:
    if scales.ndim > 1 or (scales.ndim == 1 and len(scales) != depth):
        raise InvalidInputError(
            f"branch_scale must be one number or one for each of the {depth} blocks, got {tuple(scales.shape)} values."
        )
    bad = scales[~((scales >= 0) & (scales < math.inf))].flatten()
    if len(bad):
        raise InvalidInputError(f"branch_scale must be finite and not negative, got {float(bad[0])}.")


@lru_cache(maxsize=64)
def _cached_derivatives(kernel: ResNetKernel) -> tuple[AngularKernel, ...]:
    with torch.no_grad():
        assert isinstance(kernel.branch_scale, float)
        return derivative_kernels(kernel.limit_at, kernel.branch_scale, kernel.accuracy, kernel.normalise)
