"""Pre-activation residual blocks (batch norm, ReLU, convolution) with their shortcuts."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Literal

from torch import nn

from skiplens.residual.zoo.blocks import ProjectionShortcut, Residual
from skiplens.residual.zoo.layers import convolution
from skiplens.residual.zoo.skips import IsometricPool, PaddedAveragePool

Shortcut = Literal["projection", "average_pool", "isometric_pool"]
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
    projection = ProjectionShortcut(
        convolution(inputs, outputs, 1, stride=stride), _POOLS[shortcut](stride, inputs, outputs)
    )
    residual = Residual(nn.Sequential(*layers[2:]), projection)
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
