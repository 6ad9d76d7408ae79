"""Pre-activation ResNet-18 and ResNet-50, with convolutional and with pool-plus-convolution shortcuts.

As trained on CIFAR in 'On skip connections and normalisation layers in deep optimisation': a 3×3 stem without batch
norm, four stages, no batch norm after the last block, global average pool, linear head. Networks of the same seed have
the same weights, whatever their shortcuts.
"""

from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from typing import Literal

from torch import nn

from skiplens.core.randomness import Randomness
from skiplens.core.settings import option
from skiplens.residual.initialisation import fill_weights_
from skiplens.residual.zoo.entry import Entry
from skiplens.residual.zoo.laws import uniform_biases_over_inputs, uniform_over_inputs
from skiplens.residual.zoo.layers import convolution, linear
from skiplens.residual.zoo.options import NetworkOptions
from skiplens.residual.zoo.preact_blocks import Shortcut, basic_convolutions, bottleneck_convolutions, preact_stages


@dataclass(frozen=True)
class PreactResNetOptions(NetworkOptions):
    """Options of the pre-activation ResNet-18 and ResNet-50."""

    classes: int = option(10, "outputs", minimum=1)
    width: int = option(64, "channels of the stem and the first stage; doubled at each later stage", minimum=1)
    stem: Literal["cifar", "imagenet"] = option("cifar", "3×3 convolution, or 7×7 with stride 2 and max pool")

    def input_shape(self) -> tuple[int, ...]:
        """One colour image of the size the stem is made for; other sizes work too."""
        return (3, 32, 32) if self.stem == "cifar" else (3, 224, 224)


def preact_resnet18(shortcut: Shortcut, options: PreactResNetOptions, randomness: Randomness) -> nn.Sequential:
    """The ResNet of two basic blocks in each of four stages."""
    return _network(preact_stages((2, 2, 2, 2), options.width, basic_convolutions, shortcut), options, randomness)


def preact_resnet50(shortcut: Shortcut, options: PreactResNetOptions, randomness: Randomness) -> nn.Sequential:
    """The ResNet of 3, 4, 6 and 3 bottleneck blocks in four stages."""
    return _network(preact_stages((3, 4, 6, 3), options.width, bottleneck_convolutions, shortcut), options, randomness)


_RESNETS = {18: preact_resnet18, 50: preact_resnet50}


def _network(stages: tuple[nn.Sequential, int], options: PreactResNetOptions, randomness: Randomness) -> nn.Sequential:
    body, channels = stages
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), linear(channels, options.classes, bias=True))
    network = nn.Sequential(OrderedDict(stem=_stem(options), stages=body, head=head))
    fill_weights_(network, uniform_over_inputs, randomness, uniform_biases_over_inputs)
    return network


def _stem(options: PreactResNetOptions) -> nn.Module:
    if options.stem == "cifar":
        return convolution(3, options.width, 3)
    return nn.Sequential(convolution(3, options.width, 7, stride=2), nn.MaxPool2d(3, stride=2, padding=1))


_VARIANTS: tuple[tuple[str, int, Shortcut, str], ...] = (
    ("preact_resnet18", 18, "projection", "convolutional shortcuts"),
    ("preact_resnet18_avgskip", 18, "average_pool", "average-pool-plus-convolution shortcuts"),
    ("preact_resnet18_isoskip", 18, "isometric_pool", "isometric-pool-plus-convolution shortcuts"),
    ("preact_resnet50", 50, "projection", "convolutional shortcuts"),
    ("preact_resnet50_avgskip", 50, "average_pool", "average-pool-plus-convolution shortcuts"),
)

ENTRIES = tuple(
    Entry(
        name=name,
        description=f"pre-activation ResNet-{layers} with {text}",
        study="macdonald2023_regularity",
        options=PreactResNetOptions,
        builder=partial(_RESNETS[layers], shortcut),
        stream=f"preact_resnet{layers}",
    )
    for name, layers, shortcut, text in _VARIANTS
)
