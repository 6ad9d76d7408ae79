"""What all studies count with: repeated runs, their readings, and verdicts from confidence intervals over seeds.

One lucky seed decides nothing: a claim is reproduced if the whole interval agrees with it, and differs if the whole
interval does not.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import scipy.stats
import torch
from torch import Tensor

from skiplens.base import Float, Randomness, Settings, option, refuse_if
from skiplens.kernels.finite_width.simulation import estimate
from skiplens.papers.study import Judgement, Table, Word
from skiplens.plots.figure import Band as FigureBand
from skiplens.plots.figure import Figure, Line, Mark, Points, colour, numbers
from skiplens.readings.reading import Measurement
from skiplens.sweeps import Run, grid

STUDY_LEVEL, MOST_CLAIMS = 0.01, 100
"""The chance that any interval of a study misses its truth, and how many claims a study may have at most."""

LEVEL = STUDY_LEVEL / MOST_CLAIMS
"""The chance that the interval of one claim does (Bonferroni): so all of a study hold together, whatever ties them."""

UNDECIDED = "The confidence interval is too wide to decide; use a larger preset."


@dataclass(frozen=True)
class Interval:
    """Confidence intervals of one or many numbers, holding together."""

    value: Tensor
    half_width: Tensor

    @property
    def low(self) -> Tensor:
        """The lower ends."""
        return self.value - self.half_width

    @property
    def high(self) -> Tensor:
        """The upper ends."""
        return self.value + self.half_width


@dataclass(frozen=True)
class Band:
    """The numbers that agree with a statement, from `low` to `high`; `tolerance` says how much of it is leniency."""

    low: float
    high: float
    tolerance: float = 0.0

    @classmethod
    def around(cls, target: float, tolerance: float) -> "Band":
        """Numbers within `tolerance` of `target`."""
        return cls(target - tolerance, target + tolerance, tolerance)

    @classmethod
    def between(cls, low: float, high: float, tolerance: float = 0.0) -> "Band":
        """Numbers between two bounds that may be missed by `tolerance`."""
        return cls(low - tolerance, high + tolerance, tolerance)

    def holds(self, found: Interval) -> bool:
        """Whether all intervals lie inside."""
        return bool(((found.low >= self.low) & (found.high <= self.high)).all())

    def rejects(self, found: Interval) -> bool:
        """Whether some interval lies wholly outside."""
        return bool(((found.high < self.low) | (found.low > self.high)).any())

    @property
    def is_one_sided(self) -> bool:
        """Whether it has one end only, and so no number of its own."""
        return math.isinf(self.low) != math.isinf(self.high)

    def opposed_by(self, found: Interval) -> bool:
        """Whether it says that numbers have a sign, and all of them have the other one."""
        if not self.is_one_sided or self.tolerance or 0.0 not in (self.low, self.high):
            return False
        return bool(((found.high < self.low) | (found.low > self.high)).all())

    def worst(self, found: Interval) -> int:
        """The index of the interval that reaches farthest out, or least far in."""
        return int(torch.maximum(self.low - found.low, found.high - self.high).argmax())


def over_seeds(values: Sequence[Tensor | float] | Tensor, comparisons: int | None = None) -> Interval:
    """The means over the first axis, one entry a seed, with Student's intervals.

    Many numbers share the chance of a miss (Bonferroni): `comparisons` of them, where there are more than these.
    """
    stacked = torch.stack([torch.as_tensor(value, dtype=torch.float64) for value in values])
    seeds, comparisons = len(stacked), comparisons or max(1, stacked[0].numel())
    refuse_if(seeds < 2, f"A confidence interval needs at least 2 seeds, got {seeds}.")
    quantile = scipy.stats.t.ppf(1 - LEVEL / (2 * comparisons), seeds - 1)
    return Interval(stacked.mean(0), quantile * stacked.std(0) / seeds**0.5)


def over_trials(held: Sequence[bool] | Tensor) -> Interval:
    """The share of independent trials in which something held, with the interval of Clopper and Pearson.

    Its longer side on both sides: unlike Student's it has a width also where all trials agree.
    """
    outcomes = torch.as_tensor(held, dtype=torch.float64)
    count, trials = int(outcomes.sum()), len(outcomes)
    refuse_if(trials < 2, f"A confidence interval needs at least 2 trials, got {trials}.")
    low = scipy.stats.beta.ppf(LEVEL / 2, count, trials - count + 1) if count else 0.0
    high = scipy.stats.beta.ppf(1 - LEVEL / 2, count + 1, trials - count) if count < trials else 1.0
    share = outcomes.mean()
    return Interval(share, torch.maximum(high - share, share - low))


def exactly(values: Tensor | Sequence[float] | float) -> Interval:
    """Numbers without uncertainty: closed forms, which no seed moves."""
    known = torch.as_tensor(values, dtype=torch.float64)
    return Interval(known, torch.zeros_like(known))


def decide(found: Interval, printed: Band, explanation: str) -> Judgement:
    """Reproduced if the interval lies inside the printed band, else undecided unless it lies outside.

    There it is the opposite where a sign was printed and all numbers have the other one, and differs elsewhere.
    """
    outside: Word = "opposite" if printed.opposed_by(found) else "differs"
    return _judged("reproduced" if printed.holds(found) else outside, found, printed, explanation)


def decide_correction(printed: tuple[Interval, Band], corrected: tuple[Interval, Band], explanation: str) -> Judgement:
    """Corrected if the printed statement is rejected and the corrected one, whose number is reported, holds.

    Each is what was found and what is stated of it; the explanation has both statements. A corrected statement about
    the same numbers that only bounds them on one side says no more than the contrary: that is the opposite.
    """
    as_printed, printed_band = printed
    if not printed_band.rejects(as_printed):
        return _judged("reproduced", as_printed, printed_band, explanation)
    as_corrected, corrected_band = corrected
    right: Word = "opposite" if as_corrected is as_printed and corrected_band.is_one_sided else "corrected"
    return _judged(
        right if corrected_band.holds(as_corrected) else "differs", as_corrected, corrected_band, explanation
    )


def _judged(verdict: Word, found: Interval, band: Band, explanation: str) -> Judgement:
    """The verdict with its number; an interval that is neither inside nor outside of the band decides nothing."""
    if not band.holds(found) and not band.rejects(found):
        verdict, explanation = "not attempted", f"{explanation} {UNDECIDED}"
    index = band.worst(found)
    value, half_width = float(found.value.flatten()[index]), float(found.half_width.flatten()[index])
    return Judgement(verdict, value, half_width, band.tolerance, explanation)


def slope(x: Sequence[float | int], y: Tensor) -> Tensor:
    """The least-squares slope of each row of `y` over `x`."""
    centred = torch.tensor(x, dtype=torch.float64)
    centred = centred - centred.mean()
    return y.double() @ centred / centred.square().sum()


def exponent(x: Sequence[float | int], y: Tensor) -> Tensor:
    """The power of `x` that each row of `y` follows: its slope on logarithmic axes."""
    return slope([math.log(place) for place in x], y.log())


class ReplicateSettings(Settings):
    """Settings of a run that is repeated; subclasses add what is measured."""

    replicate: int = option(0, "which repetition")
    seed: int = option(0, "names every draw")

    def stream(self) -> torch.Generator:
        """Where all draws of this run come from: its settings name the stream."""
        return Randomness(self.seed).child(self.key()).torch()

    def shared_stream(self, name: str) -> torch.Generator:
        """Where the draws called `name` come from that all runs of this replicate share, such as those of the data."""
        return Randomness(self.seed).child(name, self.replicate).torch()


R = TypeVar("R", bound=ReplicateSettings)

# a function at the top of a module, which takes settings and returns tensors by name; or how it is called
Measure = Callable[[Any], Any] | str
Places = Sequence[float | int] | Tensor
Words = tuple[str, str]
Readings = Sequence[Measurement]  # what the runs of an item gave, in their order


def replicated(
    measure: Callable[[R], Any] | str,
    base: R,
    replicates: int,
    seed: int,
    cost: Callable[[R], float] | float | int = 1.0,
    **axes: Iterable[Any],
) -> list[Run]:
    """One run for each combination of the axes and each replicate; replicates of one setting are neighbours.

    All are like `base` but for the axes, values of settings by name; `cost` is the expected time in any unit.
    """
    combinations = grid(base, **axes, replicate=range(replicates), seed=(seed,))
    return [Run(import_name(measure), one, cost=cost(one) if callable(cost) else cost) for one in combinations]


def import_name(measure: Measure) -> str:
    """``"package.module:function"``, by which workers find a measure; a string is one already."""
    return measure if isinstance(measure, str) else f"{measure.__module__}:{measure.__name__}"


def chosen(readings: Readings, measure: Measure = "", **settings: Any) -> list[Measurement]:
    """The readings of `measure` (or of the function called so) whose settings have these values, in their order."""
    name = measure if isinstance(measure, str) else measure.__name__
    found = []
    for reading in readings:
        own = reading.provenance.settings
        fits = all(setting in own and own[setting] == value for setting, value in settings.items())
        if fits and name in ("", _measured_by(reading)):
            found.append(reading)
    refuse_if(not found, f"No run of {name or 'any measure'} has {settings}; the item's runs lack it.")
    return found


def stacked(readings: Readings, array: str, measure: Measure = "", **settings: Any) -> Tensor:
    """An array of the chosen readings, one row a run."""
    return torch.stack([reading[array] for reading in chosen(readings, measure, **settings)])


def values(readings: Readings, name: str, measure: Measure = "", **settings: Any) -> list[Any]:
    """The different values of a setting among the chosen readings, in order."""
    return sorted({reading.setting(name) for reading in chosen(readings, measure, **settings)})


def against(
    readings: Readings, array: str, axis: str, measure: Measure = "", **settings: Any
) -> tuple[list[Any], Tensor]:
    """The values of the setting called `axis`, and an array against them: (runs of one value, values, …)."""
    places = values(readings, axis, measure, **settings)
    columns = [stacked(readings, array, measure, **settings, **{axis: place}) for place in places]
    return places, torch.stack(columns, dim=1)


def whole(readings: Readings, *axes: str) -> list[Measurement]:
    """The readings of those replicates that all combinations of the axes have, after those with fewer than two."""
    by_place: dict[tuple[Any, ...], set[int]] = {}
    for reading in readings:
        by_place.setdefault(tuple(map(reading.setting, axes)), set()).add(reading.setting("replicate"))
    several = {place: found for place, found in by_place.items() if len(found) > 1}
    shared = set.intersection(*several.values()) if several else set()
    return [r for r in readings if r.setting("replicate") in shared and tuple(map(r.setting, axes)) in several]


def entries(reading: Measurement) -> list[dict[str, Any]]:
    """A row for each place along the first axis that all arrays of the reading share; single numbers are repeated.

    Further axes become columns with numbers.
    """
    length = max([len(array) for array in reading.arrays.values() if array.dim()], default=1)
    columns: dict[str, list[Any]] = {}
    for name, array in reading.arrays.items():
        if array.dim() < 2:
            columns[name] = array.tolist() if array.dim() else [array.item()] * length
        else:
            further = array.flatten(1).unbind(1)
            columns |= {f"{name}_{place}": column.tolist() for place, column in enumerate(further)}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def raw_tables(
    readings: Readings, rows: Callable[[Measurement], Iterable[Mapping[str, Any]]] = entries
) -> tuple[Table, ...]:
    """One table for each measure that the item uses; `rows` gives those of one reading, without its settings."""
    by_measure: dict[str, list[dict[str, Any]]] = {}
    for reading in readings:
        table = by_measure.setdefault(_measured_by(reading), [])
        table += [{**reading.provenance.settings, "index": index, **row} for index, row in enumerate(rows(reading))]
    return tuple(Table(name, tuple(table)) for name, table in by_measure.items())


def _measured_by(reading: Measurement) -> str:
    return reading.name.rpartition(":")[2]


def curve(
    x: Places, values: Float[Tensor, "replicates places"], name: str, number: int, dashed: bool = False
) -> tuple[FigureBand, Line]:
    """The marks of the number-th series, mean and standard deviation; what a replicate did not reach is NaN."""
    mean = values.nanmean(0)
    reached = torch.isfinite(values).sum(0)
    spread = ((values - mean).square().nansum(0) / (reached - 1).clamp(min=1)).sqrt()
    shade = colour(number)
    band = FigureBand(numbers(x), numbers(mean - spread), numbers(mean + spread), colour=shade)
    return band, Line(numbers(x), numbers(mean), name, dashed=dashed, colour=shade)


def curves(series: Iterable[tuple[Places, Tensor, str]]) -> list[Mark]:
    """The marks of several series, each given by its places, its values and its name, in colours of their own."""
    return [mark for number, one in enumerate(series) for mark in curve(*one, number)]


def mean_points(x: Places, values: Float[Tensor, "replicates places"], name: str) -> Points:
    """Means over the replicates with their standard errors."""
    found = estimate(values)
    return Points(numbers(x), numbers(found.value), name, numbers(found.standard_error))


def figure(words: Words, caption: str, labels: Words, marks: Iterable[Mark], log: str = "") -> Figure:
    """A figure with its name and title, the labels of its axes x and y, and those of them that are logarithmic."""
    return Figure(*words, caption, *labels, tuple(marks), x_log="x" in log, y_log="y" in log)
