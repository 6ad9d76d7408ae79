"""The small networks of figure 2 on small batches of digits: their descent, and spectra of their Jacobians."""

import copy
from collections.abc import Callable, Iterator
from functools import cache
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from skiplens.base import Float, Randomness, option
from skiplens.data import ImageSet, get, sample
from skiplens.graph.functional import transformable
from skiplens.jacobians.part_spectrum import Linearised, sample_jacobians, whole_jacobian
from skiplens.linalg.singular_values import all_singular_values
from skiplens.papers.statistics import ReplicateSettings
from skiplens.zoo.catalogue import build

NETWORKS = ("mnist_chain", "mnist_residual", "mnist_residual_avgpool", "mnist_residual_isopool")
"""The paper's three and ours, whose pool has all singular values 1, from the zoo."""

PRINTED = NETWORKS[:3]
MEAN, DEVIATION = 0.1306604763, 0.3081078039  # of the pixels of the MNIST training set


class Digits(ReplicateSettings):
    """Networks of one initialisation on one small batch; replicates of all measures share both."""

    images: int = option(32, "images of the batch")
    source: Literal["sample", "mnist"] = option("sample", "where images are drawn: the first 2,000 of MNIST, or all")
    standardised: bool = option(False, "give the pixels mean 0 and variance 1; else they are between 0 and 1")
    learning_rate: float = option(0.1, "of full-batch gradient descent")


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


def _randomness(settings: Digits, trial: int) -> Randomness:
    return Randomness(settings.seed).child("digits", settings.source, trial)


@cache
def _digits(source: str) -> ImageSet:
    return sample() if source == "sample" else get(source)


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


def stem_of(network: nn.Module, images: Tensor) -> Tensor:
    """What enters the first block."""
    with torch.no_grad():
        return network.get_submodule("stem")(images)


def after_stem(network: nn.Module, final_norm: bool = True) -> nn.Sequential:
    """Both blocks and the head: the composite whose Jacobian figure 2 shows."""
    block1, block2, head = map(network.get_submodule, ("block1", "block2", "head"))
    layers = (layer for layer in head.children() if final_norm or not isinstance(layer, nn.BatchNorm1d))
    return nn.Sequential(block1, block2, *layers)


def batch_spectrum(function: Callable[[Tensor], Tensor], point: Tensor) -> Float[Tensor, " values"]:
    """The singular values of the Jacobian of a whole batch, descending; batch norm couples its images."""
    with torch.no_grad(), transformable():
        return all_singular_values(whole_jacobian(Linearised(function, point)))


def image_spectrum(module: nn.Module, point: Tensor, images: int) -> Float[Tensor, " values"]:
    """The singular values of the Jacobians of the first images, descending, with batch norm frozen.

    Its statistics are those of all images of `point`. Freezing moves the distribution of the singular values by at most
    two for each channel over their number.
    """
    with torch.no_grad(), transformable():
        frozen = with_frozen_norms(module, point)
        jacobians = sample_jacobians(Linearised(frozen, point[:images]), images)
        return all_singular_values(jacobians).flatten().sort(descending=True).values


def parameter_spectrum(network: nn.Module, images: Tensor) -> Float[Tensor, " values"]:
    """The singular values of the Jacobian of all outputs in all parameters, descending."""
    outputs, parameters = network(images), list(network.parameters())
    units = torch.eye(outputs.numel(), dtype=outputs.dtype).reshape(-1, *outputs.shape)
    rows = []
    for some in units.split(32):  # more outputs at a time win nothing
        parts = torch.autograd.grad(outputs, parameters, some, is_grads_batched=True, retain_graph=True)
        rows.append(torch.cat([part.flatten(1) for part in parts], dim=1))
    return all_singular_values(torch.cat(rows))


def with_frozen_norms(module: nn.Module, inputs: Tensor) -> nn.Module:
    """A copy of `module` whose batch norms have the statistics of `inputs`, whatever they are given."""
    frozen = copy.deepcopy(module)
    norms = [norm for norm in frozen.modules() if isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d)]
    hooks = [norm.register_forward_pre_hook(_freeze) for norm in norms]
    with torch.no_grad():
        frozen(inputs)
    for hook in hooks:
        hook.remove()
    return frozen


def _freeze(norm: nn.BatchNorm1d | nn.BatchNorm2d, arguments: tuple[Tensor]) -> None:
    """Give `norm` the statistics of what it is about to normalise; torch's own would have the unbiased variance."""
    others = [axis for axis in range(arguments[0].ndim) if axis != 1]
    variance, mean = torch.var_mean(arguments[0], others, correction=0)
    norm.running_mean, norm.running_var, norm.track_running_stats = mean, variance, True
    norm.eval()
