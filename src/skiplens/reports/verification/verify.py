"""Prove the suggestions of a report: apply each to a copy, take its number again, and let both networks train."""

import copy
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, nn

from skiplens.core.errors import SkiplensError
from skiplens.core.progress import Progress, silent
from skiplens.core.untouched import untouched
from skiplens.data.batch import Batch, take
from skiplens.findings import Finding, Remedy, apply_remedy
from skiplens.readings import Provenance, VerificationReading
from skiplens.readings.provenance import Stopwatch
from skiplens.reports.inspection import DEFAULT_SAMPLES
from skiplens.reports.report import Report
from skiplens.reports.verification.options import RaceOptions
from skiplens.reports.verification.plan import plan
from skiplens.reports.verification.quantities import QUANTITIES
from skiplens.reports.verification.race import Start, Track, seconds_of_step, track
from skiplens.reports.verification.retaking import Retaken, retake

MODES = ("evaluation_mode", "training_mode")
"""Changes of how a network is looked at; they train alike, so there is nothing to race."""

SAME_TRAINING = "The change is one of how the network is looked at; it trains alike."
INTERRUPTED = "Interrupted from the keyboard before its race was over."


def verify(
    report: Report, model: nn.Module, data: Any, *, options: RaceOptions | None = None, progress: Progress = silent
) -> Report:
    """`report` with one more reading for each finding that suggests a change: whether the change helps.

    Each change is made on a copy; `model` is left as it is. An interruption from the keyboard leaves what was
    finished.

    Args:
        report: What `inspect` returned for this model.
        model: The model that was inspected.
        data: The data that it was inspected with; the first samples of it are trained on.
        options: How much is done; by default all of it takes about 40 seconds.
        progress: Called as the work goes on.
    """
    options = options or RaceOptions()
    batch = take(data, max(options.samples, DEFAULT_SAMPLES))
    trial = _Trial(report, model, batch, options, progress)
    with untouched(model):
        try:
            trial.take_numbers()
            trial.race()
        except KeyboardInterrupt:
            trial.reason = INTERRUPTED
    return replace(report, readings=(*report.readings, *trial.readings()))


@dataclass
class _Trial:
    """The work in progress: what is finished is kept, so that an interruption loses nothing of it."""

    report: Report
    model: nn.Module
    batch: Batch
    options: RaceOptions
    progress: Progress
    reason: str = ""
    retaken: dict[str, Retaken] = field(default_factory=dict)
    raced: dict[str, tuple[Tensor, float]] = field(default_factory=dict)
    impossible: set[str] = field(default_factory=set)
    steps: int = 0

    def __post_init__(self) -> None:
        self.suggested = [f for f in self.report.findings if f.remedy is not None and f.rule in QUANTITIES]
        self.began = time.perf_counter()
        self.clock = Provenance.begin(self.options.to_json(), self.options.seed, _device(self.model))

    def take_numbers(self) -> None:
        """Take the number behind each finding again."""
        total, few = len(self.suggested), self.batch.first(DEFAULT_SAMPLES)
        for done, finding in enumerate(self.suggested):
            self.progress("numbers after the changes", done, total)
            try:
                changed = apply_remedy(_remedy(finding), self.model, few.inputs)
            except SkiplensError as error:
                problem = f"The change cannot be made here: {error}"
                self.retaken[finding.rule] = Retaken(QUANTITIES[finding.rule].label, finding.number, problem=problem)
                self.impossible.add(_key(_remedy(finding)))
                continue
            self.retaken[finding.rule] = retake(finding, self.report.readings, changed, few, silent)
        self.progress("numbers after the changes", total, total)

    def race(self) -> None:
        """Let the network as it is and every changed one train."""
        changes = self._changes()
        if not changes:
            return
        try:
            race = track(self.model, self.batch, self.options)
            step = seconds_of_step(race, self.model)
        except SkiplensError as error:
            self.reason = f"There was no race: {error}"
            return
        left = self.options.seconds - (time.perf_counter() - self.began)
        made = plan(len(changes), race.runs, step, left, self.options.steps)
        self.reason, self.steps = made.reason, made.steps
        if made.changes:
            names = ["", *list(changes)[: made.changes]]
            race = replace(
                race,
                recipe=replace(race.recipe, steps=made.steps),
                tick=_counter(self.progress, race.runs * len(names)),
            )
            for name in names:
                self._run(name, race, self._start(changes.get(name)))

    def _changes(self) -> dict[str, Remedy]:
        """Each change that may alter training once, by its words, in order of severity."""
        remedies = (_remedy(finding) for finding in self.suggested if finding.rule in self.retaken)
        kept = (remedy for remedy in remedies if remedy.name not in MODES and _key(remedy) not in self.impossible)
        return {_key(remedy): remedy for remedy in kept}

    def _run(self, name: str, race: Track, start: Start) -> None:
        rate = race.tuned(start)
        self.raced[name] = (race.losses(start, rate), rate)

    def _start(self, remedy: Remedy | None) -> Start:
        inputs = self.batch.first(DEFAULT_SAMPLES).inputs
        if remedy is None:
            return lambda seed: copy.deepcopy(self.model)
        return lambda seed: apply_remedy(redrawn_with(remedy, seed), self.model, inputs)

    def readings(self) -> list[VerificationReading]:
        """What is finished."""
        return [self._reading(finding) for finding in self.suggested if finding.rule in self.retaken]

    def _reading(self, finding: Finding) -> VerificationReading:
        retaken, remedy = self.retaken[finding.rule], _remedy(finding)
        sides = [self.raced[name] for name in ("", _key(remedy)) if name in self.raced]
        fields: dict[str, Any] = {}
        if len(sides) == 2:
            (before, slow), (after, fast) = sides
            fields = {"losses_before": before, "losses_after": after, "rates": (slow, fast)}
        reason = SAME_TRAINING if remedy.name in MODES else self.reason
        return VerificationReading(
            rule=finding.rule,
            finding=finding.sentence,
            remedy=remedy.name,
            quantity=retaken.quantity,
            before=retaken.before,
            after=retaken.after,
            threshold=finding.threshold,
            solved=retaken.solved,
            brought=retaken.brought,
            reason=" ".join(part for part in (retaken.problem, "" if fields else reason) if part),
            provenance=_stopped(self.clock, self.steps),
            **fields,
        )


def redrawn_with(remedy: Remedy, seed: int) -> Remedy:
    """The same remedy; one that draws weights draws those of `seed`, so that a race does not hang on one draw."""
    if "seed" not in remedy.parameters:
        return remedy
    return replace(remedy, parameters={**remedy.parameters, "seed": seed})


def _remedy(finding: Finding) -> Remedy:
    assert finding.remedy is not None, "only findings with a remedy are on trial"
    return finding.remedy


def _key(remedy: Remedy) -> str:
    return json.dumps([remedy.name, _words(remedy.parameters)], sort_keys=True)


def _words(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in parameters.items()}


def _counter(progress: Progress, total: int) -> Callable[[], None]:
    done = 0
    progress("training race", 0, total)

    def tick() -> None:
        nonlocal done
        done += 1
        progress("training race", done, total)

    return tick


def _stopped(clock: Stopwatch, steps: int) -> Provenance:
    ended = clock.end()
    return replace(ended, settings={**ended.settings, "steps": steps})


def _device(model: nn.Module) -> Any:
    return next((parameter.device for parameter in model.parameters()), "cpu")
