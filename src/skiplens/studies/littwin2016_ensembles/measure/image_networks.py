"""The networks whose depth is followed on images: identity blocks x + R(Wx), convolutional or dense."""

from collections import OrderedDict

import torch
from torch import nn

from skiplens.core.randomness import Randomness
from skiplens.residual import zoo
from skiplens.residual.initialisation import fill_weights_, he_weights
from skiplens.residual.zoo.blocks import Residual
from skiplens.residual.zoo.layers import convolution, linear
from skiplens.studies.littwin2016_ensembles.settings import Images

CLASSES = 10


def image_network(settings: Images, shape: tuple[int, int, int], randomness: Randomness) -> nn.Module:
    """The network that the settings name, for images of `shape`, in float32.

    Scales of batch norm start at 1; without batch norm the weights of branches start at He's over the number of blocks.
    """
    if settings.network == "dense":
        return _dense(settings, shape[0] * shape[1] * shape[2], randomness).float()
    return _conv(settings, shape[0], randomness).float()


def _dense(settings: Images, inputs: int, randomness: Randomness) -> nn.Module:
    scaling = {"scaling": "per_unit", "scale_per_unit": True} if settings.normalised else {}
    network = zoo.build(
        "ensemble_resnet",
        randomness,
        depth=settings.blocks + 1,
        width=settings.width,
        input_features=inputs,
        classes=CLASSES,
        weight_scale=2**0.5,
        output_scale=2**0.5,
        **scaling,
    )
    if not settings.normalised:
        _shrink_branches_(network, settings.blocks)
    return nn.Sequential(nn.Flatten(), network)


def _conv(settings: Images, channels: int, randomness: Randomness) -> nn.Module:
    """Blocks x + R(Wx), with batch norm behind the ReLU as in equation 20."""
    width = settings.width
    blocks = [Residual(_branch(width, settings.normalised)) for _ in range(settings.blocks)]
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), linear(width, CLASSES, bias=True))
    stem = nn.Sequential(convolution(channels, width, 3), nn.ReLU())
    network = nn.Sequential(OrderedDict(stem=stem, blocks=nn.Sequential(*blocks), head=head))
    fill_weights_(network, he_weights, randomness)
    if not settings.normalised:
        _shrink_branches_(network, settings.blocks)
    return network


def _branch(width: int, normalised: bool) -> nn.Sequential:
    layers = [convolution(width, width, 3), nn.ReLU()]
    return nn.Sequential(*layers, *([nn.BatchNorm2d(width)] if normalised else []))


def _shrink_branches_(network: nn.Module, blocks: int) -> None:
    with torch.no_grad():
        for parameter in network.get_submodule("blocks").parameters():
            parameter.div_(blocks)
