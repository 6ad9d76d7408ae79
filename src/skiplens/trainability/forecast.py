"""Will it train? A short training of copies, what it shows of the rest, and what stands in the way."""

import itertools
import math
from collections.abc import Iterator, Sized
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from skiplens.base import InvalidInputError, Progress, Randomness, silent
from skiplens.base.preserve_state import checkpoints_off, preserve_random_state, preserve_state
from skiplens.base.words import in_words
from skiplens.graph.batch import Batch, as_batches, tensors_in
from skiplens.graph.functional import main_output
from skiplens.graph.inputs import require_module
from skiplens.graph.lens import settled, with_targets
from skiplens.graph.loss import Loss, LossFunction, fitted, loss_rule, scalar_loss
from skiplens.graph.pieces import pieces_of
from skiplens.readings.finding import Finding, by_severity
from skiplens.readings.reading import Provenance
from skiplens.signal import LayerStates, layer_findings, layer_states
from skiplens.task import TaskReading, measure_task, task_findings
from skiplens.task.findings import least_loss
from skiplens.trainability.extrapolation import (
    HIGHEST,
    Fit,
    Situation,
    advised,
    candidates,
    fit_for,
    last_quarter,
    level_of,
    trial_features,
)
from skiplens.trainability.features import start_features
from skiplens.trainability.optimizers import Factory, OptimizerChoice, optimizer_choice
from skiplens.trainability.pilot import Miniature, Pilot, Trial, run_pilot, trainable
from skiplens.trainability.reading import TRAINS, Forecast, word_for
from skiplens.training.checkpoints import state_tensors
from skiplens.training.source import Source, source_of

BATCH = 64  # samples of a step where data is one pair of all samples
LEAST_COST = 14  # steps: with fewer no rate is tried twice
READINGS = 2  # gradients for the readings of the start
FAR = 10.0  # times a guess: from there a pilot is spent on coming down
COPIES = 9  # of the parameters: one that is trained, its start, two gradients, an optimizer, and what waits of them
SMALLEST = 1e-12  # losses of zero and below count as this
PAIR = 2  # samples that tell a sum from a mean
ROUNDING = 1e-9  # of the loss of no answer: what is below it is a loss of zero


class TrainingLoss(LossFunction):
    """The loss as `inspect` takes it: without a name the one that fits the targets, which are brought to its form."""

    weight = 1.0  # that it is multiplied by

    def __init__(self, loss: Loss) -> None:
        super().__init__("cross_entropy" if loss is None else loss)
        self.asked = loss

    def of(self, outputs: Any, batch: Batch) -> Tensor:
        """The scalar loss of outputs that the model has returned for a batch."""
        loss, batch = fitted(main_output(outputs), batch, self.asked)
        return self.weight * scalar_loss(loss_rule(loss).plain(outputs, batch.targets), self.name)

    def adds_up(self, model: nn.Module, batch: Batch) -> bool:
        """Whether the loss of samples is the sum of theirs, not their mean; only a function of the user's can be."""
        if not callable(self.asked) or batch.samples < PAIR:
            return False
        with preserve_state(model), torch.no_grad():
            pair = batch.first(PAIR)
            outputs = pair.arguments().call(model)
            if main_output(outputs).shape[:1] != (PAIR,):
                return False

            def loss_at(place: slice) -> float:
                def rows(tensor: Tensor) -> Tensor:
                    return tensor[place] if tensor.shape[:1] == (PAIR,) else tensor

                return float(self.of(tree_map_only(Tensor, rows, outputs), pair.select(place)))

            both, one, other = map(loss_at, (slice(0, 2), slice(0, 1), slice(1, 2)))
        return abs(one + other - both) < abs((one + other) / 2 - both)


