"""The runs of figure 2, and how large they are at each preset."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from skiplens.base.axes import Float
from skiplens.base.randomness import Randomness
from skiplens.base.settings import option
from skiplens.data.fetch import get
from skiplens.data.images import ImageSet, sample
from skiplens.graph.functional import transformable
from skiplens.jacobians.linearised import Linearised
from skiplens.jacobians.part_spectrum import sample_jacobians, whole_jacobian
from skiplens.linalg.singular_values import all_singular_values
from skiplens.papers.statistics import ReplicateSettings, replicated
from skiplens.papers.study import Preset
from skiplens.sweeps.run import Run
from skiplens.zoo.catalogue import build

NETWORKS = ("mnist_chain", "mnist_residual", "mnist_residual_avgpool", "mnist_residual_isopool")
"""The paper's three and ours, whose pool has all singular values 1, from the zoo."""

PRINTED = NETWORKS[:3]

TITLES = dict(zip(NETWORKS, ("Chain", "Res", "ResAvg", "ResIso (ours)"), strict=True))


@dataclass(frozen=True)
class Digits(ReplicateSettings):
    """Networks of one initialisation on one small batch; replicates of all measures share both."""

    images: int = option(32, "images of the batch")
    source: Literal["sample", "mnist"] = option("sample", "where images are drawn: the first 2,000 of MNIST, or all")
    standardised: bool = option(False, "give the pixels mean 0 and variance 1; else they are between 0 and 1")
    learning_rate: float = option(0.1, "of full-batch gradient descent")


@dataclass(frozen=True)
class Losses(Digits):
    """Training losses of all networks in several trials."""

    standardised: bool = option(True, "give the pixels mean 0 and variance 1; else they are between 0 and 1")
    trials: int = option(10, "initialisations and batches")
    iterations: int = option(20, "updates")


@dataclass(frozen=True)
class Composites(Digits):
    """Jacobians from the first block's input to the logits while the paper's networks train."""

    moments: tuple[int, ...] = option(tuple(range(10)), "numbers of updates before each Jacobian")


@dataclass(frozen=True)
class Starts(Digits):
    """The same before training, of the two residual networks."""

    final_norm: bool = option(True, "with the batch norm in front of the last layer")


@dataclass(frozen=True)
class Parameters(Digits):
    """Jacobians of the logits in the parameters, before training."""

    standardised: bool = option(True, "give the pixels mean 0 and variance 1; else they are between 0 and 1")


@dataclass(frozen=True)
class Blocks(Digits):
    """Jacobians of single blocks before training, with the statistics of batch norm frozen."""

    looked_at: int = option(4, "images whose Jacobians are taken")


@dataclass(frozen=True)
class Sizes:
    """How much of everything a preset does.

    Attributes:
        images: Of a batch.
        loss_runs: Runs of several trials each.
        trials: Of each of these runs.
        composites: Trials whose Jacobians are followed in training.
        moments: At which numbers of updates.
        starts: Trials whose Jacobians are taken before training.
        without_norm: Trials that are also looked at without the last batch norm.
        parameters: Trials whose Jacobians in the parameters are taken.
        blocks: Trials whose blocks are looked at.
        source: Of the images.
    """

    images: int = 32
    loss_runs: int = 8
    trials: int = 10
    composites: int = 5
    moments: tuple[int, ...] = (0, 5, 9)
    starts: int = 24
    without_norm: int = 16
    parameters: int = 12
    blocks: int = 12
    source: Literal["sample", "mnist"] = "sample"


SIZES: dict[Preset, Sizes] = {
    "smoke": Sizes(8, 1, 3, 2, (0, 9), 2, 2, 2, 2),
    "laptop": Sizes(),
    "paper": Sizes(32, 100, 10, 150, tuple(range(10)), 100, 60, 60, 60, source="mnist"),
}


def fig2_runs(preset: Preset, seed: int) -> list[Run]:
    """Losses, Jacobians to the logits in training and before it, in the parameters, and of blocks."""
    sizes = SIZES[preset]
    planned = (
        ("digit_losses", Losses(trials=sizes.trials), sizes.loss_runs, 6.0),
        ("digit_composites", Composites(moments=sizes.moments), sizes.composites, 7.0),
        ("digit_starts", Starts(), sizes.starts, 1.5),
        ("digit_starts", Starts(final_norm=False), sizes.without_norm, 1.5),
        ("digit_parameters", Parameters(), sizes.parameters, 3.5),
        ("digit_blocks", Blocks(), sizes.blocks, 2.0),
    )
    return [
        run
        for name, base, count, seconds in planned
        for run in _repeated(name, _sized(base, sizes), count, seed, seconds)
    ]


def _sized(base: Digits, sizes: Sizes) -> Digits:
    return replace(base, images=sizes.images, source=sizes.source)


def _repeated(name: str, base: Digits, count: int, seed: int, seconds: float) -> list[Run]:
    return replicated(f"{__name__}:{name}", base, count, seed, cost=lambda _: seconds)


