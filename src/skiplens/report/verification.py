"""Prove the suggestions of a report: apply each to a copy, take its number again, and let both networks train."""

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from skiplens.base.errors import InvalidInputError, SettingsError, SkiplensError
from skiplens.base.preserve_state import dropout_off, preserve_random_state, preserve_state
from skiplens.base.progress import Progress, silent
from skiplens.base.randomness import Randomness
from skiplens.base.settings import Settings, option
from skiplens.base.words import in_words
from skiplens.edits.remedies import MODES, apply_remedy
from skiplens.graph.batch import Batch, take
from skiplens.graph.functional import main_output
from skiplens.graph.inputs import try_call
from skiplens.graph.lens import Subject
from skiplens.graph.loss import Loss, fitted, loss_name, loss_rule
from skiplens.improvement.race import ends_of, run_to_the_end
from skiplens.readings import Finding, Provenance, Remedy
from skiplens.report.inspection import DEFAULT_SAMPLES, Report
from skiplens.report.lenses import LENSES, QUANTITIES, RULES, find
from skiplens.report.verification_reading import LAST_SHARE, VerificationReading
from skiplens.trainability.optimizers import OptimizerChoice
from skiplens.trainability.pilot import trainable
from skiplens.training.source import source_of

MOST_SEEDS = 16  # the exact test goes through 2^seeds signs
FEWEST_STEPS, MOST_STEPS = 15, 300
SAME_TRAINING = "The change is one of how the network is looked at; it trains alike."
INTERRUPTED = "Interrupted from the keyboard before its race was over."


class RaceOptions(Settings):
    """Everything that decides the numbers of a verification besides the model and the data."""

    seconds: float = option(40.0, "time for all of it; it decides how many steps a race has")
    steps: int | None = option(None, "steps of each run; none: as many as there is time for")
    seeds: int = option(7, "pairs of runs of each race")
    samples: int = option(512, "training samples: the first ones of the data")
    batch_size: int = option(32, "samples of a step")
    learning_rates: tuple[float, ...] = option((0.1, 0.01, 0.001), "each side races at the best of these")
    momentum: float = option(0.9, "momentum of stochastic gradient descent")
    seed: int = option(0, "names the order of samples of all runs")

    def __post_init__(self) -> None:
        """Refuse values with which no race is possible."""
        super().__post_init__()
        if not 2 <= self.seeds <= MOST_SEEDS:
            raise SettingsError(f"RaceOptions.seeds is {self.seeds}; wanted between 2 and {MOST_SEEDS}.")
        if not self.learning_rates:
            raise SettingsError("RaceOptions.learning_rates is empty; give at least one.")
        for name in ("seconds", "samples", "batch_size"):
            if not getattr(self, name) > 0:
                raise SettingsError(f"RaceOptions.{name} is {getattr(self, name)}; wanted a number above 0.")


@preserve_random_state()
def verify(
    report: Report,
    model: nn.Module,
    data: Any,
    *,
    loss: Loss = None,
    options: RaceOptions | None = None,
    progress: Progress = silent,
) -> Report:
    """`report` with one more reading for each finding that suggests a change: whether the change helps.

    Each change is made on a copy; `model` is left as it is. An interruption from the keyboard leaves what was
    finished.

    Args:
        report: What `inspect` returned for this model.
        model: The model that was inspected.
        data: The data that it was inspected with; the first samples of it are trained on.
        loss: As for `inspect`; the networks are trained with it.
        options: How much is done; by default all of it takes about 40 seconds.
        progress: Called as the work goes on.
    """
    options = options or RaceOptions()
    loss_rule(loss)  # a wrong name is an error before any work is done
    batch = take(data, max(options.samples, DEFAULT_SAMPLES))
    trial = _Trial(report, model, batch, loss, options, progress)
    with preserve_state(model):
        try:
            trial.take_numbers()
            trial.let_train()
        except KeyboardInterrupt:
            trial.reason = INTERRUPTED
    return replace(report, readings=(*report.readings, *trial.readings()))


