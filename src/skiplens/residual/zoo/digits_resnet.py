"""The small residual network that Skiplens looks at when no model is given: 28×28 digits, eight blocks."""

from collections import OrderedDict
from dataclasses import dataclass

from torch import nn

from skiplens.core.randomness import Randomness
from skiplens.core.settings import option
from skiplens.residual.initialisation import fill_weights_, he_weights
from skiplens.residual.zoo.entry import Entry
from skiplens.residual.zoo.layers import convolution, linear
from skiplens.residual.zoo.options import NetworkOptions
from skiplens.residual.zoo.preact_blocks import basic_convolutions, preact_stages, preactivation


@dataclass(frozen=True)
class DigitsResNetOptions(NetworkOptions):
    """Options of `digits_resnet`."""

    width: int = option(8, "channels of the stem and the first stage; doubled at each later stage", minimum=1)
    channels: int = option(1, "channels of an image", minimum=1)
    classes: int = option(10, "outputs", minimum=1)

    def input_shape(self) -> tuple[int, ...]:
        """One image of 28×28 pixels; other sizes work too."""
        return (self.channels, 28, 28)


def digits_resnet(options: DigitsResNetOptions, randomness: Randomness) -> nn.Sequential:
    """A pre-activation network of 2, 3 and 3 basic blocks in three stages, He initialised."""
    stages, channels = preact_stages((2, 3, 3), options.width, basic_convolutions)
    classifier = linear(channels, options.classes, bias=True)
    head = nn.Sequential(*preactivation(channels), nn.AdaptiveAvgPool2d(1), nn.Flatten(), classifier)
    stem = convolution(options.channels, options.width, 3)
    network = nn.Sequential(OrderedDict(stem=stem, stages=stages, head=head))
    fill_weights_(network, he_weights, randomness)
    return network


ENTRIES = (
    Entry(
        name="digits_resnet",
        description="small pre-activation residual net for 28×28 digits, batch norm, eight blocks",
        study="skiplens",
        options=DigitsResNetOptions,
        builder=digits_resnet,
    ),
)
