"""A short training of copies at several rates: those that fall behind end, what is left is spent on the best.

All copies begin at the same weights and see the same batches, so their first gradient is computed once and their
losses are compared without the noise of the draw.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, nn

from skiplens.base import InvalidInputError, Progress
from skiplens.base.preserve_state import without_autocast
from skiplens.base.randomness import Randomness, own_random_state, seed_torch
from skiplens.graph.batch import Batch
from skiplens.graph.inputs import copy_of
from skiplens.graph.loss import LossFunction
from skiplens.graph.pieces import cut
from skiplens.trainability.features import slope_of
from skiplens.trainability.journal import Journal, Shelf, pilot_identity
from skiplens.trainability.optimizers import Mover, OptimizerChoice
from skiplens.training.checkpoints import state_tensors
from skiplens.training.source import Source

BLOWN_UP = 1e4  # times the loss at the start: what is above has diverged, also where it is a number yet


@dataclass
class Trial:
    """The training at one rate as far as it went."""

    rate: float
    losses: list[float] = field(default_factory=list)
    diverged: bool = False

    def level(self) -> float:
        """The mean logarithm of the last third of the losses, of three at least; infinite where it diverged."""
        return math.inf if self.diverged else logarithmic_mean(self.losses[-max(3, len(self.losses) // 3) :])


@dataclass(frozen=True)
class Pilot:
    """What the short trainings showed."""

    trials: tuple[Trial, ...]  # from the smallest rate to the largest
    cost: int
    """Gradients computed."""

    @property
    def longest(self) -> int:
        """Steps of the trial that went furthest."""
        return max(len(trial.losses) for trial in self.trials)


def logarithmic_mean(losses: list[float]) -> float:
    """The mean logarithm; losses of zero and below count as the smallest number."""
    return sum(math.log(max(loss, 1e-12)) for loss in losses) / len(losses)


def rounds(cost: int, rates: int) -> list[tuple[int, int]]:
    """How many rates take how many steps in each round, within `cost` gradients; the first one is shared by all."""
    plan: list[tuple[int, int]] = []
    left, count = cost - 1, rates
    while left > 0 and count >= 1:
        share = left if count == 1 else left / 2 if plan else max(count, left * _FIRST_SHARE)
        steps = int(share // count)
        if steps >= 1:
            plan.append((count, steps))
            left -= count * steps
        if count == 1:
            break
        count = max(1, count // 2)
    return plan


_FIRST_SHARE = 0.4  # of the gradients for all rates together, before the first ones end


class Runner:
    """The one working copy, and the states of all trials on a shelf."""

    size: int | None = None  # samples that go through at a time; None: all of a batch

    def __init__(
        self, model: nn.Module, source: Source, loss: LossFunction, choice: OptimizerChoice, seed: int
    ) -> None:
        self.model = copied(model)
        self.device = next(self.model.parameters()).device
        self.source, self.loss, self.choice = source, loss, choice
        self.randomness = Randomness(seed).child("pilot")
        self.cost = 0
        self.start = {name: tensor.detach() for name, tensor in state_tensors(model)}  # they stay as they are
        self.gradients: list[Tensor | None] = []

    def first_gradient(self, batch: Batch) -> float:
        """The gradient at the start, kept for all trials; its loss."""
        loss = self._passes(0, batch)
        self.gradients = [parameter.grad for parameter in self.model.parameters()]
        self.start = {**self.start, **{name: b.clone() for name, b in self.model.named_buffers()}}
        return float(loss)

    def begin(self, rate: float) -> Mover:
        """A trial's state after its first step."""
        put_state(self.model, self.start)
        for parameter, gradient in zip(self.model.parameters(), self.gradients, strict=True):
            parameter.grad = None if gradient is None else gradient.clone()
        mover = self.choice.make(trainable(self.model), rate)
        seed_torch(self.randomness.child(0), self.device)  # an optimizer may draw
        mover.step()
        return mover

    def go_on(self, mover: Mover, first: int, batches: list[Batch]) -> list[float]:
        """Steps from number `first` on; the loss before each."""
        losses: list[Tensor] = []
        for number, batch in enumerate(batches, first):
            losses.append(self._passes(number, batch))
            mover.step()
        return torch.stack(losses).tolist()

    def _passes(self, number: int, batch: Batch) -> Tensor:
        """Forward and backward; what a step draws depends on its number only."""
        seed_torch(self.randomness.child(number), self.device)
        self.model.zero_grad(set_to_none=True)
        if self.size is None:
            loss = self.loss(self.model, batch)
            loss.backward(inputs=trainable(self.model))  # a loss may hold parameters of the user's own
        else:
            parameters = trainable(self.model)
            loss, gradients = slope_of(self.model, self.loss, batch, parameters, self.size)
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient
        self.cost += 1
        return loss.detach().double()