@dataclass
class _Trial:
    """The work in progress: what is finished is kept, so that an interruption loses nothing of it."""

    report: Report
    model: nn.Module
    batch: Batch
    loss: Loss
    options: RaceOptions
    progress: Progress
    reason: str = ""
    retaken: dict[str, "Retaken"] = field(default_factory=dict)
    raced: dict[str, tuple[Tensor, float]] = field(default_factory=dict)
    impossible: set[str] = field(default_factory=set)
    made: dict[str, Any] = field(default_factory=lambda: {"steps": 0})  # what the race adds to the provenance

    def __post_init__(self) -> None:
        known = [finding for finding in self.report.findings if finding.rule in QUANTITIES]
        self.suggested = [(finding, finding.remedy) for finding in known if finding.remedy is not None]
        self.few = self.batch.first(DEFAULT_SAMPLES)
        self.began = time.perf_counter()
        device = next((parameter.device for parameter in self.model.parameters()), "cpu")
        self.clock = Provenance.begin(self.options.to_json(), self.options.seed, device)

    def take_numbers(self) -> None:
        """Take the number behind each finding again."""
        total = len(self.suggested)
        for done, (finding, remedy) in enumerate(self.suggested):
            self.progress("numbers after the changes", done, total)
            try:
                changed = apply_remedy(remedy, self.model, self.few.inputs)
            except SkiplensError as error:
                problem = f"The change cannot be made here: {error}"
                self.retaken[finding.rule] = Retaken(QUANTITIES[finding.rule].label, finding.number, problem=problem)
                self.impossible.add(_key(remedy))
                continue
            with dropout_off(changed):
                subject = Subject(changed, self.few, finding.rule, loss=self.loss)
                self.retaken[finding.rule] = retake(finding, self.report, subject)
        self.progress("numbers after the changes", total, total)

    def let_train(self) -> None:
        """Let the network as it is and every changed one train, each change once, in order of severity."""
        remedies = [remedy for finding, remedy in self.suggested if finding.rule in self.retaken]
        kept = [remedy for remedy in remedies if remedy.name not in MODES and _key(remedy) not in self.impossible]
        changes = {_key(remedy): remedy for remedy in kept}
        if not changes:
            return
        as_it_is: Start = lambda seed: self.model  # noqa: E731 - a run trains a copy
        runs = Runs(self.batch, self.loss, self.options)
        try:
            with preserve_state(self.model):
                outputs = main_output(try_call(self.model, self.few.arguments()))
            loss, _ = fitted(outputs, self.few, self.loss)
            step = runs.seconds_of_step(as_it_is)
            left = self.options.seconds - (time.perf_counter() - self.began)
            made = plan(len(changes), runs.each, step, left, self.options.steps)
            self.reason, self.made = made.reason, {"steps": made.steps, "loss": loss_name(loss)}
            starts = {"": as_it_is} if made.changes else {}
            starts |= {name: self._changed(changes[name]) for name in list(changes)[: made.changes]}
            runs = replace(runs, steps=made.steps, total=runs.each * len(starts), done=0)
            self.progress("training race", 0, runs.total)
            for name, start in starts.items():
                rate = runs.best_rate(start, self.progress)
                self.raced[name] = (runs.losses(start, rate, self.progress), rate)
        except SkiplensError as error:
            self.reason = f"There was no race: {error}"

    def _changed(self, remedy: Remedy) -> "Start":
        """The changed network of a seed; one for all where the seed draws nothing, since a run trains a copy."""
        made: Start = lambda seed: apply_remedy(remedy.with_seed(seed), self.model, self.few.inputs)  # noqa: E731
        once = cache(made)
        return made if "seed" in remedy.parameters else lambda seed: once(0)

    def readings(self) -> list[VerificationReading]:
        """What is finished."""
        ended = self.clock.end()
        provenance = replace(ended, settings={**ended.settings, **self.made})
        return [self._reading(*pair, provenance) for pair in self.suggested if pair[0].rule in self.retaken]

    def _reading(self, finding: Finding, remedy: Remedy, provenance: Provenance) -> VerificationReading:
        measured, fields = dict(vars(self.retaken[finding.rule])), dict[str, Any]()
        problem = measured.pop("problem")
        if "" in self.raced and _key(remedy) in self.raced:
            (before, slow), (after, fast) = self.raced[""], self.raced[_key(remedy)]
            fields = {"losses_before": before, "losses_after": after, "rates": (slow, fast)}
        reason = SAME_TRAINING if remedy.name in MODES else self.reason
        return VerificationReading(
            rule=finding.rule,
            finding=finding.sentence,
            remedy=remedy.name,
            threshold=finding.threshold,
            reason=" ".join(part for part in (problem, "" if fields else reason) if part),
            provenance=provenance,
            **measured,
            **fields,
        )


@dataclass(frozen=True)
class Retaken:
    """A number before and after a change, whether the finding is gone, and what the change brought."""

    quantity: str
    before: float
    after: float = math.nan
    solved: bool = False
    brought: tuple[str, ...] = ()
    problem: str = ""


