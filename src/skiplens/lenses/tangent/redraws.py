"""The kernel's diagonal over seeds: the same network with its matrices drawn again at the size they have."""

import copy

import torch
from torch import nn

from skiplens.core.axes import Float, Tensor
from skiplens.core.progress import Progress, track
from skiplens.core.randomness import Randomness
from skiplens.data.batch import Inputs
from skiplens.derivatives.tangent.diagonal import ntk_diagonal


def redrawn(model: nn.Module, generator: torch.Generator) -> nn.Module:
    """A copy whose matrices and filters are drawn from normal distributions with the mean and spread they have.

    Biases and scales stay: at initialisation they are constants.
    """
    fresh = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in fresh.parameters():
            if parameter.ndim > 1 and parameter.is_floating_point():
                # drawn on the CPU, so that the numbers do not depend on the device
                noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float32).to(parameter)
                parameter.copy_(parameter.mean() + parameter.std() * noise)
    return fresh


def diagonals_over_seeds(
    model: nn.Module, inputs: Inputs, names: list[str], seeds: list[Randomness], progress: Progress
) -> Float[Tensor, "seeds samples"]:
    """The kernel of the first output with itself, by the named parameters, for each seed and sample."""
    rows = []
    for seed in track(seeds, "kernel over seeds", len(seeds), progress):
        fresh = redrawn(model, seed.torch())
        rows.append(ntk_diagonal(fresh, inputs, outputs=0, parameters=names))
    return torch.stack(rows)
