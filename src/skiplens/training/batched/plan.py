"""How long many networks are trained, when they are looked at, where they start, and what came out."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from skiplens.base import Bool, Float, Int, Randomness, refuse_if
from skiplens.training.checkpoints import Checkpoint
from skiplens.zoo.weight_laws import Law

CHECK_EVERY = 20  # epochs between two looks for networks that diverged


@dataclass(frozen=True)
class BatchedPlan:
    """A number of epochs, and the epochs at which something is kept; epoch e is the state after e updates.

    Attributes:
        epochs: Updates of every network.
        record_at: When losses and norms are kept; they are always known at the end.
        snapshots_at: When the parameters are kept.
        checkpoint: File to keep the run in. Where it exists, the run goes on from there, with the same bits as if it
            had never stopped.
    """

    epochs: int = 1000
    record_at: tuple[int, ...] = ()
    snapshots_at: tuple[int, ...] = ()
    checkpoint: Checkpoint | Path | str | None = None

    def __post_init__(self) -> None:
        """Refuse epochs that do not come."""
        refuse_if(self.epochs < 1, f"epochs is {self.epochs}; train for at least one.")
        outside = [e for e in (*self.record_at, *self.snapshots_at) if not 0 <= e <= self.epochs]
        refuse_if(outside, f"Epochs {outside} lie outside of a run from 0 to {self.epochs}.")


class Look(NamedTuple):
    """Networks at one moment."""

    losses: Float[Tensor, " nets"]
    mean_norms: Float[Tensor, " nets"]  # over the matrices, of the Frobenius norm
    gradient_norms: Float[Tensor, " nets"]  # of the whole gradient of the loss


@dataclass(frozen=True, eq=False)
class ManyRuns:
    """What became of many networks.

    Attributes:
        learning_rates: Of each network.
        losses: At the end; infinite where the network diverged.
        diverged_at: The epoch at which a network was given up, -1 where it was not.
        parameters: At the end, networks first; NaN where they diverged.
        epochs: When the histories were taken.
        loss_history: Losses at those epochs; NaN once a network is given up.
        mean_norm_history: The mean Frobenius norms then.
        gradient_norm_history: The gradient norms then.
        snapshots: The parameters at the epochs that were asked for.
    """

    learning_rates: Float[Tensor, " nets"]
    losses: Float[Tensor, " nets"]
    diverged_at: Int[Tensor, " nets"]
    parameters: Mapping[str, Tensor]
    epochs: Int[Tensor, " records"]
    loss_history: Float[Tensor, "records nets"]
    mean_norm_history: Float[Tensor, "records nets"]
    gradient_norm_history: Float[Tensor, "records nets"]
    snapshots: Mapping[int, Mapping[str, Tensor]] = field(default_factory=dict)

    @property
    def diverged(self) -> Bool[Tensor, " nets"]:
        """Which networks were given up."""
        return self.diverged_at >= 0

    @property
    def weights(self) -> Float[Tensor, "nets matrices width width"]:
        """The matrices of chain networks at the end."""
        return self.parameters["weights"]

    def weights_at(self, epoch: int) -> Float[Tensor, "nets matrices width width"]:
        """The matrices of chain networks at an epoch whose snapshot was asked for."""
        return self.snapshots[epoch]["weights"]


def best_rate(losses: Float[Tensor, "rates seeds"]) -> int:
    """The row with the lowest mean loss over its seeds; a loss that is no number counts as infinite."""
    return int(losses.nan_to_num(math.inf, math.inf).mean(1).argmin())


def drawn_starts(
    law: Law, matrices: int, width: int, streams: Sequence[Randomness]
) -> Float[Tensor, "nets matrices width width"]:
    """The matrices W_1, …, W_D of one network for each stream, drawn by `law` in order of application, in float64."""
    generators = [stream.torch() for stream in streams]
    chains = ([law((width, width), generator) for _ in range(matrices)] for generator in generators)
    return torch.stack([torch.stack(chain) for chain in chains])
