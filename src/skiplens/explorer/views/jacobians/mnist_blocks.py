"""The second block of the paper's MNIST networks with each shortcut, measured at any scale of the weights."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from skiplens.core.progress import Progress, silent
from skiplens.data import sample
from skiplens.data.images import as_floats
from skiplens.lenses.jacobians import jacobian_spectrum
from skiplens.residual import zoo

NETWORKS = {
    "residual (projection)": "mnist_residual",
    "residual with average pool": "mnist_residual_avgpool",
    "residual with isometric pool": "mnist_residual_isopool",
}
BLOCK = "block2.residual"
IMAGES = 4
DEFAULT_SCALE = 3**-0.5
"""PyTorch's own weights have the variance 1/(3 inputs)."""


@dataclass(frozen=True, eq=False)
class MeasuredBlocks:
    """Singular values of the block with each shortcut, descending; the chain is the block without its shortcut."""

    singular_values: dict[str, Tensor]


def measured_blocks(scale: float, seed: int, progress: Progress = silent) -> MeasuredBlocks:
    """The block's Jacobian at a few images, with batch statistics as they are."""
    images = as_floats(sample().images[:IMAGES], torch.float32)
    found: dict[str, Tensor] = {}
    for place, (name, network) in enumerate(NETWORKS.items()):
        model, part = scaled_network(network, scale, seed), _part(progress, place)
        reading = jacobian_spectrum(model, images, [BLOCK], coupling="sample", progress=part, network=False)
        found.setdefault("chain", reading.without_shortcut[BLOCK])
        found[name] = reading.singular_values[BLOCK]
    return MeasuredBlocks(found)


def _part(progress: Progress, place: int) -> Progress:
    """The progress of one network as its part of all."""

    def report(label: str, done: int, total: int) -> None:
        progress("networks measured", 100 * place + 100 * done // max(1, total), 100 * len(NETWORKS))

    return report


def scaled_network(name: str, scale: float, seed: int) -> nn.Module:
    """A network of the zoo whose convolutions have weights of the variance scale²/inputs."""
    model = zoo.build(name, seed).float()
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            layer.weight.data.mul_(scale / DEFAULT_SCALE)
    return model
