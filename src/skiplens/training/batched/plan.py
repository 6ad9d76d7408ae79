"""How long many networks are trained, when they are looked at, what came out, and the trainer that goes this way."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from skiplens.base import Bool, Float, Int, Progress, Randomness, refuse_if, silent
from skiplens.training.checkpoints import Checkpoint, Keeper
from skiplens.zoo.weight_laws import Law

CHECK_EVERY = 20  # epochs between two looks for networks that diverged
LIMITS = {torch.float64: 1e6, torch.float32: 1e4}  # with larger weights a network has diverged: products soon overflow


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


class Program(ABC):
    """Networks that are trained together; entry i of every tensor belongs to network i, none to two of them."""

    @abstractmethod
    def advance(self, start: int, stop: int) -> None:
        """Bring all networks from `start` updates to `stop`."""

    @abstractmethod
    def look(self, epoch: int) -> Look:
        """Losses and norms after `epoch` updates, as the networks are now; changes nothing."""

    @abstractmethod
    def parameters(self) -> dict[str, Tensor]:
        """Copies of the parameters by name, networks first."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """The parameters and whatever else a run needs to go on, networks first."""

    @abstractmethod
    def restore(self, state: dict[str, Tensor]) -> None:
        """Take up what `state` gave, for as many networks as it has."""

    @abstractmethod
    def keep(self, nets: Int[Tensor, " kept"]) -> None:
        """Go on with some of the networks; theirs are the numbers they would have had with the others."""


class Trainer:
    """A program on its way through a plan."""

    def __init__(self, program: Program, learning_rates: Float[Tensor, " nets"], plan: BatchedPlan) -> None:
        self.program, self.rates, self.plan = program, learning_rates, plan
        nets = len(learning_rates)
        self.epoch, self.alive = 0, torch.arange(nets)
        self.diverged_at = torch.full((nets,), -1)
        self.records = tuple(sorted({*plan.record_at, plan.epochs}))
        self.histories = {name: learning_rates.new_full((len(self.records), nets), math.nan) for name in Look._fields}
        self.snapshots: dict[int, dict[str, Tensor]] = {}

    def run(self, identity: dict[str, Any], progress: Progress = silent) -> ManyRuns:
        """All epochs, from the checkpoint on where there is one; `identity` tells this run from others."""
        plan, keeper = self.plan, Keeper(self.plan.checkpoint)
        words = f"{plan.epochs} epochs, records at {plan.record_at}, snapshots at {plan.snapshots_at}"
        identity = {**identity, "plan": words}
        kept = keeper.read(identity)
        if kept is not None:
            self._restore(kept)
        for epoch in self._moments(keeper):
            if len(self.alive):
                self.program.advance(self.epoch, epoch)
            self.epoch = epoch
            self._note()
            progress("training many networks", epoch, plan.epochs)
            if keeper.due(epoch) or epoch == plan.epochs:
                keeper.write({"began_as": identity, **self._state()})
        return self._runs()

    def _moments(self, keeper: Keeper) -> Iterator[int]:
        """The epochs at which the run stops to look, those that are behind it left out."""
        plan, started = self.plan, self.epoch > 0
        every = keeper.checkpoint.every_steps if keeper.checkpoint else None
        stops = {0, plan.epochs, *self.records, *plan.snapshots_at, *range(0, plan.epochs, CHECK_EVERY)}
        stops |= set(range(0, plan.epochs, every)) if every else set()
        return iter(sorted(stop for stop in stops if stop > self.epoch or not started))

    def _note(self) -> None:
        if len(self.alive) and (self.epoch % CHECK_EVERY == 0 or self.epoch == self.plan.epochs):
            parameters = self.program.parameters().values()
            small = [(tensor.abs() <= LIMITS.get(tensor.dtype, math.inf)).flatten(1).all(1) for tensor in parameters]
            good = torch.stack(small).all(0).cpu()
            if not bool(good.all()):  # those that diverged are given up
                self.diverged_at[self.alive[~good]] = self.epoch
                self.alive = self.alive[good]
                self.program.keep(good.nonzero()[:, 0])
        if self.epoch in self.records and len(self.alive):
            look, row = self.program.look(self.epoch), self.records.index(self.epoch)
            for name, history in self.histories.items():
                history[row, self.alive] = getattr(look, name).to(history)
        if self.epoch in self.plan.snapshots_at:
            self.snapshots[self.epoch] = self._spread(self.program.parameters())

    def _spread(self, parameters: dict[str, Tensor]) -> dict[str, Tensor]:
        """Parameters of the networks that are left at the places of all, NaN elsewhere."""
        spread = {}
        for name, tensor in parameters.items():
            spread[name] = tensor.new_full((len(self.rates), *tensor.shape[1:]), math.nan)
            spread[name][self.alive] = tensor
        return spread

    def _state(self) -> dict[str, Any]:
        return {
            "epoch": self.epoch,
            "alive": self.alive,
            "diverged_at": self.diverged_at,
            "histories": {name: history.cpu() for name, history in self.histories.items()},
            "snapshots": self.snapshots,
            "program": {name: tensor.cpu() for name, tensor in self.program.state().items()},
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self.epoch, self.alive, self.diverged_at = state["epoch"], state["alive"], state["diverged_at"]
        self.histories = {name: kept.to(self.histories[name]) for name, kept in state["histories"].items()}

        def here(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
            return {name: tensor.to(self.rates.device) for name, tensor in tensors.items()}

        self.snapshots = {epoch: here(kept) for epoch, kept in state["snapshots"].items()}
        self.program.keep(self.alive)
        if len(self.alive):
            self.program.restore(here(state["program"]))

    def _runs(self) -> ManyRuns:
        chosen = torch.tensor([self.records.index(epoch) for epoch in self.plan.record_at], dtype=torch.int64)
        return ManyRuns(
            learning_rates=self.rates,
            losses=self.histories["losses"][-1].nan_to_num(math.inf, math.inf),
            diverged_at=self.diverged_at,
            parameters=self._spread(self.program.parameters()),
            epochs=torch.tensor(self.plan.record_at, dtype=torch.int64),
            loss_history=self.histories["losses"][chosen],
            mean_norm_history=self.histories["mean_norms"][chosen],
            gradient_norm_history=self.histories["gradient_norms"][chosen],
            snapshots=self.snapshots,
        )