@checkpoints_off()
@preserve_random_state()
def forecast(  # noqa: PLR0913 - the model, its data, and keywords of which each has a default
    model: nn.Module,
    data: Any,
    *,
    loss: Loss = None,
    optimizer: str | Factory | OptimizerChoice = "adam",
    steps: int = 400,
    cost: int = 70,
    seed: int = 0,
    memory: int | None = None,
    journal: Path | str | None = None,
    progress: Progress = silent,
) -> Forecast:
    """What `steps` training steps are expected to reach, and at which rate; the model is left bit for bit as it was.

    Args:
        model: Any `nn.Module` with parameters to train.
        data: `(inputs, targets)`, of which each step takes 64 samples, or an iterable of batches.
        loss: A name or a function (outputs, targets) -> scalar; by default the one that fits the targets.
        optimizer: ``"sgd"`` (with momentum 0.9), ``"adam"``, ``"adamw"``, or a function from parameters to an
            optimizer, or to an optimizer and its scheduler; all its rates are scaled together.
        steps: Length of the training that is forecast.
        cost: Gradients that may be computed, in training steps of the model; 0 judges from readings alone.
        seed: Names every random draw.
        memory: Bytes that may be used; half of what is free if not given. A batch that does not fit goes through in
            pieces where its samples do not depend on each other, and states of copies wait in files.
        journal: Folder to keep what was trained in; a killed forecast goes on from it to the same numbers. It knows
            model, data, loss, optimizer, cost, seed and version, and one of another forecast is refused.
        progress: Called as the work goes on.

    Example:
        f = sl.forecast(model, data)
        print(f.sentence)
    """
    model, choice = require_module(model), optimizer_choice(optimizer)
    loss_rule(loss)
    if not trainable(model):
        raise InvalidInputError(
            "The model has no parameter that a training would move. Set requires_grad_(True) on those to train."
        )
    if steps < 1 or cost < 0 or 0 < cost < LEAST_COST:
        raise InvalidInputError(
            f"steps is {steps} and cost {cost}; wanted at least 1 step, and a cost of 0 or at least {LEAST_COST}."
        )
    device = trainable(model)[0].device
    data, loss, handed = with_targets(model, data, loss)
    source, first, notes = opened(data, cost, seed, device)
    endless = isinstance(data, Iterator) and source.steps_per_epoch >= cost > 0  # it may have had more than were kept
    epoch = math.inf if endless else float(source.steps_per_epoch)
    settings = {"optimizer": choice.name, "steps": steps, "cost": cost}
    clock = Provenance.begin(settings, seed, device)
    model, settling = settled(model, first)
    size = samples_at_once(model, first, memory, COPIES if cost else READINGS)
    task = measure_task(model, first, loss, memory=memory)
    if abs(task.guess) < ROUNDING * (task.no_answer if task.no_answer > 0 else min(abs(task.loss), 1.0)):
        task = replace(task, guess=0.0)  # all targets are the same
    states = layer_states(model, first, loss, memory=memory)
    guess = task.guess if source.steps_per_epoch == 1 else guess_of(task, first)  # one batch is all there is
    lossy = TrainingLoss(loss)
    start = start_features(model, first, states, size)
    situation = Situation(guess if guess > 0 else abs(task.loss) or 1.0, epoch, start)

    def told(fields: dict[str, Any]) -> Forecast:
        fields = no_lower(fields, least_loss(task), situation.guess)
        cause = cause_of(fields["word"], task, states)
        return Forecast(
            **fields,
            steps=steps,
            optimizer=choice.name,
            guess=guess,
            first_loss=task.loss,
            limits={} if cause is None else cause.to_json(),
            notes=(*notes, *handed, *settling),
            provenance=clock.end(),
        )

    found = told(unseen(situation, task.loss, steps))
    if cost:
        progress(found.sentence, 0, cost)
        rates = len(choice.rates)
        small = Miniature(source, first, steps=steps, cost=cost - READINGS, rates=rates, epoch=epoch)
        if lossy.adds_up(model, first):
            lossy.weight = float(small.parts)  # a part then weighs as much as a batch
        trained = run_pilot(
            model, small, lossy, choice, cost=small.cost, seed=seed, progress=progress, journal=journal, size=size
        )
        fields = Outlook(trained, replace(situation, share=small.share), steps).fields()
        found = told({**fields, "cost": math.ceil(trained.cost / small.parts) + READINGS})
    if not comes_down(found):
        return found
    times = in_words(found.first_loss / found.guess, 2)
    further = f"The loss starts at {times} times a guess, and the pilot saw little but the way down from there."
    return replace(found, notes=(*found.notes, f"{further} cost={2 * cost} sees further."))


