"""Networks to which the theorems of 'On skip connections and normalisation layers in deep optimisation' apply.

After the first layer each layer is I z + g(z), where I keeps the first coordinates (all singular values 1) and
|Jg|_2 <= 1 - margin for all weights. The outputs of the last block are the network's outputs: a head without skip
would break the hypotheses.
"""

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from skiplens.base import Randomness, SettingsError, option, refuse_if
from skiplens.zoo.entry import Entry, NetworkOptions
from skiplens.zoo.layers import Residual, linear, uninitialised
from skiplens.zoo.skips import Truncation
from skiplens.zoo.weight_laws import fill_weights_, standard_normal


class NormalisedResNetOptions(NetworkOptions):
    """Options of `normalised_resnet`; the defaults are the paper-sized network on 28×28 digits."""

    widths: tuple[int, ...] = option((784, 32, 16, 10), "features of the input and of each layer's output", minimum=1)
    hidden: int = option(16, "units between the two matrices of a branch", minimum=1)
    epsilon: float = option(1.0, "epsilon of the normalisations", minimum=0.0)
    margin: float = option(0.1, "delta: branches have slopes of at most 1 - margin", minimum=0.0)

    def __post_init__(self) -> None:
        """Refuse widths that grow after the first layer: no such skip has all singular values 1 and full row rank."""
        super().__post_init__()
        layers = self.widths[1:]
        if not layers or any(after > before for before, after in pairwise(layers)):
            raise SettingsError(
                f"widths must be the input's features, then layers that never grow; got {self.widths}. "
                "Give for instance 784,32,16,10."
            )
        refuse_if(self.margin >= 1, f"margin must be below 1; got {self.margin}.", SettingsError)

    def input_shape(self) -> tuple[int, ...]:
        """The features of one sample."""
        return (self.widths[0],)


class GuaranteedResNetOptions(NormalisedResNetOptions):
    """Options of `guaranteed_resnet`."""

    margin: float = option(0.5, "delta: branches have slopes of at most 1 - margin", minimum=0.0)


def normalised_resnet(options: NormalisedResNetOptions, randomness: Randomness) -> nn.Sequential:
    """The network of theorem 5.1: en(W) x, then blocks I z + s_b wn(B) tanh(s_a wn(A) z)."""
    first = uninitialised(NormalisedLinear, *options.widths[:2], Parameterisation("entry", options.epsilon))
    return _network(options, first, [], randomness)


def guaranteed_resnet(options: GuaranteedResNetOptions, randomness: Randomness) -> nn.Sequential:
    """The repaired network: W x, then blocks I z + s_b wn(B) tanh(s_a wn(A) tanh(z)).

    Its first layer is not normalised and its branches are bounded, so gradient descent reaches a global minimum of the
    square and of the cross-entropy loss from any start; for the paper's own network that is false.
    """
    return _network(options, linear(options.widths[0], options.widths[1]), [nn.Tanh()], randomness)


def _network(
    options: NormalisedResNetOptions, first: nn.Module, opening: Sequence[nn.Module], randomness: Randomness
) -> nn.Sequential:
    blocks = nn.Sequential()
    for inputs, outputs in pairwise(options.widths[1:]):
        inner = _contraction(options, inputs, options.hidden, 0.0)
        outer = _contraction(options, options.hidden, outputs, options.margin)
        blocks.append(Residual(nn.Sequential(*opening, inner, nn.Tanh(), outer), Truncation(outputs)))
    network = nn.Sequential(OrderedDict(first=first, blocks=blocks))
    fill_weights_(network, standard_normal, randomness)
    return network


Normalisation = Literal["weight", "entry"]


@dataclass(frozen=True)
class Parameterisation:
    """The map w -> factor · P(w) from a layer's parameters to the matrix or kernel it multiplies with."""

    normalisation: Normalisation
    epsilon: float = 1.0
    factor: float = 1.0

    def __call__(self, weight: Tensor) -> Tensor:
        """Return factor · P(weight)."""
        normalise = weight_normalised if self.normalisation == "weight" else entry_normalised
        return self.factor * normalise(weight, self.epsilon)


class NormalisedLinear(nn.Linear):
    """The layer P(w) x without bias, w of shape (outputs, inputs)."""

    def __init__(self, inputs: int, outputs: int, parameterisation: Parameterisation) -> None:
        super().__init__(inputs, outputs, bias=False)
        self.parameterisation = parameterisation

    def forward(self, inputs: Tensor) -> Tensor:
        """Return P(w) times each sample."""
        return F.linear(inputs, self.parameterisation(self.weight))


def _contraction(options: NormalisedResNetOptions, inputs: int, outputs: int, margin: float) -> NormalisedLinear:
    factor = contraction_factor((outputs, inputs), "weight", margin)
    return uninitialised(NormalisedLinear, inputs, outputs, Parameterisation("weight", options.epsilon, factor))


def weight_normalised(weight: Tensor, epsilon: float) -> Tensor:
    """Each row w (all numbers of one output) divided by sqrt(epsilon + |w|²)."""
    return weight * (epsilon + weight.square().sum(dim=tuple(range(1, weight.dim())), keepdim=True)).rsqrt()


def entry_normalised(weight: Tensor, epsilon: float) -> Tensor:
    """Each entry w divided by sqrt(epsilon + w²)."""
    return weight * (epsilon + weight.square()).rsqrt()


def contraction_factor(
    shape: Sequence[int], normalisation: Normalisation, margin: float = 0.0, stride: int = 1
) -> float:
    """The factor s with |s P(w)|_2 <= 1 - margin for every w of this shape (table 2.5 of the corrected theory).

    The shape is (outputs, inputs), or (outputs, inputs, height, width) of a convolution with this stride.
    """
    windows_over_a_pixel = math.prod(math.ceil(size / stride) for size in shape[2:])
    entries = shape[0] if normalisation == "weight" else math.prod(shape)
    return (1 - margin) / math.sqrt(windows_over_a_pixel * entries)


ENTRIES = tuple(
    Entry(f"{name}_resnet", description, "macdonald2023_regularity", options, builder)
    for name, description, options, builder in (
        ("normalised", "normalised residual network of theorem 5.1", NormalisedResNetOptions, normalised_resnet),
        ("guaranteed", "its repaired variant, whose convergence is proved", GuaranteedResNetOptions, guaranteed_resnet),
    )
)


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
