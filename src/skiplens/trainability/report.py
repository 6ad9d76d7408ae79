"""The forecast in an inspection: the lens, its section, pictures and the finding that keeps *healthy* away."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from skiplens.base import Progress, Randomness, TooLargeError, silent
from skiplens.base.words import in_words, span
from skiplens.graph.batch import as_batches
from skiplens.graph.lens import SETTLED, Lens, Subject
from skiplens.plots.figure import REFERENCE_COLOUR, Band, Figure, Line, Mark, Points, Reference, colour, drawn, numbers
from skiplens.plots.section import Curve, KeyNumber, Overlay, Quantity, ReadingView, Section, provenance_of
from skiplens.readings.finding import Finding, Rule
from skiplens.trainability.forecast import BATCH, LEAST_COST, comes_down, forecast
from skiplens.trainability.pilot import LEAST_SAMPLES
from skiplens.trainability.reading import DIVERGES, FORECAST_RULE, LEARNT, NOT_AT_ALL, Forecast, called

COST = 70
PASSES = 3  # forward passes that a gradient costs
CLIPPED = 10.0  # losses above so many guesses are drawn there
TOO_COSTLY = (
    "A pass through this model is costly: the fewest steps that tell something, {cost} with {samples} samples each, "
    "are {times} times what a forecast may take here. Give that many times the minutes (--minutes; the usual are 4), "
    "or ask for it alone: skiplens forecast --cost {cost}, with batches of {samples}."
)
AFFORDED, MOST = 2, 4  # times what another lens may take, for all steps together, and how often that for the fewest


@dataclass(frozen=True)
class ForecastLens(Lens):
    """A short training of copies, and what it says of a long one."""

    name: ClassVar[str] = "forecast"
    vectors: ClassVar[int] = 5
    question: ClassVar[str] = "Will it train, how low, and at which rate?"

    cost: int = COST

    def __call__(self, subject: Subject, randomness: Randomness, progress: Progress = silent) -> Forecast:
        """Forecast with Adam; with fewer gradients where each is costly."""
        data = subject.batch if subject.data is None else subject.data
        samples = next(iter(as_batches(data))).samples
        steps = AFFORDED * subject.allowed / max(1.0, subject.operations * subject.batch.samples * PASSES)
        cost = max(LEAST_COST, min(self.cost, int(steps)))
        fewest = min(max(samples, 2 * LEAST_SAMPLES), BATCH)  # parts of smaller batches would give each rate two steps
        times = LEAST_COST * PASSES * subject.operations * fewest / (AFFORDED * subject.allowed)
        if steps < LEAST_COST and (samples < fewest or times > MOST):
            raise TooLargeError(TOO_COSTLY.format(cost=LEAST_COST, samples=fewest, times=math.ceil(times)))
        asked = {"loss": subject.loss, "cost": cost, "seed": randomness.seed, "progress": progress}
        taken = forecast(subject.model, data, **asked)
        if comes_down(taken) and steps >= 3 * self.cost and not isinstance(data, Iterator):  # both together
            taken = forecast(subject.model, data, **asked | {"cost": 2 * cost})
        progress(taken.sentence, cost, cost)
        origin = {"lens": self.name, "model": subject.name, **taken.provenance.settings}
        told = tuple(note for note in subject.notes if note == SETTLED)  # which `structure` cannot tell of such a model
        taken = replace(taken, provenance=replace(taken.provenance, settings=origin), notes=(*taken.notes, *told))
        note = f"A pass through this model is costly, so {cost} instead of {self.cost} steps were taken."
        return replace(taken, notes=(*taken.notes, note)) if cost < self.cost else taken


def expected_curve(reading: Forecast) -> Figure | None:
    """Losses of all trials, and what is expected of the training."""
    if not bool((reading.losses.isfinite() & (reading.losses > 0)).any()):
        return None
    marks: list[Mark] = []
    top = CLIPPED * max(reading.guess, reading.first_loss) if math.isfinite(reading.guess) else math.inf
    low, high = max(reading.interval[0], reading.loss / CLIPPED**2), reading.interval[1]  # some of one open below
    bottom = low / CLIPPED if low < math.inf else 0.0
    for rate, losses in zip(reading.tried, reading.losses, strict=True):
        seen = losses[~losses.isnan()].clamp(bottom, top)  # a trial far off must not flatten all others
        places = [reading.stretch * step for step in range(1, len(seen) + 1)]
        marks.append(Line(numbers(places), numbers(seen), f"tried: {in_words(rate, 2)}", False, REFERENCE_COLOUR, True))
    steps, best = numbers(range(1, len(reading.curve) + 1)), f"expected at {in_words(reading.rate, 2)}"
    marks.append(Line(steps, numbers(reading.curve), best, colour=colour(0)))
    end = (float(reading.steps),)
    marks.append(Points(end, (reading.loss,), "forecast", colour=colour(0)))
    marks.append(Band((0.9 * end[0], end[0]), (low, low), (high, high), "90 % interval", colour(0)))
    if math.isfinite(reading.guess):
        marks.append(Reference(reading.guess, "a guess"))
        marks.append(Reference(LEARNT * reading.guess, "a quarter of it"))
    return Figure(
        name="expected_curve",
        title="What was tried, and what is expected",
        caption="Each thin line is a training in small of a copy at one rate, drawn over the steps that it stands "
        "for. The thick one is the best of them, brought to what is expected; the band at its end holds the loss with "
        "90 % probability.",
        x_label="step",
        y_label="training loss",
        x_log=True,
        y_log=True,
        marks=tuple(marks),
    )


def forecast_section(reading: Forecast) -> Section:
    """The forecast in words and numbers."""
    low, high = reading.interval
    facts = (
        ("forecast", reading.word),
        (f"loss after {reading.steps} steps", f"{in_words(reading.loss)} (90 %: {span(low, high)})"),
        ("rate to use", in_words(reading.rate, 2)),
        ("rates that work", span(*reading.rates, 2)),
        ("loss of a guess", in_words(reading.guess)),
        ("loss before the first step", in_words(reading.first_loss)),
        ("steps spent", f"{reading.cost} of {called(reading.optimizer)}"),
    )
    whose = reading.provenance.settings.get("of", "")  # where there are two networks
    return Section(
        anchor="forecast",
        title=f"Forecast of {whose}" if whose else "Forecast",
        sentence=reading.sentence,
        facts=tuple(fact for fact in facts if fact[1] not in ("nan", "not known")),  # without a step there is no rate
        notes=reading.notes,
        figures=drawn(reading, FIGURES),
        provenance=provenance_of(reading),
    )


def judge_forecast(reading: Forecast) -> Iterator[Finding]:
    """A forecast that is bad."""
    if not reading.is_bad:
        return
    level = reading.loss / reading.guess if 0 < reading.guess < math.inf else math.inf
    cause = reading.cause
    known = f"What limits it: {cause.sentence}" if cause else "No rule found what limits it."
    yield Finding(
        rule=FORECAST_RULE,
        severity="critical" if reading.word in (DIVERGES, NOT_AT_ALL) else "warning",
        sentence=reading.sentence,
        number=level,
        threshold=LEARNT,
        source="a quarter of the loss of a guess; the loss was forecast from a short training of copies",
        change=f"{known} {cause.change if cause else 'Train longer, or change width, norms or start.'}",
        code=cause.code if cause else "",
        where=cause.where if cause else (),
        remedy=cause.remedy if cause else None,
    )


def forecast_numbers(reading: Forecast) -> tuple[KeyNumber, ...]:
    """What models are compared by."""
    return (
        KeyNumber(f"expected loss after {reading.steps} steps", reading.loss, logarithmic=True),
        KeyNumber("rate to use", reading.rate, logarithmic=True),
    )


FIGURES = (expected_curve,)
RULES = (Rule(FORECAST_RULE, (Forecast,), judge_forecast),)
OVERLAYS = (
    Overlay(
        "expected_curves",
        "Expected losses",
        "The loss that each network is expected to have after so many steps, each at its own best rate.",
        ("step", "training loss"),
        lambda reading: Curve(1 + reading.curve.new_ones(len(reading.curve)).cumsum(0) - 1, reading.curve),
    ),
)
QUANTITIES = {
    FORECAST_RULE: Quantity("expected loss over that of a guess", lambda finding, reading: reading.loss / reading.guess)
}
VIEW = ReadingView(Forecast, ForecastLens, forecast_section, FIGURES, RULES, forecast_numbers, OVERLAYS, QUANTITIES)
