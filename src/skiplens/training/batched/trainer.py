"""Bring many networks through a plan: records, divergence, checkpoints; and the instructions they are trained by."""

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from skiplens.base.axes import Float
from skiplens.base.progress import Progress, silent
from skiplens.training.batched.plan import BatchedPlan, Look, ManyRuns, Program
from skiplens.training.checkpoints import Keeper, require_same_run

CHECK_EVERY = 20
"""Epochs between two looks for networks that diverged."""

LIMITS = {torch.float64: 1e6, torch.float32: 1e4}
"""A network with a larger weight has diverged; more would overflow in its products soon."""

Instruction = Callable[[], Any]


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
        """The epochs at which the run stops to look, those that are behind it left out."""
        plan, started = self.plan, self.epoch > 0
        every = keeper.checkpoint.every_steps if keeper.checkpoint else None
        stops = {0, plan.epochs, *self.records, *plan.snapshots_at, *range(0, plan.epochs, CHECK_EVERY)}
        stops |= set(range(0, plan.epochs, every)) if every else set()
        return iter(sorted(stop for stop in stops if stop > self.epoch or not started))

    def _note(self) -> None:
        if len(self.alive) and (self.epoch % CHECK_EVERY == 0 or self.epoch == self.plan.epochs):
            self._give_up_diverged()
        if self.epoch in self.records and len(self.alive):
            look, row = self.program.look(self.epoch), self.records.index(self.epoch)
            for name, history in self.histories.items():
                history[row, self.alive] = getattr(look, name).to(history)
        if self.epoch in self.plan.snapshots_at:
            self.snapshots[self.epoch] = self._spread(self.program.parameters())

    def _give_up_diverged(self) -> None:
        sizes = [(tensor.abs(), LIMITS.get(tensor.dtype, math.inf)) for tensor in self.program.parameters().values()]
        good = torch.stack([(size <= limit).flatten(1).all(1) for size, limit in sizes]).all(0).cpu()
        if not bool(good.all()):
            self.diverged_at[self.alive[~good]] = self.epoch
            self.alive = self.alive[good]
            self.program.keep(good.nonzero()[:, 0])

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
        self.snapshots = {
            epoch: {name: tensor.to(self.rates.device) for name, tensor in kept.items()}
            for epoch, kept in state["snapshots"].items()
        }
        self.program.keep(self.alive)
        if len(self.alive):
            self.program.restore({name: tensor.to(self.rates.device) for name, tensor in state["program"].items()})

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


def product(left: Tensor, right: Tensor, out: Tensor) -> Instruction:
    """The instruction ``out = left @ right`` for stacks of small matrices.

    On the processor NumPy does it: its BLAS multiplies stacks of 10×10 matrices twice as fast as `torch.bmm` (110
    against 250 ns a product on one core of an EPYC), and each product has the same bits wherever it lies in the stack.
    """
    if out.device.type == "cpu":
        return partial(np.matmul, left.numpy(), right.numpy(), out.numpy())
    return partial(torch.matmul, left, right, out=out)


def play(instructions: Iterable[Instruction]) -> None:
    """Do the instructions in their order; networks that overflow do so without a word."""
    with np.errstate(all="ignore"):
        for instruction in instructions:
            instruction()
