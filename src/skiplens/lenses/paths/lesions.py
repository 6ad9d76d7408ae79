"""Lesion studies: the loss of a network without blocks, and with blocks exchanged."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from skiplens.core.progress import Progress, silent, track
from skiplens.core.untouched import untouched
from skiplens.residual import ResidualNetwork, dissect
from skiplens.residual.lesions import exchangeable, reordered, without_blocks

Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Lesions:
    """Losses of a network with lesions.

    Attributes:
        intact: The loss as it is.
        deleted: The loss without the branch of each block.
        exchanged: The loss with each two neighbouring blocks of one shape exchanged, by the names of both.
    """

    intact: float
    deleted: dict[str, float]
    exchanged: dict[tuple[str, str], float]


def lesion_study(model: nn.Module, inputs: Any, targets: Tensor, loss: Loss, *, progress: Progress = silent) -> Lesions:
    """The loss without each block in turn, and with each two neighbours exchanged; the model is left as it was.

    Args:
        model: Any module that `torch.export` accepts.
        inputs: A tensor, a tuple of positional arguments or a dict of keyword arguments of the model.
        targets: What the loss compares the output with.
        loss: `loss(output, targets)`, a scalar.
        progress: Called as the work goes on.
    """
    with untouched(model), torch.no_grad():
        network = dissect(model, inputs)
        names = [block.name for block in network.blocks]
        pairs = _neighbours(network)
        deleted = {
            name: float(loss(without_blocks(network, [name]), targets))
            for name in track(names, "deleting blocks", len(names), progress)
        }
        exchanged = {
            pair: float(loss(reordered(network, pair[::-1]), targets))
            for pair in track(pairs, "exchanging blocks", len(pairs), progress)
        }
        return Lesions(float(loss(without_blocks(network, []), targets)), deleted, exchanged)


def _neighbours(network: ResidualNetwork) -> list[tuple[str, str]]:
    return [pair for group in exchangeable(network) for pair in pairwise(group)]
