"""Networks for 28×28 digits: the one that Skiplens looks at when no model is given, and MacDonald et al.'s four."""

from collections import OrderedDict
from functools import partial
from typing import Literal

from torch import nn

from skiplens.base import Randomness, option
from skiplens.zoo.entry import Entry, NetworkOptions
from skiplens.zoo.layers import Plain, ProjectionShortcut, Residual, convolution, linear, uninitialised
from skiplens.zoo.preact_resnet import basic_convolutions, preact_stages, preactivation
from skiplens.zoo.skips import IsometricPool, PaddedAveragePool
from skiplens.zoo.weight_laws import fill_weights_, he_weights, uniform_biases_over_inputs, uniform_over_inputs


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


_DIGITS = "small pre-activation residual net for 28×28 digits, batch norm, eight blocks"
ENTRIES = (Entry("digits_resnet", _DIGITS, "skiplens", DigitsResNetOptions, digits_resnet),)

Skip = Literal["none", "projection", "average_pool", "isometric_pool"]


class MnistConvOptions(NetworkOptions):
    """The MNIST networks have no options: their layers are those of the authors' public script."""

    def input_shape(self) -> tuple[int, ...]:
        """One grey image of 28×28 pixels."""
        return (1, 28, 28)


def mnist_conv(skip: Skip, options: MnistConvOptions, randomness: Randomness) -> nn.Sequential:
    """The network with this shortcut around its second block: `stem`, `block1`, `block2`, `head`."""
    stem = nn.Sequential(_convolution(1, 5, 5), nn.AvgPool2d(2))
    norm = nn.BatchNorm1d(320, track_running_stats=False)
    head = nn.Sequential(nn.Flatten(), norm, nn.ReLU(), linear(320, 10, bias=True))
    halves = [[*_preactivation(5), _convolution(5, 5, 5, padding=2)] for _ in range(2)]
    first = nn.Sequential(*halves[0], *halves[1])
    block1 = Plain(first) if skip == "none" else Residual(first)
    network = nn.Sequential(OrderedDict(stem=stem, block1=block1, block2=_block2(skip), head=head))
    fill_weights_(network, uniform_over_inputs, randomness, uniform_biases_over_inputs)
    return network


def _block2(skip: Skip) -> nn.Sequential:
    shrinking = _convolution(5, 20, 3, stride=2, padding=1)
    branch = nn.Sequential(shrinking, *_preactivation(20), _convolution(20, 20, 3))
    pools = {"average_pool": PaddedAveragePool(3, 15), "isometric_pool": IsometricPool(3, 5, 20)}
    shortcut = ProjectionShortcut(_convolution(5, 20, 1, stride=3), pools.get(skip))
    joined = Plain(branch) if skip == "none" else Residual(branch, shortcut)
    return nn.Sequential(OrderedDict(preactivation=nn.Sequential(*_preactivation(5)), residual=joined))


def _preactivation(channels: int) -> list[nn.Module]:
    return [nn.BatchNorm2d(channels, track_running_stats=False), nn.ReLU()]


def _convolution(inputs: int, outputs: int, window: int, stride: int = 1, padding: int = 0) -> nn.Conv2d:
    return uninitialised(nn.Conv2d, inputs, outputs, window, stride=stride, padding=padding)


_VARIANTS: tuple[tuple[str, Skip, str], ...] = (
    ("mnist_chain", "none", "without shortcuts"),
    ("mnist_residual", "projection", "with identity and 1×1 convolution shortcuts"),
    ("mnist_residual_avgpool", "average_pool", "with a padded average pool added to a shortcut"),
    ("mnist_residual_isopool", "isometric_pool", "with an isometric pool added to a shortcut"),
)

_STUDY = "macdonald2023_regularity"
MNIST_ENTRIES = tuple(
    Entry(name, f"MNIST conv net {text}", _STUDY, MnistConvOptions, partial(mnist_conv, skip), "mnist_conv")
    for name, skip, text in _VARIANTS
)
