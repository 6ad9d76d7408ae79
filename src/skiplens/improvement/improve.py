"""Make it train: the smallest change that is found to help, and the proof that it does."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from skiplens.base.errors import InvalidInputError
from skiplens.base.identity import fingerprint
from skiplens.base.preserve_state import preserve_random_state, preserve_state
from skiplens.base.progress import Progress, silent
from skiplens.base.version import VERSION
from skiplens.graph.batch import take
from skiplens.graph.inputs import copy_of, require_module, try_call
from skiplens.graph.lens import Subject, with_targets
from skiplens.graph.loss import Loss, loss_name, loss_rule
from skiplens.improvement.changes import Change, Keep, Plan, changed, changes_for, trained_with
from skiplens.improvement.drawing import look
from skiplens.improvement.patient import Patient, quantised_layers
from skiplens.improvement.race import BEYOND, CLIPPED, SCREENED, Race, RacedRun, ends_of, run_to_the_end
from skiplens.improvement.reading import Improvement
from skiplens.improvement.search import FULL, Search, Tried, kept
from skiplens.readings.finding import listed
from skiplens.readings.reading import Provenance
from skiplens.readings.store import Store
from skiplens.trainability.forecast import opened
from skiplens.trainability.optimizers import Factory, optimizer_choice
from skiplens.trainability.pilot import Trial, has_diverged, trainable
from skiplens.trainability.reading import Forecast
from skiplens.training.checkpoints import state_tensors
from skiplens.training.source import batch_tensors

DRAWN = 32  # samples from which the drawing of a network is taken
SAMPLES = 256  # that readings are taken of, and that starts are measured on
LEAST_COST = 140
LEAST_SAMPLES = 32
SEEDS = 3  # pairs of a race
FURTHER = 2  # rates that what is proven is tried at besides the one of its pilot


@dataclass(frozen=True)
class Improved:
    """What `improve` found.

    Attributes:
        model: A changed copy, or a copy of the network as it was where nothing was proven better.
        changes: What was changed, in order of effect; empty where nothing was proven better.
        code: Code to paste that makes the same changes to a model called `model` whose inputs are `inputs`.
        before: The forecast of the network as it was.
        after: The forecast of the changed one; None where nothing seemed better.
        race: Both trained to the end, each at the rate of its pilot; None where nothing seemed better.
        reading: All of it as numbers, for a report.
    """

    model: nn.Module
    changes: tuple[Change, ...]
    code: str
    before: Forecast
    after: Forecast | None
    race: Race | None
    reading: Improvement

    @property
    def rate(self) -> float:
        """The rate to train `model` at; NaN where no rate works."""
        return self.reading.best_rate if self.changes else self.before.rate

    @property
    def sentence(self) -> str:
        """What was found, in one sentence."""
        return self.reading.sentence

    def __str__(self) -> str:
        """The sentence, and the code."""
        return f"{self.sentence}\n\n{self.code}".strip()


@preserve_random_state()
def improve(  # noqa: PLR0913 - the model, its data, and keywords of which each has a default
    model: nn.Module,
    data: Any,
    *,
    loss: Loss = None,
    optimizer: str | Factory = "adam",
    steps: int = 400,
    keep: Keep = "architecture",
    cost: int = 1100,
    seed: int = 0,
    out: Path | str | None = None,
    progress: Progress = silent,
) -> Improved:
    """A changed copy of `model` that trains better, with the proof; the model is left bit for bit as it was.

    Changes that readings call for are tried by short trainings, the best ones together; what wins is trained to the
    end beside the original from three fresh seeds, each at the best rate of its pilot, and what is proven at two more
    rates. It costs `cost` gradients and 7.25 · `steps` for this race, which is left out where nothing seems better.

    Args:
        model: Any `nn.Module` with parameters to train.
        data: As for `forecast`.
        loss: As for `forecast`.
        optimizer: As for `forecast`.
        steps: Length of the training that is to get better.
        keep: ``"outputs"`` changes only how it is trained, ``"architecture"`` also values of parameters, None anything.
        cost: Gradients for all short trainings together.
        seed: Names every random draw.
        out: A folder in which finished parts are kept, so that the same call goes on after an interruption.
        progress: Called as the work goes on.

    Example:
        better = sl.improve(model, data)
        print(better)
    """
    model, choice = require_module(model), optimizer_choice(optimizer)
    loss_rule(loss)
    if keep not in ("outputs", "architecture", None):
        raise InvalidInputError(f"keep is {keep!r}; wanted 'outputs', 'architecture' or None.")
    if steps < FULL or cost < LEAST_COST:
        raise InvalidInputError(f"steps is {steps} and cost {cost}; wanted at least {FULL} and {LEAST_COST}.")
    _require_changeable(model)
    data, _ = with_targets(model, list(data) if isinstance(data, Iterator) else data, loss)
    batch = take(data, SAMPLES).to(next(model.parameters()).device)
    if batch.samples < LEAST_SAMPLES:
        raise InvalidInputError(
            f"The data has {batch.samples} samples; a race needs at least {LEAST_SAMPLES} to tell two networks apart."
        )
    with preserve_state(model):
        try_call(model, batch.first(2).arguments())
    patient = Patient(model, batch, loss, steps, choice)
    work = _Work(patient, data, seed, cost, keep, None if out is None else Store(Path(out) / "parts"), progress)
    return work.result()


def _require_changeable(model: nn.Module) -> None:
    """Refuse models of which no part can be changed or trained."""
    reason = "The model has no parameter that a training would move, so none can be improved."
    if isinstance(model, torch.jit.ScriptModule):
        reason = "The model is scripted, so no copy of it can be changed. Hand in the nn.Module it was compiled from."
    elif trainable(model):
        return
    elif quantised := listed(quantised_layers(model)):
        reason = f"The weights of {quantised} are quantised and there are no others, so no training moves them. "
        reason += "Improve the network before it is quantised."
    raise InvalidInputError(reason)


@dataclass
class _Work:
    patient: Patient
    data: Any
    seed: int
    cost: int
    keep: Keep
    store: Store | None
    progress: Progress
    spent: int = 0  # gradients of the race

    def result(self) -> Improved:
        """Search, then race what was found."""
        patient, device = self.patient, next(self.patient.model.parameters()).device
        settings = {"optimizer": patient.choice.name, "steps": patient.steps, "cost": self.cost, "keep": self.keep}
        clock, key = Provenance.begin(settings, self.seed, device), self._key(settings)
        changes, left_out = changes_for(patient, self.keep)
        search = Search(patient, self.data, self.seed, self.cost, self.progress, self.store, key, left_out=left_out)
        before, best = search.run(changes)
        race = None if best is None else self._race(key, before, best.found, best.plan)
        proven = best is not None and race is not None and race.is_proven
        # Made in the order in which they were found, as the code does; told in the order of their effect.
        in_order = best.plan if best is not None and proven else ()
        gains = search.gains(in_order)
        plan = tuple(sorted(in_order, key=lambda change: -gains[change.name]))
        made = changed(copy_of(patient.model), in_order, patient.batch.inputs)
        best_rate, best_loss = self._best_rate(key, race, best) if best and race and proven else (math.nan, math.nan)
        reading = Improvement(
            drawings=self._drawings(made if any(change.remedies for change in plan) else None),
            changes=tuple(change.words for change in plan),
            reasons=tuple(change.reason for change in plan),
            gains=torch.tensor([gains[change.name] for change in plan], dtype=torch.float64),
            code="\n".join(change.code for change in in_order),
            tried=tuple(tried.name for tried in search.tried),
            scores=torch.tensor([tried.found.score for tried in search.tried], dtype=torch.float64),
            costs=torch.tensor([tried.found.cost for tried in search.tried]),
            left_out=search.left_out,
            seemed_better="" if best is None else best.name,
            losses_before=race.before if race else torch.zeros(0, 0),
            losses_after=race.after if race else torch.zeros(0, 0),
            rates=race.rates if race else (before.rate, before.rate),
            gain=race.gain if race else 1.0,
            p=race.p if race else 1.0,
            is_proven=proven,
            best_rate=best_rate,
            best_loss=best_loss,
            guess=before.guess,
            cost=search.spent + self.spent,
            steps=patient.steps,
            optimizer=patient.choice.name,
            provenance=clock.end(),
        )
        return Improved(made, plan, reading.code, before, best.found if best else None, race, reading)

    def _drawings(self, made: nn.Module | None) -> tuple[dict[str, Any], ...]:
        """The network as it was and as it became, if it did; empty where one cannot be looked at."""
        few, models = self.patient.batch.first(DRAWN), filter(None, (self.patient.model, made))
        found = tuple(look(Subject(model, few, "", loss=self.patient.loss), self.seed) for model in models)
        return found if all(found) else ()

    def _race(self, key: str, before: Forecast, after: Forecast, plan: Plan) -> Race:
        """Both from the same seeds on the same batches, which no pilot has seen in this order.

        Both get the rate of their pilot, so that neither is treated better, and the test has nothing to correct.
        """
        rates = (before.rate if before.rate == before.rate else self.patient.choice.usual, after.rate)
        pairs, seeds = zip(((), plan), rates, strict=True), range(self.seed + 1, self.seed + 1 + SEEDS)
        runs = [torch.stack([self._run(key, own, (rate,), seed).losses for seed in seeds]) for own, rate in pairs]
        return Race(runs[0], runs[1], rates, ceiling=CLIPPED * before.guess if before.guess > 0 else BEYOND)

    def _best_rate(self, key: str, race: Race, best: Tried) -> tuple[float, float]:
        """At which of the rates the changed network ends lowest from the first seed, and where: pilots often err."""
        own, further = (race.rates[1], float(race.ends[1][0])), further_rates(best.found)
        if not further:
            return own
        run = self._run(key, best.plan, further, self.seed + 1)
        return min(own, (run.rate, float(ends_of(run.losses[None]))), key=lambda found: found[1])

    def _run(self, key: str, plan: Plan, rates: tuple[float, ...], seed: int) -> RacedRun:
        """One training; of several rates the one that is ahead after a fourth of the steps goes on."""
        self.progress("race to the end", self.spent, race_cost(self.patient.steps))
        self.spent += self.patient.steps + (len(rates) - 1) * (self.patient.steps // SCREENED)
        fresh = tuple(change.with_seed(seed) for change in plan)

        def measure() -> RacedRun:
            model = changed(self.patient.model, fresh, self.patient.batch.inputs)
            asked = {"rates": rates, "steps": self.patient.steps, "seed": seed, "first": seed * self.patient.steps}
            choice = trained_with(self.patient.choice, plan)
            return run_to_the_end(model, self.data, self.patient.loss, choice, **asked)  # type: ignore[arg-type]

        return cast(RacedRun, kept(self.store, key, ["race", [change.name for change in fresh], rates, seed], measure))

    def _key(self, settings: dict[str, Any]) -> str:
        """What tells this work from other work in the same folder."""
        source, *_ = opened(self.data, self.cost, self.seed, next(self.patient.model.parameters()).device)
        state = fingerprint(state_tensors(self.patient.model))
        seen = fingerprint((str(number), tensor) for number, tensor in enumerate(batch_tensors(self.patient.batch)))
        return repr((state, seen, source.fingerprint(), settings, self.seed, loss_name(self.patient.loss), VERSION))


def race_cost(steps: int) -> int:
    """Gradients of a race at most: three pairs, and two more rates, of which one goes on to the end."""
    return (2 * SEEDS + 1) * steps + (FURTHER - 1) * (steps // SCREENED)


def further_rates(found: Forecast) -> tuple[float, ...]:
    """The rates besides the advised one whose trials went furthest and, of these, came lowest."""
    rows = ([loss for loss in row if loss == loss] for row in found.losses.tolist())
    trials = [Trial(rate, row) for rate, row in zip(found.tried, rows, strict=True)]
    others = [t for t in trials if t.rate != found.rate and t.losses and not has_diverged(t.losses)]
    return tuple(t.rate for t in sorted(others, key=lambda t: (-len(t.losses), t.level()))[:FURTHER])
