"""Drive many networks through a plan: records, divergence, checkpoints."""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from skiplens.core.axes import Bool, Float, Tensor
from skiplens.core.progress import Progress, silent
from skiplens.training.batched.plan import ManyRuns, Plan
from skiplens.training.batched.program import Program
from skiplens.training.checkpoints import Keeper, require_same_run

CHECK_EVERY = 20
"""Epochs between two looks for networks that diverged."""

LIMITS = {torch.float64: 1e6, torch.float32: 1e4}
"""A network with a larger weight has diverged; more would overflow in its products soon."""

REST_EVERY = 100
"""Epochs between two looks for networks that do not move any more."""

HISTORIES = ("losses", "mean_norms", "gradient_norms")


class Drive:
    """A program on its way through a plan.

    Networks that diverge, and those that rest, leave the program. What rests is kept as it is.
    """

    def __init__(self, program: Program, learning_rates: Float[Tensor, " nets"], plan: Plan) -> None:
        self.program, self.rates, self.plan = program, learning_rates, plan
        nets = len(learning_rates)
        self.epoch, self.alive = 0, torch.arange(nets)
        self.diverged_at = torch.full((nets,), -1)
        self.records = tuple(sorted({*plan.record_at, plan.epochs}))
        self.histories = {name: learning_rates.new_full((len(self.records), nets), math.nan) for name in HISTORIES}
        self.resting_look = {name: learning_rates.new_full((nets,), math.nan) for name in HISTORIES}
        self.resting = {name: torch.full_like(tensor, math.nan) for name, tensor in program.parameters().items()}
        self.snapshots: dict[int, dict[str, Tensor]] = {}

    def run(self, identity: dict[str, Any], progress: Progress = silent) -> ManyRuns:
        """All epochs, from the checkpoint on where there is one; `identity` tells this run from others."""
        keeper, identity = Keeper(self.plan.checkpoint), {**identity, "plan": self.plan.identity()}
        kept = keeper.read()
        if kept is not None and keeper.path is not None:
            require_same_run(keeper.path, kept["began_as"], identity)
            self._restore(kept)
        for epoch in self._moments(keeper):
            if len(self.alive):
                self.program.advance(self.epoch, epoch)
            self.epoch = epoch
            self._note()
            progress("training many networks", epoch, self.plan.epochs)
            if keeper.due(epoch) or epoch == self.plan.epochs:
                keeper.write({"began_as": identity, **self._state()})
        return self._runs()

    def _moments(self, keeper: Keeper) -> Iterator[int]:
        """The epochs at which the drive stops to look, those that are behind it left out."""
        plan, started = self.plan, self.epoch > 0
        every = keeper.checkpoint.every_steps if keeper.checkpoint else None
        regular = (*range(0, plan.epochs, CHECK_EVERY), *range(0, plan.epochs, REST_EVERY))
        stops = {0, plan.epochs, *self.records, *plan.snapshots_at, *regular}
        stops |= set(range(0, plan.epochs, every)) if every else set()
        return iter(sorted(stop for stop in stops if stop > self.epoch or not started))

    def _note(self) -> None:
        if self.epoch % CHECK_EVERY == 0 or self.epoch == self.plan.epochs:
            self._give_up_diverged()
        if self.epoch % REST_EVERY == 0:
            self._let_rest()
        if self.epoch in self.records:
            for name, values in self._looked().items():
                self.histories[name][self.records.index(self.epoch)] = values
        if self.epoch in self.plan.snapshots_at:
            self.snapshots[self.epoch] = self._spread(self.program.parameters())

    def _give_up_diverged(self) -> None:
        if not len(self.alive):
            return
        good = _within_limits(self.program.parameters())
        if not bool(good.all()):
            self.diverged_at[self.alive[~good]] = self.epoch
            self._go_on_with(good)

    def _let_rest(self) -> None:
        if not len(self.alive):
            return
        rest = self.program.at_rest().cpu()
        if bool(rest.any()):
            places = self.alive[rest]
            for name, values in self._looked().items():
                self.resting_look[name][places] = values[places]
            for name, tensor in self.program.parameters().items():
                self.resting[name][places] = tensor[rest]
            self._go_on_with(~rest)

    def _go_on_with(self, which: Bool[Tensor, " nets"]) -> None:
        self.alive = self.alive[which]
        self.program.keep(which.nonzero()[:, 0])

    def _looked(self) -> dict[str, Float[Tensor, " nets"]]:
        """Losses and norms of all networks, NaN where they diverged."""
        whole = {name: values.clone() for name, values in self.resting_look.items()}
        if len(self.alive):
            look = self.program.look(self.epoch)
            for name, values in whole.items():
                values[self.alive] = getattr(look, name).to(values)
        return whole

    def _spread(self, parameters: dict[str, Tensor]) -> dict[str, Tensor]:
        """Parameters of all networks, NaN where they diverged."""
        whole = {name: tensor.clone() for name, tensor in self.resting.items()}
        for name, tensor in parameters.items():
            whole[name][self.alive] = tensor
        return whole

    def _state(self) -> dict[str, Any]:
        return {
            "epoch": self.epoch,
            "alive": self.alive,
            "diverged_at": self.diverged_at,
            "histories": self.histories,
            "resting_look": self.resting_look,
            "resting": self.resting,
            "snapshots": self.snapshots,
            "program": self.program.state(),
        }

    def _restore(self, state: dict[str, Any]) -> None:
        here = partial(_on, self.rates.device)
        self.epoch, self.alive, self.diverged_at = state["epoch"], state["alive"], state["diverged_at"]
        self.histories, self.resting_look = here(state["histories"]), here(state["resting_look"])
        self.resting = here(state["resting"])
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


def _on(device: torch.device, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.to(device) for name, tensor in tensors.items()}


def _within_limits(parameters: dict[str, Tensor]) -> Bool[Tensor, " nets"]:
    """Which networks have numbers for weights, none of them beyond the limit of its dtype."""
    per_tensor = [
        (tensor.abs() <= LIMITS.get(tensor.dtype, math.inf)).flatten(1).all(1) for tensor in parameters.values()
    ]
    return torch.stack(per_tensor).all(0).cpu()
