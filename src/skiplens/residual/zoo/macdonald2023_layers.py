"""The layers of 'On skip connections and normalisation layers in deep optimisation' (MacDonald et al. 2023).

The paper's data matrix is d × N with one sample a column; here a batch is (samples, features), its transpose: a layer
P(w) X of the paper is inputs @ P(w)ᵀ here. The affine layer of the paper is `nn.Linear`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

Normalisation = Literal["weight", "entry"]


def weight_normalised(weight: Tensor, epsilon: float) -> Tensor:
    """Each row w (all numbers of one output) divided by sqrt(epsilon + |w|²)."""
    squares = weight.square().sum(dim=tuple(range(1, weight.dim())), keepdim=True)
    return weight * (epsilon + squares).rsqrt()


def entry_normalised(weight: Tensor, epsilon: float) -> Tensor:
    """Each entry w divided by sqrt(epsilon + w²)."""
    return weight * (epsilon + weight.square()).rsqrt()


_NORMALISERS: dict[str, Callable[[Tensor, float], Tensor]] = {"weight": weight_normalised, "entry": entry_normalised}


@dataclass(frozen=True)
class Parameterisation:
    """The map w -> factor · P(w) from a layer's parameters to the matrix or kernel it multiplies with."""

    normalisation: Normalisation
    epsilon: float = 1.0
    factor: float = 1.0

    def __call__(self, weight: Tensor) -> Tensor:
        """Return factor · P(weight)."""
        return self.factor * _NORMALISERS[self.normalisation](weight, self.epsilon)


class NormalisedLinear(nn.Linear):
    """The layer P(w) x without bias, w of shape (outputs, inputs)."""

    def __init__(self, inputs: int, outputs: int, parameterisation: Parameterisation) -> None:
        super().__init__(inputs, outputs, bias=False)
        self.parameterisation = parameterisation

    def forward(self, inputs: Tensor) -> Tensor:
        """Return P(w) times each sample."""
        return F.linear(inputs, self.parameterisation(self.weight))


class NormalisedConv2d(nn.Conv2d):
    """The convolution with kernel P(w) without bias; a row of the weight normalisation is one output channel."""

    def __init__(
        self,
        channels: tuple[int, int],
        window: int,
        parameterisation: Parameterisation,
        stride: int = 1,
        padding: int = 0,
    ) -> None:
        super().__init__(*channels, window, stride=stride, padding=padding, bias=False)
        self.parameterisation = parameterisation

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the convolution of each image with P(w)."""
        return F.conv2d(inputs, self.parameterisation(self.weight), stride=self.stride, padding=self.padding)


class BatchNormalise(nn.Module):
    """Batch norm without parameters and running statistics: the biased variance, epsilon inside of the root.

    Each unit (or channel) is centred and divided over the whole batch (and all positions), so samples are coupled; it
    is written in plain tensor operations, so that `torch.func.vmap` accepts it.
    """

    def __init__(self, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.epsilon = epsilon

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the normalised batch."""
        others = tuple(axis for axis in range(inputs.dim()) if axis != 1)
        centred = inputs - inputs.mean(others, keepdim=True)
        return centred * (centred.square().mean(others, keepdim=True) + self.epsilon).rsqrt()


def contraction_factor(
    shape: Sequence[int], normalisation: Normalisation, margin: float = 0.0, stride: int = 1
) -> float:
    """The factor s with |s P(w)|_2 <= 1 - margin for every w of this shape (table 2.5 of the corrected theory).

    Args:
        shape: Of the weight: (outputs, inputs) or (outputs, inputs, height, width) of the window.
        normalisation: Row norms or entries below 1.
        margin: delta of the theorems.
        stride: Of a convolution.
    """
    windows_over_a_pixel = math.prod(math.ceil(size / stride) for size in shape[2:])
    entries = shape[0] if normalisation == "weight" else math.prod(shape)
    return (1 - margin) / math.sqrt(windows_over_a_pixel * entries)
