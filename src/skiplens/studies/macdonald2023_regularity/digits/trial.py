"""One trial: a small batch of digits and networks that share their initial weights."""

from collections.abc import Iterator
from functools import cache

import torch
import torch.nn.functional as F
from torch import nn

from skiplens.core.axes import Tensor
from skiplens.core.randomness import Randomness
from skiplens.data.embedded import sample
from skiplens.data.fetch import get
from skiplens.data.images import ImageSet
from skiplens.residual.zoo.catalogue import build
from skiplens.studies.macdonald2023_regularity.digits.settings import Digits

MEAN, DEVIATION = 0.1306604763, 0.3081078039
"""Of the pixels of the MNIST training set."""


def batch_of(settings: Digits, trial: int) -> tuple[Tensor, Tensor]:
    """The images and labels of a trial, drawn without replacement."""
    digits = _digits(settings.source)
    generator = _randomness(settings, trial).child("images").torch()
    chosen = digits.select(torch.randperm(len(digits), generator=generator)[: settings.images])
    pixels = chosen.pixels(torch.float32)
    return (pixels - MEAN) / DEVIATION if settings.standardised else pixels, chosen.labels


def network_of(settings: Digits, trial: int, name: str) -> nn.Module:
    """A network of the zoo with the weights of a trial, the same in all networks that have them."""
    return build(name, _randomness(settings, trial).child("weights")).to(torch.float32)


def descent(network: nn.Module, batch: tuple[Tensor, Tensor], learning_rate: float, steps: int) -> Iterator[float]:
    """The loss before each of `steps` updates of full-batch gradient descent, which changes the network."""
    images, labels = batch
    parameters = list(network.parameters())
    for _ in range(steps):
        loss = F.cross_entropy(network(images), labels)
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.sub_(gradient, alpha=learning_rate)
        yield loss.item()


def _randomness(settings: Digits, trial: int) -> Randomness:
    return Randomness(settings.seed).child("digits", settings.source, trial)


@cache
def _digits(source: str) -> ImageSet:
    return sample() if source == "sample" else get(source)
