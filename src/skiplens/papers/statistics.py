"""Verdicts from confidence intervals over seeds: one lucky seed decides nothing."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import scipy.stats
import torch
from torch import Tensor

from skiplens.base.axes import Float
from skiplens.base.errors import InvalidInputError
from skiplens.base.randomness import Randomness
from skiplens.base.settings import Settings, option
from skiplens.papers.study import Judgement, Table
from skiplens.plots.figure import Band as figure_Band
from skiplens.plots.figure import Line, colour, numbers
from skiplens.readings.reading import Measurement
from skiplens.sweeps.run import Run
from skiplens.sweeps.sweep import grid

LEVEL = 1e-4
"""The chance that an interval misses the truth; small, because a study has dozens of claims and any seed must agree."""

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

    def worst(self, found: Interval) -> int:
        """The index of the interval that reaches farthest out, or least far in."""
        return int(torch.maximum(self.low - found.low, found.high - self.high).argmax())


def over_seeds(values: Sequence[Tensor | float] | Tensor, comparisons: int | None = None) -> Interval:
    """The means over the first axis with Student's intervals; many numbers share the chance of a miss (Bonferroni).

    Args:
        values: One entry a seed.
        comparisons: How many numbers share that chance, where there are more than these.
    """
    stacked = torch.stack([torch.as_tensor(value, dtype=torch.float64) for value in values])
    seeds, comparisons = len(stacked), comparisons or max(1, stacked[0].numel())
    if seeds < 2:
        raise InvalidInputError(f"A confidence interval needs at least 2 seeds, got {seeds}.")
    quantile = scipy.stats.t.ppf(1 - LEVEL / (2 * comparisons), seeds - 1)
    return Interval(stacked.mean(0), quantile * stacked.std(0) / seeds**0.5)


def exactly(values: Tensor | Sequence[float] | float) -> Interval:
    """Numbers without uncertainty: closed forms, which no seed moves."""
    known = torch.as_tensor(values, dtype=torch.float64)
    return Interval(known, torch.zeros_like(known))


def decide(found: Interval, printed: Band, explanation: str) -> Judgement:
    """Reproduced if the interval lies inside the printed band, differs if outside, else undecided."""
    if printed.holds(found):
        return _judged("reproduced", found, printed, explanation)
    if printed.rejects(found):
        return _judged("differs", found, printed, explanation)
    return _judged("not attempted", found, printed, f"{explanation} {UNDECIDED}")


def decide_correction(printed: tuple[Interval, Band], corrected: tuple[Interval, Band], explanation: str) -> Judgement:
    """Corrected if the printed statement is rejected and the corrected one holds.

    Args:
        printed: What was found, and what the paper prints for it.
        corrected: What was found, and what is right for it; the number that is reported.
        explanation: What was compared, with both statements.
    """
    (as_printed, printed_band), (as_corrected, corrected_band) = printed, corrected
    if printed_band.holds(as_printed):
        return _judged("reproduced", as_printed, printed_band, explanation)
    if not printed_band.rejects(as_printed):
        return _judged("not attempted", as_printed, printed_band, f"{explanation} {UNDECIDED}")
    if corrected_band.holds(as_corrected):
        return _judged("corrected", as_corrected, corrected_band, explanation)
    if corrected_band.rejects(as_corrected):
        return _judged("differs", as_corrected, corrected_band, explanation)
    return _judged("not attempted", as_corrected, corrected_band, f"{explanation} {UNDECIDED}")


def slope(x: Sequence[float], y: Tensor) -> Tensor:
    """The least-squares slope of each row of `y` over `x`."""
    centred = torch.tensor(x, dtype=torch.float64)
    centred = centred - centred.mean()
    return y.double() @ centred / centred.square().sum()


def _judged(verdict: str, found: Interval, band: Band, explanation: str) -> Judgement:
    index = band.worst(found)
    value, half_width = float(found.value.flatten()[index]), float(found.half_width.flatten()[index])
    return Judgement(verdict, value, half_width, band.tolerance, explanation)  # type: ignore[arg-type]  # one of Word


@dataclass(frozen=True)
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


def replicated(
    measure: str,
    base: R,
    replicates: int,
    seed: int,
    cost: Callable[[R], float] = lambda settings: 1.0,
    **axes: Iterable[Any],
) -> list[Run]:
    """One run for each combination of the axes and each replicate; replicates of one setting are neighbours.

    Args:
        measure: ``"package.module:function"``.
        base: What all runs share.
        replicates: How many of each.
        seed: Of the whole study.
        cost: Expected time of a run, in any unit.
        axes: Values of settings, by name.
    """
    combinations = grid(base, **axes, replicate=range(replicates), seed=(seed,))
    return [Run(measure, settings, cost=cost(settings)) for settings in combinations]


def chosen(readings: Sequence[Measurement], measure: str = "", **settings: Any) -> list[Measurement]:
    """The readings of the function called `measure` whose settings have the given values, in the order of the runs."""
    found = [reading for reading in readings if _fits(reading, measure, settings)]
    if not found:
        raise InvalidInputError(f"No run of {measure or 'any measure'} has {settings}; the item's runs lack it.")
    return found


def stacked(readings: Sequence[Measurement], array: str, measure: str = "", **settings: Any) -> Tensor:
    """An array of the chosen readings, one row a run."""
    return torch.stack([reading[array] for reading in chosen(readings, measure, **settings)])


def values(readings: Sequence[Measurement], name: str, measure: str = "", **settings: Any) -> list[Any]:
    """The different values of a setting among the chosen readings, in order."""
    return sorted({reading.setting(name) for reading in chosen(readings, measure, **settings)})


def against(
    readings: Sequence[Measurement], array: str, axis: str, measure: str = "", **settings: Any
) -> tuple[list[Any], Tensor]:
    """The values of the setting called `axis`, and an array against them: (runs of one value, values, …)."""
    places = values(readings, axis, measure, **settings)
    columns = [stacked(readings, array, measure, **settings, **{axis: place}) for place in places]
    return places, torch.stack(columns, dim=1)


def _fits(reading: Measurement, measure: str, settings: dict[str, Any]) -> bool:
    own = reading.provenance.settings
    named = not measure or reading.name.rpartition(":")[2] == measure
    return named and all(name in own and own[name] == value for name, value in settings.items())


Rows = Callable[[Measurement], Iterable[Mapping[str, Any]]]


def entries(reading: Measurement) -> list[dict[str, Any]]:
    """A row for each place along the first axis that all arrays of the reading share; single numbers are repeated.

    Further axes become columns with numbers.
    """
    length = max([len(array) for array in reading.arrays.values() if array.dim()], default=1)
    columns = {
        column: values for name, array in reading.arrays.items() for column, values in _columns(name, array, length)
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def raw_tables(readings: Sequence[Measurement], rows: Rows = entries) -> tuple[Table, ...]:
    """One table for each measure that the item uses.

    Args:
        readings: Of the item's runs.
        rows: The rows of one reading, without its settings.
    """
    measures = dict.fromkeys(_measure(reading) for reading in readings)
    return tuple(
        Table(name, tuple(row for reading in readings if _measure(reading) == name for row in _placed(reading, rows)))
        for name in measures
    )


def _placed(reading: Measurement, rows: Rows) -> list[dict[str, Any]]:
    settings = reading.provenance.settings
    return [{**settings, "index": index, **row} for index, row in enumerate(rows(reading))]


def _measure(reading: Measurement) -> str:
    return reading.name.rpartition(":")[2]


def _columns(name: str, array: Tensor, length: int) -> list[tuple[str, list[Any]]]:
    if not array.dim():
        return [(name, [array.item()] * length)]
    if array.dim() == 1:
        return [(name, array.tolist())]
    return [(f"{name}_{place}", column.tolist()) for place, column in enumerate(array.flatten(1).unbind(1))]


def curve(
    x: Sequence[float] | Tensor,
    values: Float[Tensor, "replicates places"],
    name: str,
    number: int,
    dashed: bool = False,
) -> tuple[figure_Band, Line]:
    """The marks of the number-th series; a place that a replicate did not reach (NaN) counts for the others.

    Args:
        x: The places.
        values: One row a replicate.
        name: In the legend.
        number: Chooses the colour.
        dashed: How the line is drawn.
    """
    mean = values.nanmean(0)
    reached = torch.isfinite(values).sum(0)
    spread = ((values - mean).square().nansum(0) / (reached - 1).clamp(min=1)).sqrt()
    shade = colour(number)
    band = figure_Band(numbers(x), numbers(mean - spread), numbers(mean + spread), colour=shade)
    return band, Line(numbers(x), numbers(mean), name, dashed=dashed, colour=shade)
