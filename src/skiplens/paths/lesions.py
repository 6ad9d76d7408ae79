"""Lesion studies: the loss of a network without blocks, and with blocks exchanged, shuffled or replaced."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from skiplens.base import InvalidInputError, NotResidualError, Randomness
from skiplens.base.axes import Float
from skiplens.base.preserve_state import preserve_state
from skiplens.base.progress import Progress, silent, track
from skiplens.edits.lesions import Replacement, exchangeable, output_with, reordered, without_blocks
from skiplens.graph.batch import as_batches, concatenate
from skiplens.graph.dissect import dissect
from skiplens.graph.loss import loss_rule
from skiplens.graph.network import ResidualNetwork, part_function

Loss = Callable[[Tensor, Tensor], Tensor]  # `loss(outputs, targets)`, a scalar


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


def lesion_study(
    model: nn.Module, data: Any, *, loss: str | Loss = "cross_entropy", progress: Progress = silent
) -> Lesions:
    """The loss without each block in turn, and with each two neighbours exchanged; the model is left as it was.

    Args:
        model: Any module that `torch.export` accepts.
        data: `(inputs, targets)`, or an iterable of such batches; inputs are a tensor, a tuple of positional arguments
            or a dict of keyword arguments of the model.
        loss: A name (``"cross_entropy"``, ``"mse"``) or a function (outputs, targets) -> scalar.
        progress: Called as the work goes on.
    """
    with _taken_apart(model, data, loss) as (network, loss_of):
        names = [block.name for block in network.blocks]
        pairs = [pair for group in exchangeable(network) for pair in pairwise(group)]
        deleted = {
            name: float(loss_of(without_blocks(network, [name])))
            for name in track(names, "deleting blocks", len(names), progress)
        }
        exchanged = {
            pair: float(loss_of(reordered(network, pair[::-1])))
            for pair in track(pairs, "exchanging blocks", len(pairs), progress)
        }
        return Lesions(float(loss_of(without_blocks(network, []))), deleted, exchanged)


def shuffled_losses(
    model: nn.Module, data: Any, *, loss: str | Loss = "cross_entropy", draws: int = 10, seed: int = 0
) -> Float[Tensor, " draws"]:
    """The loss with the blocks of each shape in a random order, once for each draw; the model is left as it was.

    Args:
        model: Any module that `torch.export` accepts.
        data: As in `lesion_study`.
        loss: A name or a function (outputs, targets) -> scalar.
        draws: How many orders are drawn.
        seed: Names the orders.
    """
    if draws < 1:
        raise InvalidInputError(f"draws={draws}; ask for at least 1.")
    with _taken_apart(model, data, loss) as (network, loss_of):
        groups = exchangeable(network)
        if not groups:
            raise NotResidualError(
                "No two residual blocks of the model have one shape, so there is nothing to shuffle."
            )
        generator = Randomness(seed).torch()
        losses = []
        for _ in range(draws):
            placed: dict[str, Replacement] = {}
            for group in groups:
                order = torch.randperm(len(group), generator=generator).tolist()
                for place, number in zip(group, order, strict=True):
                    placed[place] = part_function(network, network.block(group[number]))
            losses.append(loss_of(output_with(network, placed)).double())
        return torch.stack(losses).cpu()


def replaced_loss(
    model: nn.Module, data: Any, replacements: Mapping[str, Replacement], *, loss: str | Loss = "cross_entropy"
) -> float:
    """The loss with some blocks, by name, replaced by functions of their inputs; the model is left as it was.

    Examples:
        >>> class Block(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.branch = nn.Linear(1, 1)
        ...     def forward(self, x):
        ...         return x + self.branch(x)
        >>> data = torch.ones(1, 1), torch.zeros(1, 1)
        >>> replaced_loss(Block(), data, {"branch": lambda x: 3 * x}, loss="mse")
        9.0
    """
    with _taken_apart(model, data, loss) as (network, loss_of):
        return float(loss_of(output_with(network, replacements)))


@contextmanager
def _taken_apart(
    model: nn.Module, data: Any, loss: str | Loss
) -> Iterator[tuple[ResidualNetwork, Callable[[Tensor], Tensor]]]:
    """The network taken apart on all samples of the data, and the loss of an output of it."""
    inputs, targets = concatenate(list(as_batches(data)))
    plain = loss_rule(loss).plain
    with preserve_state(model), torch.no_grad():
        yield dissect(model, inputs), lambda output: plain(output, targets)
