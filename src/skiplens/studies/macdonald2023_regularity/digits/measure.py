"""What each run of figure 2 measures."""

from functools import partial

import torch
from torch import nn

from skiplens.core.axes import Tensor
from skiplens.studies.macdonald2023_regularity.digits.jacobians import (
    batch_spectrum,
    image_spectrum,
    parameter_spectrum,
)
from skiplens.studies.macdonald2023_regularity.digits.settings import (
    NETWORKS,
    PRINTED,
    Blocks,
    Composites,
    Losses,
    Parameters,
    Starts,
)
from skiplens.studies.macdonald2023_regularity.digits.trial import batch_of, descent, network_of


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