def retake(finding: Finding, report: Report, changed: Subject) -> Retaken:
    """The number behind `finding` in `report`, and in fresh readings of `changed` with the same random draws."""
    rule, quantity = next(rule for rule in RULES if rule.name == finding.rule), QUANTITIES[finding.rule]
    old = [next(reading for reading in report.readings if type(reading) is kind) for kind in rule.needs]
    before, new = quantity.measure(finding, *old), []
    try:
        for reading in old:
            lens = LENSES[reading.kind]()
            randomness = Randomness(reading.provenance.seed or 0).child(lens.name)
            new.append(lens(changed, randomness, silent))
        after = quantity.measure(finding, *new)
    except SkiplensError as error:
        return Retaken(quantity.label, before, problem=f"The changed network could not be measured: {error}")
    known = {found.rule for found in find(old) if found.severity != "note"}
    brought = tuple(f.sentence for f in find(new) if f.severity != "note" and f.rule not in {*known, finding.rule})
    return Retaken(quantity.label, before, after, not rule(new), brought)


def _key(remedy: Remedy) -> str:
    """The words of a remedy, so that two findings with one change share its race."""
    return json.dumps([remedy.name, dict(remedy.parameters)], sort_keys=True)


@dataclass(frozen=True)
class RacePlan:
    """How many of the changes are raced and for how many steps; `reason` says why the others are not."""

    changes: int
    steps: int
    reason: str = ""


def plan(changes: int, runs: int, step_seconds: float, seconds: float, steps: int | None = None) -> RacePlan:
    """As many changes as possible, the first ones first, with at least 15 steps; then as many steps as possible.

    Beside the changes, of `runs` runs each, runs the network as it is. `seconds` are left; where `steps` were asked
    for, the time is not looked at.
    """
    if steps is not None:
        return RacePlan(changes, steps)
    needed = FEWEST_STEPS * runs * (changes + 1) * step_seconds
    reason = (
        f"There was no time for a race: a step takes {in_words(step_seconds, 2)} s and {runs} runs of {FEWEST_STEPS} "
        f"steps for each of {changes + 1} networks {needed:.0f} s, but {max(0.0, seconds):.0f} s were left. Give "
        "more seconds."
    )
    for raced in range(changes, 0, -1):
        affordable = int(seconds / (step_seconds * runs * (raced + 1)))
        if affordable >= FEWEST_STEPS:
            return RacePlan(raced, min(affordable, MOST_STEPS), "" if raced == changes else reason)
    return RacePlan(0, 0, reason)


Start = Callable[[int], nn.Module]  # a fresh network for a seed; it will be trained in place


@dataclass
class Runs:
    """What all runs share: samples, loss, options, number of steps; and how many of all runs are done."""

    batch: Batch
    loss: Loss
    options: RaceOptions
    steps: int = 1
    total: int = 0
    done: int = 0

    @property
    def each(self) -> int:
        """How many runs one starter needs."""
        return len(self.options.learning_rates) + self.options.seeds

    def seconds_of_step(self, start: Start) -> float:
        """How long one step takes here and now."""
        rate, timed = min(self.options.learning_rates), 3
        self.run(start, rate, self.options.seed)  # the first step is slower
        began = time.perf_counter()
        replace(self, steps=timed).run(start, rate, self.options.seed)
        return (time.perf_counter() - began) / timed

    def best_rate(self, start: Start, progress: Progress) -> float:
        """The learning rate with the lowest final loss on a seed of its own; the smallest where all diverge."""
        rates, seed = sorted(self.options.learning_rates), self.options.seed
        finals = {rate: float(ends_of(self.run(start, rate, seed, progress), LAST_SHARE)) for rate in rates}
        return min(finals, key=lambda rate: finals[rate])

    def losses(self, start: Start, rate: float, progress: Progress) -> Tensor:
        """The loss of each step, one row a seed; infinite from where a run diverged."""
        seeds = range(self.options.seed + 1, self.options.seed + 1 + self.options.seeds)
        return torch.cat([self.run(start, rate, seed, progress) for seed in seeds])

    def run(self, start: Start, rate: float, seed: int, progress: Progress = silent) -> Tensor:
        """One training, as a row."""
        model, size = start(seed), min(self.options.batch_size, max(1, self.batch.samples // 2))
        if not trainable(model):
            raise InvalidInputError(f"{type(model).__name__} has no parameter that a training would move.")
        device = next(model.parameters()).device
        source = source_of(self.batch, size, Randomness(seed).child("race"), device)
        sgd = partial(torch.optim.SGD, lr=1.0, momentum=self.options.momentum)
        choice = OptimizerChoice("sgd", sgd, usual=1.0)
        made = run_to_the_end(model, source, self.loss, choice, rate=rate, steps=self.steps, seed=seed)
        self.done += 1
        progress("training race", self.done, self.total)
        return made.losses[None]
