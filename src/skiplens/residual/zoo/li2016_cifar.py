"""The CIFAR pre-activation ResNets of figures 2 and 9 of 'Demystifying ResNet': any shortcut depth, same parameters.

One sequence of 3×3 convolutions in three stages of doubling width; a unit is shortcut_depth of them, each after batch
norm and ReLU, around a shortcut without parameters. Regrouping the sequence changes no parameter.
"""

from collections import OrderedDict
from dataclasses import dataclass

from torch import nn

from skiplens.core.errors import SettingsError
from skiplens.core.randomness import Randomness
from skiplens.core.settings import option
from skiplens.residual.initialisation import fill_weights_
from skiplens.residual.zoo.blocks import Residual
from skiplens.residual.zoo.entry import Entry
from skiplens.residual.zoo.laws import he_over_outputs, uniform_over_inputs
from skiplens.residual.zoo.layers import convolution, linear
from skiplens.residual.zoo.options import NetworkOptions
from skiplens.residual.zoo.preact_blocks import preactivated, preactivation
from skiplens.residual.zoo.skips import StridedZeroPad


@dataclass(frozen=True)
class CifarResNetOptions(NetworkOptions):
    """Options of `preact_resnet`."""

    depth: int = option(38, "weight layers; 36 q + 2 suits every shortcut depth from 1 to 4", minimum=5)
    shortcut_depth: int = option(2, "convolutions under each shortcut (the n of n-shortcut)", minimum=1)
    width: int = option(16, "channels of the stem and the first stage; doubled at each later stage", minimum=1)
    classes: int = option(10, "outputs", minimum=1)

    def __post_init__(self) -> None:
        """Refuse a depth whose stages cannot be cut into whole units."""
        super().__post_init__()
        step = 3 * self.shortcut_depth
        if (self.depth - 2) % step:
            below = (self.depth - 2) // step * step + 2
            nearest = " or ".join(str(depth) for depth in (below, below + step) if depth > 2)
            raise SettingsError(
                f"A depth of {self.depth} does not give three stages of whole units of {self.shortcut_depth} "
                f"convolutions: depth - 2 must be a multiple of {step}. Take {nearest}."
            )

    def input_shape(self) -> tuple[int, ...]:
        """One colour image of 32×32 pixels; other sizes work too."""
        return (3, 32, 32)


def preact_resnet(options: CifarResNetOptions, randomness: Randomness) -> nn.Sequential:
    """The network, with convolutions from N(0, 2 / (9 outputs)) and a head as PyTorch starts it, with bias 0.

    The streams of the weights are named by their place in the sequence of convolutions, so networks of the same seed
    and depth have the same weights at every shortcut depth.
    """
    convolutions = _convolutions(options)
    fill_weights_(nn.ModuleList(convolutions), he_over_outputs, randomness.child("convolutions"))
    classifier = linear(4 * options.width, options.classes, bias=True)
    fill_weights_(classifier, uniform_over_inputs, randomness.child("classifier"))
    pooled = [*preactivation(4 * options.width), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    units = _units(convolutions[1:], options.shortcut_depth)
    return nn.Sequential(OrderedDict(stem=convolutions[0], units=units, head=nn.Sequential(*pooled, classifier)))


def _convolutions(options: CifarResNetOptions) -> list[nn.Conv2d]:
    per_stage, inputs = (options.depth - 2) // 3, options.width
    convolutions = [convolution(3, options.width, 3)]
    for stage in range(3):
        channels = options.width * 2**stage
        for index in range(per_stage):
            stride = 2 if stage > 0 and index == 0 else 1
            convolutions.append(convolution(inputs, channels, 3, stride=stride))
            inputs = channels
    return convolutions


def _units(convolutions: list[nn.Conv2d], size: int) -> nn.Sequential:
    groups = [convolutions[start : start + size] for start in range(0, len(convolutions), size)]
    return nn.Sequential(*(_unit(group) for group in groups))


def _unit(group: list[nn.Conv2d]) -> Residual:
    widening = group[-1].out_channels - group[0].in_channels
    shortcut = StridedZeroPad(int(group[0].stride[0]), widening) if widening else None
    return Residual(nn.Sequential(*preactivated(group)), shortcut)


ENTRIES = (
    Entry(
        name="preact_resnet",
        description="CIFAR pre-activation ResNet, shortcut depth 1 to 4 at a fixed parameter count",
        study="li2016_shortcuts",
        options=CifarResNetOptions,
        builder=preact_resnet,
    ),
)
