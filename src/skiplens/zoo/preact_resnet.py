"""Pre-activation ResNet-18 and ResNet-50, with convolutional and with pool-plus-convolution shortcuts.

As trained on CIFAR in 'On skip connections and normalisation layers in deep optimisation': a 3×3 stem without batch
norm, four stages, no batch norm after the last block, global average pool, linear head. Networks of the same seed have
the same weights, whatever their shortcuts.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

from torch import nn

from skiplens.base import Randomness, SettingsError, option
from skiplens.zoo.entry import Entry, NetworkOptions
from skiplens.zoo.layers import ProjectionShortcut, Residual, convolution, linear
from skiplens.zoo.skips import IsometricPool, PaddedAveragePool, StridedZeroPad
from skiplens.zoo.weight_laws import fill_weights_, he_over_outputs, uniform_biases_over_inputs, uniform_over_inputs


class PreactResNetOptions(NetworkOptions):
    """Options of the pre-activation ResNet-18 and ResNet-50."""

    classes: int = option(10, "outputs", minimum=1)
    width: int = option(64, "channels of the stem and the first stage; doubled at each later stage", minimum=1)
    stem: Literal["cifar", "imagenet"] = option("cifar", "3×3 convolution, or 7×7 with stride 2 and max pool")

    def input_shape(self) -> tuple[int, ...]:
        """One colour image of the size the stem is made for; other sizes work too."""
        return (3, 32, 32) if self.stem == "cifar" else (3, 224, 224)


Shortcut = Literal["projection", "average_pool", "isometric_pool"]


def preact_resnet_18_or_50(
    layers: int, shortcut: Shortcut, options: PreactResNetOptions, randomness: Randomness
) -> nn.Sequential:
    """The ResNet-18 of two basic blocks, or the ResNet-50 of 3, 4, 6 and 3 bottleneck blocks, in four stages."""
    counts, kind = ((2, 2, 2, 2), basic_convolutions) if layers == 18 else ((3, 4, 6, 3), bottleneck_convolutions)
    stages, channels = preact_stages(counts, options.width, kind, shortcut)
    stem: nn.Module = convolution(3, options.width, 3)
    if options.stem == "imagenet":
        stem = nn.Sequential(convolution(3, options.width, 7, stride=2), nn.MaxPool2d(3, stride=2, padding=1))
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), linear(channels, options.classes, bias=True))
    network = nn.Sequential(OrderedDict(stem=stem, stages=stages, head=head))
    fill_weights_(network, uniform_over_inputs, randomness, uniform_biases_over_inputs)
    return network


_VARIANTS: tuple[tuple[str, int, Shortcut, str], ...] = (
    ("preact_resnet18", 18, "projection", "convolutional"),
    ("preact_resnet18_avgskip", 18, "average_pool", "average-pool-plus-convolution"),
    ("preact_resnet18_isoskip", 18, "isometric_pool", "isometric-pool-plus-convolution"),
    ("preact_resnet50", 50, "projection", "convolutional"),
    ("preact_resnet50_avgskip", 50, "average_pool", "average-pool-plus-convolution"),
)

Convolutions = Callable[[int, int, int], list[nn.Conv2d]]
"""From input channels, channels and stride to the convolutions of a branch."""

_POOLS: dict[str, Callable[[int, int, int], nn.Module | None]] = {
    "projection": lambda stride, inputs, outputs: None,
    "average_pool": lambda stride, inputs, outputs: PaddedAveragePool(stride, outputs - inputs),
    "isometric_pool": IsometricPool,
}


def preactivation(channels: int) -> list[nn.Module]:
    """Batch norm and ReLU."""
    return [nn.BatchNorm2d(channels), nn.ReLU()]


def preactivated(convolutions: Sequence[nn.Conv2d]) -> list[nn.Module]:
    """Batch norm and ReLU before each of the convolutions."""
    return [layer for conv in convolutions for layer in (*preactivation(conv.in_channels), conv)]


def preact_block(convolutions: Sequence[nn.Conv2d], stride: int, shortcut: Shortcut = "projection") -> nn.Module:
    """A pre-activation block of these convolutions.

    If the block keeps the shape, its shortcut is the identity of its input x. Else both its branch and its shortcut
    start from o = ReLU(BN(x)), and the shortcut is a 1×1 convolution of o, plus a pool of o if one is wanted.
    """
    inputs, outputs = convolutions[0].in_channels, convolutions[-1].out_channels
    layers = preactivated(convolutions)
    if stride == 1 and inputs == outputs:
        return Residual(nn.Sequential(*layers))
    projection, pool = convolution(inputs, outputs, 1, stride=stride), _POOLS[shortcut](stride, inputs, outputs)
    residual = Residual(nn.Sequential(*layers[2:]), ProjectionShortcut(projection, pool))
    return nn.Sequential(OrderedDict(preactivation=nn.Sequential(*layers[:2]), residual=residual))


def basic_convolutions(inputs: int, channels: int, stride: int) -> list[nn.Conv2d]:
    """Two 3×3 convolutions, the first one with the stride."""
    return [convolution(inputs, channels, 3, stride=stride), convolution(channels, channels, 3)]


def bottleneck_convolutions(inputs: int, channels: int, stride: int) -> list[nn.Conv2d]:
    """A 1×1, a strided 3×3 and a 1×1 convolution; the last one widens fourfold."""
    strided = convolution(channels, channels, 3, stride=stride)
    return [convolution(inputs, channels, 1), strided, convolution(channels, 4 * channels, 1)]


def preact_stages(
    counts: Sequence[int], width: int, convolutions: Convolutions, shortcut: Shortcut = "projection"
) -> tuple[nn.Sequential, int]:
    """Stages of so many blocks, each but the first starting with stride 2 and twice the width; and their outputs."""
    stages, inputs = nn.Sequential(), width
    for index, count in enumerate(counts):
        stage = nn.Sequential()
        for stride in [2 if index else 1] + [1] * (count - 1):
            layers = convolutions(inputs, width * 2**index, stride)
            stage.append(preact_block(layers, stride, shortcut))
            inputs = layers[-1].out_channels
        stages.append(stage)
    return stages, inputs


def _entry(name: str, layers: int, shortcut: Shortcut, text: str) -> Entry:
    words = (name, f"pre-activation ResNet-{layers} with {text} shortcuts", "macdonald2023_regularity")
    builder = partial(preact_resnet_18_or_50, layers, shortcut)
    return Entry(*words, PreactResNetOptions, builder, f"preact_resnet{layers}")


ENTRIES = tuple(_entry(*variant) for variant in _VARIANTS)


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
    units = nn.Sequential()
    for start in range(1, len(convolutions), options.shortcut_depth):
        group = convolutions[start : start + options.shortcut_depth]
        widening = group[-1].out_channels - group[0].in_channels
        shortcut = StridedZeroPad(int(group[0].stride[0]), widening) if widening else None
        units.append(Residual(nn.Sequential(*preactivated(group)), shortcut))
    return nn.Sequential(OrderedDict(stem=convolutions[0], units=units, head=nn.Sequential(*pooled, classifier)))


def _convolutions(options: CifarResNetOptions) -> list[nn.Conv2d]:
    per_stage, inputs = (options.depth - 2) // 3, options.width
    convolutions = [convolution(3, options.width, 3)]
    for channels in [options.width * 2**stage for stage in range(3) for _ in range(per_stage)]:
        convolutions.append(convolution(inputs, channels, 3, stride=channels // inputs))
        inputs = channels
    return convolutions


_CIFAR = "CIFAR pre-activation ResNet, shortcut depth 1 to 4 at a fixed parameter count"
CIFAR_ENTRIES = (Entry("preact_resnet", _CIFAR, "li2016_shortcuts", CifarResNetOptions, preact_resnet),)
