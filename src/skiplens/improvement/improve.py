"""Make it train: the smallest change that is found to help, and the proof that it does."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from skiplens.base import InvalidInputError, Progress, silent
from skiplens.base.identity import fingerprint
from skiplens.base.preserve_state import preserve_random_state, preserve_state
from skiplens.base.version import VERSION
from skiplens.base.words import in_words
from skiplens.edits.remedies import one_program
from skiplens.graph.batch import take
from skiplens.graph.inputs import copy_of, require_module, try_call
from skiplens.graph.lens import Subject, with_targets
from skiplens.graph.loss import Loss, loss_name, loss_rule
from skiplens.improvement.changes import COOL_DOWN, Keep, changes_for, cool_down
from skiplens.improvement.drawing import look
from skiplens.improvement.patient import Patient, has_numbers, quantised_layers
from skiplens.improvement.plan import Change, Plan, changed, trained_with
from skiplens.improvement.race import Race, RacedRun, run_to_the_end
from skiplens.improvement.reading import Improvement
from skiplens.improvement.search import FULL, WORTH, Search, Tried, kept, named
from skiplens.readings import Provenance, Store
from skiplens.readings.finding import listed
from skiplens.trainability.forecast import opened
from skiplens.trainability.optimizers import Factory, optimizer_choice
from skiplens.trainability.pilot import trainable
from skiplens.trainability.reading import Forecast
from skiplens.training.checkpoints import state_tensors
from skiplens.training.source import batch_tensors

DRAWN = 32  # samples from which the drawing of a network is taken
SAMPLES = 256  # that readings are taken of, and that starts are measured on
LEAST_COST = 140
LEAST_SAMPLES = 32
SEEDS = 3  # pairs of a race


@dataclass(frozen=True)
class Improved:
    """What `improve` found.

    Attributes:
        model: A changed copy, or a copy of the network as it was where nothing was proven better.
        changes: What was changed, in order of effect; empty where nothing was proven better.
        code: Code to paste that makes the same changes to a model called `model` whose inputs are `inputs`.
        before: The forecast of the network as it was.
        after: The forecast of the changed one; None where nothing seemed better.
        race: The original and what is handed over, trained to the end; None where nothing seemed better.
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
        return self.reading.rates[1] if self.reading.is_proven else self.before.rate

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
    cost: int | None = None,
    seed: int = 0,
    out: Path | str | None = None,
    progress: Progress = silent,
) -> Improved:
    """A changed copy of `model` that trains better, with the proof; the model is left bit for bit as it was.

    Changes that readings call for are tried by short trainings, the best ones together; what wins is trained to the
    end beside the original from three fresh seeds, each at the best rate of its pilot, the last quarter also with a
    rate that falls to zero. It costs `cost` gradients and up to 7.5 · `steps`: by default at most ten trainings.

    Args:
        model: Any `nn.Module` with parameters to train.
        data: As for `forecast`.
        loss: As for `forecast`.
        optimizer: As for `forecast`.
        steps: Length of the training that is to get better.
        keep: ``"outputs"`` changes only how it is trained, ``"architecture"`` also values of parameters, None anything.
        cost: Gradients for all short trainings together; by default 1000, and at most 2.5 · `steps`.
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
    cost = min(1000, 5 * steps // 2) if cost is None else cost
    if steps < FULL or cost < LEAST_COST:
        raise InvalidInputError(f"steps is {steps} and cost {cost}; wanted at least {FULL} and {LEAST_COST}.")
    _require_changeable(model)
    data, loss, _ = with_targets(model, list(data) if isinstance(data, Iterator) else data, loss)
    batch = take(data, SAMPLES).to(next(model.parameters()).device)
    if batch.samples < LEAST_SAMPLES:
        raise InvalidInputError(
            f"The data has {batch.samples} samples; a race needs at least {LEAST_SAMPLES} to tell two networks apart."
        )
    if not has_numbers(model, batch):
        raise InvalidInputError("There are NaN or infinite weights, or NaN inputs, which no change mends: repair them.")
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
        race, cooling = self._raced(key, before, best)
        # Made in the order in which they were found, as the code does; told in the order of their effect.
        in_order = best.plan if best is not None and race is not None and race.is_proven else ()
        gains, p = search.gains(in_order), race.p if race else 1.0
        if cooling is None:
            search.left_out["a rate that falls at the end"] = "the optimizer has a schedule of its own"
        elif cooling.is_proven and math.log(cooling.gain) > WORTH:
            if best is not None and race is not None and not in_order:
                search.left_out[f"{best.name}, to the end"] = f"a race does not prove it (p = {in_words(p, 2)})"
            more = f", and falling ones end {in_words(cooling.gain, 2)} times lower" if in_order else ""
            reason = f"steps that stay large only jump to and fro in the end{more}"
            race, p = (
                (replace(race, after=cooling.after), max(p, cooling.p)) if race and in_order else (cooling, cooling.p)
            )
            in_order = (*in_order, cool_down(in_order, patient.steps, reason))
            gains |= {in_order[-1].name: math.log(cooling.gain)}
        plan = tuple(sorted(in_order, key=lambda change: -gains[change.name]))
        made = changed(copy_of(patient.model), in_order, patient.batch.inputs)
        reading = Improvement(
            drawings=self._drawings(made if any(change.remedies for change in plan) else None),
            changes=tuple(change.words for change in plan),
            reasons=tuple(change.reason for change in plan),
            gains=torch.tensor([gains[change.name] for change in plan], dtype=torch.float64),
            code=one_program(change.code for change in in_order),
            tried=tuple(tried.name for tried in search.tried),
            scores=torch.tensor([tried.found.score for tried in search.tried], dtype=torch.float64),
            costs=torch.tensor([tried.found.cost for tried in search.tried]),
            left_out=search.left_out,
            seemed_better=named(in_order) if in_order else best.name if best else "",
            losses_before=race.before if race else torch.zeros(0, 0),
            losses_after=race.after if race else torch.zeros(0, 0),
            rates=race.rates if race else (before.rate, before.rate),
            gain=race.gain if race else 1.0,
            p=p,
            is_proven=bool(in_order),
            guess=before.guess,
            unit=abs(before.first_loss),
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

    def _raced(self, key: str, before: Forecast, best: Tried | None) -> tuple[Race | None, Race | None]:
        """Both networks from the same seeds on the same batches, which no pilot has seen in this order.

        Both get the rate of their pilot, so that neither is treated better, and the test has nothing to correct. What
        is kept after it is then asked one more question: whether it ends lower with a rate that falls at the end.
        """
        own = before.rate if before.rate == before.rate else self.patient.choice.usual
        entries = [((), own), (best.plan, best.found.rate)] if best else [] if self.patient.scheduled else [((), own)]
        runs = [[self._run(key, plan, rate, self.seed + 1 + n) for n in range(SEEDS)] for plan, rate in entries]
        ends = [torch.stack([run.losses for run in side]) for side in runs]
        race = Race(ends[0], ends[1], (own, best.found.rate), guess=before.guess) if best else None
        side = int(race is not None and race.is_proven)
        if self.patient.scheduled:
            return race, None
        rate, cooled = entries[side][1], torch.stack([run.cooled for run in runs[side]])
        return race, Race(ends[side], cooled, (rate, rate), guess=before.guess)

    def _run(self, key: str, plan: Plan, rate: float, seed: int) -> RacedRun:
        """One training, and its end with a rate that falls where the optimizer has no schedule of its own."""
        patient, steps, fresh = self.patient, self.patient.steps, tuple(change.with_seed(seed) for change in plan)
        last = 0 if patient.scheduled else steps // COOL_DOWN
        self.progress("race to the end", self.spent, race_cost(steps))
        self.spent += steps + last

        def measure() -> RacedRun:
            model = changed(patient.model, fresh, patient.batch.inputs)
            asked = {"rate": rate, "steps": steps, "seed": seed, "first": seed * steps, "last": last}
            choice = trained_with(patient.choice, plan)
            return run_to_the_end(model, self.data, patient.loss, choice, **asked)  # type: ignore[arg-type]

        return cast(RacedRun, kept(self.store, key, ["race", [change.name for change in fresh], rate, seed], measure))

    def _key(self, settings: dict[str, Any]) -> str:
        """What tells this work from other work in the same folder."""
        source, *_ = opened(self.data, self.cost, self.seed, next(self.patient.model.parameters()).device)
        state = fingerprint(state_tensors(self.patient.model))
        seen = fingerprint((str(number), tensor) for number, tensor in enumerate(batch_tensors(self.patient.batch)))
        return repr((state, seen, source.fingerprint(), settings, self.seed, loss_name(self.patient.loss), VERSION))


def race_cost(steps: int) -> int:
    """Gradients of a race at most: three pairs, and the last quarter of each of these trainings once more."""
    return 2 * SEEDS * (steps + steps // COOL_DOWN)