def run_pilot(  # noqa: PLR0913 - what is trained, how, and for how long
    model: nn.Module,
    source: Source,
    loss: LossFunction,
    choice: OptimizerChoice,
    *,
    cost: int,
    seed: int,
    progress: Progress,
    journal: Path | str | None = None,
    size: int | None = None,
) -> Pilot:
    """Train copies of `model` with `cost` gradients in all, or what is missing of it in the folder `journal`.

    Of a batch `size` samples go through at a time; states then wait in files.
    """
    device = next(model.parameters()).device
    with own_random_state(device), without_autocast(), torch.enable_grad(), TemporaryDirectory() as folder:
        runner = Runner(model, source, loss, choice, seed)
        runner.size = size
        shelf = Shelf(device, Path(folder))
        if journal is not None:
            batches = 2 + sum(steps for _, steps in rounds(cost, len(choice.rates)))
            known = pilot_identity(model, source, loss, choice, batches)
            known |= {"cost": str(cost), "seed": str(seed), "device": str(device)}
            shelf = Journal(device, Path(folder), Path(journal), known)
        shelf.budget = shelf.budget if size is None else 0
        if (kept := shelf.finished) is not None:  # another process has brought the pilot to its end
            return Pilot(tuple(Trial(**trial) for trial in kept["trials"]), kept["cost"])
        extend = _Extension(runner, shelf, cost, progress)
        trials = extend.trials()
        race(trials, cost, extend)
        found = Pilot(tuple(trials), runner.cost)
        shelf.end(asdict(found))
        return found


Extend = Callable[[Trial, int, int, int], None]
"""Trains one trial further: from which step on, how many steps, and how many of the round go on after it."""


def race(trials: list[Trial], cost: int, extend: Extend) -> None:
    """All rounds: each trial goes on for as long as it is among the best."""
    alive = [trial for trial in trials if not trial.diverged]
    plan = rounds(cost, len(trials))
    for number, (count, steps) in enumerate(plan):
        alive = sorted(alive, key=Trial.level)[:count] if number else alive
        first = min((len(trial.losses) for trial in alive), default=0)
        going_on = plan[number + 1][0] if number + 1 < len(plan) else 0
        for trial in alive:
            extend(trial, first, steps, going_on)
            trial.diverged = trial.diverged or has_diverged(trial.losses)
        alive = [trial for trial in alive if not trial.diverged]


def has_diverged(losses: list[float]) -> bool:
    """Whether a loss is no number, or beyond all hope."""
    limit = BLOWN_UP * max(abs(losses[0]), 1.0)
    return not all(math.isfinite(value) and value < limit for value in losses)


class _Extension:
    """Trains the working copy for one trial after the other."""

    def __init__(self, runner: Runner, shelf: Shelf, cost: int, progress: Progress) -> None:
        self.runner, self.shelf, self.cost, self.progress = runner, shelf, cost, progress
        self.batches = runner.source.batches(0)
        self.seen: dict[int, list[Batch]] = {}
        self.leading: list[Trial] = []  # of the round; only their states are needed again
        self.size = 3 * sum(t.numel() * t.element_size() for _, t in state_tensors(runner.model))

    def trials(self) -> list[Trial]:
        """All trials after the gradient that they share."""
        first = self.runner.first_gradient(next(self.batches))
        return [Trial(rate, [first], has_diverged([first])) for rate in self.runner.choice.rates]

    def __call__(self, trial: Trial, first: int, steps: int, going_on: int) -> None:
        """The steps of one round; its batches are kept until the next one."""
        if first not in self.seen:
            self.seen, self.leading = {first: [next(self.batches) for _ in range(steps)]}, []
        runner, kept = self.runner, self.shelf.losses(trial.rate)
        self.progress("pilot", runner.cost, self.cost)
        if len(kept) >= first + steps:  # in another process
            trial.losses, runner.cost = kept[: first + steps], runner.cost + steps
            return
        if first == 1:
            mover = runner.begin(trial.rate)
        else:
            state = self.shelf.take(trial.rate, self.size)
            put_state(runner.model, state["model"])
            mover = runner.choice.make(trainable(runner.model), trial.rate)
            mover.restore(state["mover"])
            del state
        trial.losses += runner.go_on(mover, first, self.seen[first])
        trial.diverged = has_diverged(trial.losses)
        ranked = sorted([*self.leading, trial], key=Trial.level)
        self.leading = [other for other in ranked[:going_on] if not other.diverged]
        for beaten in ranked[going_on:]:
            self.shelf.drop(beaten.rate, self.size)
        if self.shelf.outlives or any(other is trial for other in self.leading):
            runner.model.zero_grad(set_to_none=True)  # their memory is that of the copy
            state = {"model": state_of(runner.model), "mover": mover.state()}
            self.shelf.put(trial.rate, trial.losses, state, self.size)


