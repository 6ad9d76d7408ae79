"""Lesion studies: the loss of a network without blocks, and with blocks exchanged, shuffled or replaced."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from skiplens.base.axes import Float
from skiplens.base.errors import InvalidInputError, NotResidualError
from skiplens.base.preserve_state import preserve_state
from skiplens.base.progress import Progress, silent, track
from skiplens.base.randomness import Randomness
from skiplens.edits.lesions import Replacement, exchangeable, output_with, reordered, without_blocks
from skiplens.graph.dissect import dissect
from skiplens.graph.network import ResidualNetwork, part_function

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
    with preserve_state(model), torch.no_grad():
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


def shuffled_losses(
    model: nn.Module, inputs: Any, targets: Tensor, loss: Loss, *, draws: int = 10, randomness: Randomness
) -> Float[Tensor, " draws"]:
    """The loss with the blocks of each shape in a random order, once for each draw; the model is left as it was.

    Args:
        model: Any module that `torch.export` accepts.
        inputs: A tensor, a tuple of positional arguments or a dict of keyword arguments of the model.
        targets: What the loss compares the output with.
        loss: `loss(output, targets)`, a scalar.
        draws: How many orders are drawn.
        randomness: Where the orders come from.
    """
    if draws < 1:
        raise InvalidInputError(f"draws={draws}; ask for at least 1.")
    with preserve_state(model), torch.no_grad():
        network = dissect(model, inputs)
        groups = exchangeable(network)
        if not groups:
            raise NotResidualError(
                "No two residual blocks of the model have one shape, so there is nothing to shuffle."
            )
        generator = randomness.torch()
        drawn = [_shuffled(network, groups, generator) for _ in range(draws)]
        return torch.stack([loss(output, targets).double() for output in drawn]).cpu()


def replaced_loss(
    model: nn.Module, inputs: Any, targets: Tensor, loss: Loss, replacements: Mapping[str, Replacement]
) -> float:
    """The loss with some blocks, by name, replaced by functions of their inputs; the model is left as it was.

    Examples:
        >>> class Block(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.branch = nn.Linear(1, 1)
        ...     def forward(self, x):
        ...         return x + self.branch(x)
        >>> mse = torch.nn.functional.mse_loss
        >>> replaced_loss(Block(), torch.ones(1, 1), torch.zeros(1, 1), mse, {"branch": lambda x: 3 * x})
        9.0
    """
    with preserve_state(model), torch.no_grad():
        return float(loss(output_with(dissect(model, inputs), replacements), targets))


def _shuffled(network: ResidualNetwork, groups: list[list[str]], generator: torch.Generator) -> Tensor:
    """The output with each group of blocks in a random order."""
    placed: dict[str, Replacement] = {}
    for group in groups:
        order = torch.randperm(len(group), generator=generator).tolist()
        placed |= {
            place: part_function(network, network.block(group[number]))
            for place, number in zip(group, order, strict=True)
        }
    return output_with(network, placed)


def _neighbours(network: ResidualNetwork) -> list[tuple[str, str]]:
    return [pair for group in exchangeable(network) for pair in pairwise(group)]
