"""Skip maps without parameters: linear maps, most of them with all singular values 1.

'On skip connections and normalisation layers in deep optimisation' asks for shortcuts I with I Iᵀ = identity. Here a
map acts on a batch, one sample a row; `skip_matrix` gives the matrix that acts on one flattened sample as a column.
"""

import math
from collections.abc import Callable, Sequence
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from skiplens.base.errors import InvalidInputError


class Truncation(nn.Module):
    """The first `features` coordinates: all singular values 1."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.features = features

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the first coordinates of each sample."""
        return inputs[..., : self.features]


class ScaledAveragePool(nn.Module):
    """`size` times the average over disjoint size × size windows: all singular values 1."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the scaled average of each window; pixels left over at the border are dropped."""
        return inputs if self.size == 1 else self.size * F.avg_pool2d(inputs, self.size)


class PaddedAveragePool(nn.Module):
    """The scaled average pool with zero channels in front and behind, as in the authors' public code.

    A partial isometry: the singular values of the added channels are 0, so it does not meet the paper's own demand.
    """

    def __init__(self, size: int, extra_channels: int) -> None:
        super().__init__()
        self.pool = ScaledAveragePool(size)
        self.front = extra_channels // 2
        self.behind = extra_channels - self.front

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the pooled channels between zero channels."""
        return F.pad(self.pool(inputs), (0, 0, 0, 0, self.front, self.behind))


class StridedZeroPad(nn.Module):
    """Every `stride`-th pixel, with zero channels behind: the parameter-free shortcut of the CIFAR ResNets."""

    def __init__(self, stride: int, extra_channels: int) -> None:
        super().__init__()
        self.stride = stride
        self.extra_channels = extra_channels

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the picked pixels of each channel and zeros."""
        return F.pad(inputs[..., :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.extra_channels))


class IsometricPool(nn.Module):
    """Orthonormal patch filters with stride = size, the constant one first: all singular values 1.

    The filters are products of DCT-II vectors (for size 2: Haar) in the order (0,0), (0,1), (1,0), (1,1), …; output
    channel f · inputs + c is filter f of input channel c. Possible whenever outputs <= inputs · size².
    """

    filters: Tensor

    def __init__(self, size: int, inputs: int, outputs: int) -> None:
        super().__init__()
        if outputs > inputs * size**2:
            raise InvalidInputError(
                f"An isometric pool of {size}×{size} windows makes at most {inputs * size**2} channels of {inputs}; "
                f"{outputs} were asked for. Use larger windows, fewer channels or PaddedAveragePool."
            )
        self.size, self.outputs = size, outputs
        self.count = math.ceil(outputs / inputs)
        self.register_buffer("filters", patch_filters(size, self.count).to(torch.get_default_dtype()))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the filtered channels, filter by filter."""
        return isometric_pool(inputs, self.filters, self.outputs)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        # A network made in float32 and measured in float64 would keep filters that are orthonormal to 1e-8 only.
        super()._apply(fn, recurse)
        self.filters = patch_filters(self.size, self.count).to(self.filters)
        return self


def isometric_pool(images: Tensor, filters: Tensor, outputs: int) -> Tensor:
    """The first `outputs` channels of all images filtered by each of the patch filters in turn."""
    single = images.flatten(0, 1).unsqueeze(1)
    filtered = F.conv2d(single, filters, stride=filters.shape[-1]).unflatten(0, images.shape[:2])
    return filtered.transpose(1, 2).flatten(1, 2)[:, :outputs]


def patch_filters(size: int, count: int) -> Tensor:
    """The first `count` two-dimensional DCT-II filters of a size × size patch, as (count, 1, size, size) in float64."""
    position, frequency = torch.arange(size, dtype=torch.float64), torch.arange(size, dtype=torch.float64)[:, None]
    waves = torch.cos(math.pi * (position + 0.5) * frequency / size) * math.sqrt(2 / size)
    waves[0] = 1 / math.sqrt(size)
    pairs = [(u, v) for u in range(size) for v in range(size)]
    pairs.sort(key=lambda pair: (max(pair), sum(pair), pair[0]))
    return torch.stack([torch.outer(waves[u], waves[v]) for u, v in pairs[:count]]).unsqueeze(1)


def skip_matrix(skip: nn.Module, sample_shape: Sequence[int], dtype: torch.dtype = torch.float64) -> Tensor:
    """The matrix of a linear skip map on flattened samples, (output features, input features)."""
    features = math.prod(sample_shape)
    return skip(torch.eye(features, dtype=dtype).reshape(features, *sample_shape)).flatten(1).T