def digit_losses(settings: Losses) -> dict[str, Tensor]:
    """Losses (trials, networks, iterations), before each update."""
    first = settings.replicate * settings.trials
    return {"loss": torch.stack([_losses(settings, first + trial) for trial in range(settings.trials)])}


def digit_composites(settings: Composites) -> dict[str, Tensor]:
    """Singular values (networks, moments, values) from the first block's input to the logits, as training goes on."""
    return {"values": torch.stack([_followed(settings, name) for name in PRINTED])}


def digit_starts(settings: Starts) -> dict[str, Tensor]:
    """Singular values (residual networks, values) to the logits before training."""
    images, _ = batch_of(settings, settings.replicate)
    networks = (network_of(settings, settings.replicate, name) for name in PRINTED[1:])
    spectra = [batch_spectrum(after_stem(network, settings.final_norm), _stem(network, images)) for network in networks]
    return {"values": torch.stack(spectra)}


def digit_parameters(settings: Parameters) -> dict[str, Tensor]:
    """Singular values (networks, values) of the derivative DF of the logits in the parameters, before training."""
    images, _ = batch_of(settings, settings.replicate)
    networks = (network_of(settings, settings.replicate, name) for name in PRINTED)
    return {"values": torch.stack([parameter_spectrum(network, images) for network in networks])}


def digit_blocks(settings: Blocks) -> dict[str, Tensor]:
    """Singular values (networks, values) of block 1, and of block 2 behind its first ReLU, before training."""
    images, _ = batch_of(settings, settings.replicate)
    found: dict[str, list[Tensor]] = {"block1": [], "block2": []}
    for network in (network_of(settings, settings.replicate, name) for name in NETWORKS):
        block1, activation, block2 = map(network.get_submodule, ("block1", "block2.preactivation", "block2.residual"))
        stem, spectrum = _stem(network, images), partial(image_spectrum, images=settings.looked_at)
        if len(found["block1"]) < 2:  # the pools are in block 2
            found["block1"].append(spectrum(block1, stem))
        with torch.no_grad():
            found["block2"].append(spectrum(block2, activation(block1(stem))))
    return {name: torch.stack(spectra) for name, spectra in found.items()}


def after_stem(network: nn.Module, final_norm: bool = True) -> nn.Sequential:
    """Both blocks and the head: the composite whose Jacobian figure 2 shows."""
    block1, block2, head = map(network.get_submodule, ("block1", "block2", "head"))
    layers = (layer for layer in head.children() if final_norm or not isinstance(layer, nn.BatchNorm1d))
    return nn.Sequential(block1, block2, *layers)


def _losses(settings: Losses, trial: int) -> Tensor:
    batch = batch_of(settings, trial)
    networks = (network_of(settings, trial, name) for name in NETWORKS)
    return torch.tensor(
        [list(descent(network, batch, settings.learning_rate, settings.iterations)) for network in networks],
        dtype=torch.float64,
    )


def _followed(settings: Composites, name: str) -> Tensor:
    network, batch = network_of(settings, settings.replicate, name), batch_of(settings, settings.replicate)
    spectra, done = [], 0
    for moment in settings.moments:
        for _ in descent(network, batch, settings.learning_rate, moment - done):
            pass
        done = moment
        spectra.append(batch_spectrum(after_stem(network), _stem(network, batch[0])))
    return torch.stack(spectra)


def _stem(network: nn.Module, images: Tensor) -> Tensor:
    with torch.no_grad():
        return network.get_submodule("stem")(images)


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


_COTANGENTS = 32
"""How many outputs are differentiated at a time; more win nothing."""


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
    for some in units.split(_COTANGENTS):
        parts = torch.autograd.grad(outputs, parameters, some, is_grads_batched=True, retain_graph=True)
        rows.append(torch.cat([part.flatten(1) for part in parts], dim=1))
    return all_singular_values(torch.cat(rows))


def with_frozen_norms(module: nn.Module, inputs: Tensor) -> nn.Module:
    """A copy of `module` whose batch norms have the statistics of `inputs`, whatever they are given."""
    frozen = copy.deepcopy(module)
    norms = [norm for norm in frozen.modules() if isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d)]
    hooks = [norm.register_forward_pre_hook(partial(_freeze, norm)) for norm in norms]
    with torch.no_grad():
        frozen(inputs)
    for hook in hooks:
        hook.remove()
    return frozen


def _freeze(norm: nn.BatchNorm1d | nn.BatchNorm2d, _: nn.Module, arguments: tuple[Tensor]) -> None:
    """Give `norm` the statistics of what it is about to normalise; torch's own would have the unbiased variance."""
    others = [axis for axis in range(arguments[0].ndim) if axis != 1]
    variance, mean = torch.var_mean(arguments[0], others, correction=0)
    norm.running_mean, norm.running_var, norm.track_running_stats = mean, variance, True
    norm.eval()