def trainable(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that a training moves."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def copied(model: nn.Module) -> nn.Module:
    """A copy in training mode that shares nothing with the model."""
    fresh = copy_of(model, "a forecast trains copies so that yours stays as it is", "Or forecast with cost=0. ")
    if not all(parameter.is_leaf for parameter in fresh.parameters()):  # TorchScript gives them the history of a copy
        raise InvalidInputError(
            f"A copy of {type(model).__name__} cannot be trained, and a forecast trains copies so that yours stays as "
            "it is. Hand in the nn.Module that it was compiled from, or forecast with cost=0."
        )
    fresh.zero_grad(set_to_none=True)
    return fresh.train()


def state_of(model: nn.Module) -> dict[str, Tensor]:
    """Copies of all parameters and buffers."""
    return {name: tensor.detach().clone() for name, tensor in state_tensors(model)}


def put_state(model: nn.Module, state: dict[str, Tensor]) -> None:
    """Give the model the values of `state_of`."""
    with torch.no_grad():
        for name, tensor in state_tensors(model):
            tensor.copy_(state[name])


PARTS = 4  # of a batch, of which a step of a pilot takes one
LEAST_SAMPLES = 8  # of a part: batch norm and the noise of a step want some
FEWEST, MOST = 4, 64  # parts that a pilot goes round among
MOST_BATCHES = 32  # that are read for it


class Miniature(Source):
    """Parts of the first batches of a source, the same ones again and again.

    Attributes:
        parts: How many of them are one batch.
        cost: Steps that the pilot may take.
        longest: Steps of the trial that goes furthest.
        steps_per_epoch: Parts that there are.
        share: How much of all samples they hold; one where samples never come again.
    """

    def __init__(self, source: Source, first: Batch, *, steps: int, cost: int, rates: int, epoch: float) -> None:
        self.source = source
        self.parts = max(1, min(PARTS, first.samples // LEAST_SAMPLES))
        self.size = -(-first.samples // self.parts)
        self.cost = cost * self.parts
        while self._longest(rates) > steps and self.cost > rates + 1:  # no trial goes beyond the end
            self.cost = max(rates + 1, self.cost * steps // self._longest(rates))
        self.longest = self._longest(rates)
        wanted = self.longest * min(1.0, epoch / steps)
        self.steps_per_epoch = int(min(MOST, max(FEWEST, round(wanted)), self.parts * epoch))
        self.read = min(self.steps_per_epoch, source.steps_per_epoch, MOST_BATCHES)
        self.share = min(1.0, self.steps_per_epoch / (self.parts * epoch)) if math.isfinite(epoch) else 1.0
        self.kept: list[Batch] = []

    def _longest(self, rates: int) -> int:
        return 1 + sum(taken for _, taken in rounds(self.cost, rates))

    def batches(self, start: int) -> Iterator[Batch]:
        """The parts from number `start` on without end."""
        self.kept = self.kept or self._pool()
        return itertools.islice(itertools.cycle(self.kept), start % len(self.kept), None)

    def _pool(self) -> list[Batch]:
        """As few parts of each batch as will do, the first ones of all batches before the second ones."""
        each = -(-self.steps_per_epoch // self.read)
        parts = [self._parts(batch)[:each] for batch in itertools.islice(self.source.batches(0), self.read)]
        turns = [part for turn in itertools.zip_longest(*parts) for part in turn if part is not None]
        return turns[: self.steps_per_epoch]

    def _parts(self, batch: Batch) -> list[Batch]:
        """Parts that are not cut short; copies, so that the rest of the batch need not be kept."""
        whole = [part for part in cut(batch, self.size) if part.samples == self.size]
        return [part.map(Tensor.clone) for part in whole] if len(whole) > 1 else whole

    def _epoch(self, epoch: int, first: int) -> Iterator[Batch]:
        """The parts of a round from number `first` on."""
        return itertools.islice(self.batches(0), first, self.steps_per_epoch)