def comes_down(found: Forecast) -> bool:
    """Whether a pilot that promises little saw little but the way down to a guess."""
    seen = found.is_bad and bool(found.tried) and math.isfinite(found.loss)
    return seen and 0 < FAR * found.guess < found.first_loss


def no_lower(fields: dict[str, Any], least: float, guess: float) -> dict[str, Any]:
    """The fields of a forecast, where no loss can fall below `least`."""
    if not fields["loss"] < least:
        return fields
    interval = least, max(least, fields["interval"][1])
    bounded = {"loss": least, "interval": interval, "curve": fields["curve"].clamp(min=least)}
    return {**fields, **bounded, "word": word_for(least / guess)}


def samples_at_once(model: nn.Module, batch: Batch, memory: int | None, copies: int) -> int | None:
    """Samples of a batch that a step takes at a time, beside so many copies of the model; None: all of them."""
    fixed = copies * sum(tensor.numel() * tensor.element_size() for _, tensor in state_tensors(model))
    with preserve_state(model):
        pieces = pieces_of(model.train(), batch, memory, "a step of the training", fixed)
    return None if memory is None and len(pieces) == 1 else pieces[0].samples


class Outlook:
    """What a pilot says of the rest: every trial is followed to the end, and the best is advised."""

    def __init__(self, pilot: Pilot, situation: Situation, steps: int, fit: Fit | None = None) -> None:
        self.pilot, self.situation, self.steps = pilot, situation, steps
        self.fit = fit or fit_for("steps")
        found = advised(pilot, situation)
        self.best = found or pilot.trials[0]
        self.end = (math.inf,) * 3 if found is None else self._at(found, steps)

    def fields(self) -> dict[str, Any]:
        """The fields of the forecast that come from the pilot."""
        unit = self.situation.guess
        expected, low, high = self.end
        losses = itertools.zip_longest(*(trial.losses for trial in self.pilot.trials), fillvalue=math.nan)
        return {
            "word": word_for(math.exp(expected)),
            "loss": unit * math.exp(expected),
            "interval": (unit * math.exp(low), unit * math.exp(high)),
            "rate": self.best.rate if math.isfinite(expected) else math.nan,
            "rates": self._rates(),
            "curve": torch.tensor(self._curve()),
            "score": min((level_of(trial, self.situation) for trial in candidates(self.pilot)), default=HIGHEST + 1),
            "stretch": self.steps / self.pilot.longest,
            "tried": tuple(trial.rate for trial in self.pilot.trials),
            "losses": torch.tensor(list(losses), dtype=torch.float64).T,
        }

    def _at(self, trial: Trial, steps: float) -> tuple[float, float, float]:
        reached = math.log(max(SMALLEST, float(np.mean(last_quarter(trial)))) / self.situation.guess)
        if reached > HIGHEST:  # and how far it will fall nobody knows: no network of the fit was so far up
            return reached, -math.inf, reached
        return self.fit.predict(trial_features(self.pilot, trial, self.situation, steps))

    def _rates(self) -> tuple[float, float]:
        """The smallest and the largest rate that keep half of what the best one gains, in logarithms."""
        if not math.isfinite(self.end[0]):
            return math.nan, math.nan
        start = math.log(max(self.best.losses[0], 1e-12) / self.situation.guess)
        enough = (self.end[0] + min(start, 0.0)) / 2
        going_on = [trial for trial in self.pilot.trials if not trial.diverged]
        working = [trial.rate for trial in going_on if self._at(trial, self.steps)[0] <= enough]
        return min([self.best.rate, *working]), max([self.best.rate, *working])

    def _curve(self) -> list[float]:
        """The best trial, smoothed and as long as the training, brought to what is expected; it never rises."""
        if not math.isfinite(self.end[0]):
            return self.best.losses[: self.steps]
        seen = np.log(np.maximum(self.best.losses, SMALLEST) / self.situation.guess)
        window = np.ones(max(1, len(seen) // 8))
        seen = np.convolve(seen, window, "same") / np.convolve(np.ones_like(seen), window, "same")
        places = np.arange(1, len(seen) + 1) * self.steps / self.pilot.longest
        brought = seen + (self.end[0] - seen[-1]) * places / places[-1]
        values = np.interp(np.arange(1, self.steps + 1), [*places, self.steps], [*brought, self.end[0]])
        falling = np.maximum(np.minimum.accumulate(values), self.end[0])
        return (self.situation.guess * np.exp(falling)).tolist()


def unseen(situation: Situation, loss: float, steps: int, fit: Fit | None = None) -> dict[str, Any]:
    """The fields of a forecast from readings of the start alone."""
    fit = fit or fit_for("readings")
    expected, low, high = fit.predict(situation.start) if math.isfinite(loss) else (math.inf,) * 3
    score = situation.start["trouble"] if math.isfinite(loss) else math.inf
    ends = situation.guess * math.exp(expected)
    curve = torch.logspace(math.log10(loss), math.log10(ends), steps) if 0 < loss * ends < math.inf else [loss]
    return {
        "word": word_for(math.exp(expected)),
        "loss": ends,
        "interval": (situation.guess * math.exp(low), situation.guess * math.exp(high)),
        "rate": math.nan,
        "rates": (math.nan, math.nan),
        "curve": torch.as_tensor(curve),
        "score": score,
        "cost": 0,
        "losses": torch.zeros(0, 0),
    }


def opened(data: Any, cost: int, seed: int, device: torch.device) -> tuple[Source, Batch, tuple[str, ...]]:
    """Where the batches of the steps come from, the first one, and what to tell about them."""
    batches = as_batches(data)
    if isinstance(data, Iterator):  # it can be gone through once: keep as many batches as steps may want
        batches = as_batches(list(itertools.islice(batches, max(1, cost))))
    if isinstance(data, Sized) and not len(data):
        next(iter(batches))  # says that there is none
    single = isinstance(batches.source, tuple) and len(batches.source) == 1
    whole = next(iter(batches)) if single else None
    if whole is not None and not all(t.isfinite().all() for t in tensors_in([whole.inputs, whole.targets])):
        raise InvalidInputError("The data has NaN or infinite values, which end a training. Remove or repair them.")
    size = BATCH if whole is not None and whole.samples >= 2 * BATCH else None
    source = source_of(whole if whole is not None else batches, size, Randomness(seed).child("forecast"), device)
    notes: tuple[str, ...] = ()
    if source.steps_per_epoch == 1:
        notes = (
            "There is one batch only, so the forecast says how well it is learnt by heart; hand over more samples to "
            "hear about a training on fresh ones.",
        )
    return source, next(source.batches(0)), notes


def guess_of(task: TaskReading, batch: Batch) -> float:
    """The loss of the best constant answer on all data, from one batch.

    The entropy of a sample is too small by (classes seen − 1)/(2 · targets) on average (Miller and Madow).
    """
    targets = batch.targets
    if task.form != "classes" or targets.is_floating_point():
        return task.guess
    seen = len(targets.unique())
    return min(math.log(max(seen, task.classes)), task.guess + (seen - 1) / (2 * targets.numel()))


def cause_of(word: str, task: TaskReading, states: LayerStates) -> Finding | None:
    """What stands in the way, or None where nothing does or nothing was found."""
    if word == TRAINS:
        return None
    found = by_severity([*layer_findings(states), *task_findings(task)])
    return next((finding for finding in found if finding.severity != "note"), None)
