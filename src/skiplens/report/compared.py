"""Readings of several models beside each other: their curves in one figure, their numbers with tests."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from skiplens.base.axes import Float
from skiplens.base.words import in_words, plus_minus
from skiplens.graph.inputs import first_line
from skiplens.plots.figure import REFERENCE_COLOUR, Figure, Line, Mark, Points, Reference, bundle, colour
from skiplens.plots.figure import numbers as as_values
from skiplens.plots.section import Curve, KeyNumber, Overlay
from skiplens.readings.reading import Reading
from skiplens.report.inspection import Report
from skiplens.report.lenses import key_numbers, overlays_of


@dataclass(frozen=True)
class ComparedModel:
    """A name and the reports of all draws; `note` says why there is only one where there is only one."""

    name: str
    reports: tuple[Report, ...]
    note: str = ""

    def readings(self, kind: type[Reading]) -> tuple[Reading, ...]:
        """The readings of that kind, one of each draw where it could be taken."""
        taken = (report.reading(kind) for report in self.reports)
        return tuple(reading for reading in taken if reading is not None)

    def values(self, kind: type[Reading], number: KeyNumber) -> Tensor:
        """One number over all draws."""
        found = [entry for reading in self.readings(kind) for entry in _numbers(reading)[0]]
        return torch.tensor([entry.value for entry in found if entry.label == number.label], dtype=torch.float64)

    def not_compared(self, kind: type[Reading]) -> tuple[str, ...]:
        """Why the numbers of readings of that kind could not be taken, where they could not."""
        return tuple(why for reading in self.readings(kind) if (why := _numbers(reading)[1]))


def _numbers(reading: Reading) -> tuple[tuple[KeyNumber, ...], str]:
    """The key numbers of a reading, or none and why; a reading that has none must not end a comparison."""
    try:
        return key_numbers(reading), ""
    except Exception as error:
        return (), f"{type(error).__name__}: {first_line(error)}"


def overlays(contenders: Sequence[ComparedModel], kind: type[Reading]) -> tuple[Figure, ...]:
    """The figures of all models for one kind of reading."""
    draws = "Lines are means over draws of the weights, shaded areas reach from the lowest to the highest draw."
    figures = []
    for overlay in overlays_of(kind):
        marks: list[Mark] = []
        for index, contender in enumerate(contenders):
            found = [_curve(overlay, reading) for reading in contender.readings(kind)]
            curves = [curve for curve in found if curve is not None]
            curves = [curve for curve in curves if len(curve.x) == len(curves[0].x)]
            if curves:
                heights = torch.stack([curve.y.double() for curve in curves])
                marks += bundle(curves[0].x, heights, contender.name, index, overlay.y_log)
        if marks:
            alone = [contender.name for contender in contenders if contender.readings(kind)]
            title = f"{overlay.title}, {alone[0]}" if len(alone) == 1 else overlay.title
            words = (overlay.name, title, f"{overlay.caption} {draws}", *overlay.labels)
            figures.append(Figure(*words, marks=tuple(marks), y_log=overlay.y_log))
    return tuple(figures)


def _curve(overlay: Overlay, reading: Reading) -> Curve | None:
    try:
        return overlay.curve(reading)
    except Exception:  # one curve less; the section of the reading tells what is wrong with it
        return None


@dataclass(frozen=True)
class Measured:
    """A number of all models."""

    kind: str  # of the reading that it comes from
    label: str
    values: tuple[Tensor, ...]  # for each model one value a draw
    exact: bool  # whether it does not depend on how weights are drawn
    p_values: tuple[float, ...]  # of each model but the first against the first; NaN where nothing was tested
    adjusted: tuple[float, ...] = ()  # the same after Holm's correction for all numbers of the comparison
    effects: tuple[tuple[float, float], ...] = ()  # differences of means and half their 95 % intervals, as `effect`

    def verdict(self, index: int) -> str:
        """How model `index` differs from the first: higher, lower, same, unclear, seed noise or not tested."""
        first, other, p = self.values[0], self.values[index], self.adjusted[index - 1]
        if is_certain(first, other) or (self.exact and len(first) and len(other)):
            return "same" if first[0] == other[0] else _direction(first, other)
        if math.isnan(p):
            return "not tested"
        if p < LEVEL:
            return _direction(first, other)
        return "unclear" if self.p_values[index - 1] < LEVEL else "seed noise"

    @property
    def verdicts(self) -> list[str]:
        """How each model but the first differs from the first."""
        return [self.verdict(index) for index in range(1, len(self.values))]

    @property
    def tested(self) -> bool:
        """Whether any model could be compared with the first."""
        return any(verdict != "not tested" for verdict in self.verdicts)

    def row(self, names: Sequence[str]) -> Mapping[str, Any]:
        """The row of a table."""
        cells = {name: mean_and_spread(values) for name, values in zip(names, self.values, strict=True)}
        for name, verdict, p in zip(names[1:], self.verdicts, self.adjusted, strict=True):
            column = "difference" if len(names) == 2 else f"difference, {name}"
            cells[column] = f"{verdict}{'' if math.isnan(p) else f', p = {in_words(p, 2)}'}"
        return {"number": self.label, **cells}

    def to_json(self, names: Sequence[str]) -> dict[str, Any]:
        """In words that JSON has."""
        against = [
            {"model": name, "verdict": verdict, "p": _plain(p), "p_holm": _plain(holm)}
            for name, verdict, p, holm in zip(names[1:], self.verdicts, self.p_values, self.adjusted, strict=True)
        ]
        values = {name: [_plain(v) for v in entry.tolist()] for name, entry in zip(names, self.values, strict=True)}
        return {"kind": self.kind, "number": self.label, "values": values, "against_first": against}


def measure(contenders: Sequence[ComparedModel], kinds: Sequence[type[Reading]]) -> tuple[Measured, ...]:
    """Every key number of these kinds of readings, tested, in order."""
    rows = []
    for kind in kinds:
        first = [reading for contender in contenders for reading in contender.readings(kind)[:1]]
        labelled = {number.label: number for reading in first for number in _numbers(reading)[0]}
        for number in labelled.values():
            values = tuple(contender.values(kind, number) for contender in contenders)
            scaled = [torch.where(v > 0, v, math.nan).log() for v in values] if number.logarithmic else values
            p_values = tuple(p_value(scaled[0], other) for other in scaled[1:])
            effects = tuple(effect(scaled[0], other) for other in scaled[1:])
            rows.append(Measured(kind.kind, number.label, values, number.exact, p_values, effects=effects))
    corrected = iter(adjusted([p for row in rows for p in row.p_values]))
    return tuple(replace(row, adjusted=tuple(next(corrected) for _ in row.p_values)) for row in rows)


def mean_and_spread(values: Tensor) -> str:
    """Mean ± standard deviation over draws; the number alone where there is one draw or no spread."""
    if not len(values):
        return "–"
    return plus_minus(float(values.mean()), float(values.std()) if len(values) > 1 else 0.0)


def _direction(first: Tensor, other: Tensor) -> str:
    return "higher" if other.mean() > first.mean() else "lower"


def _plain(value: float) -> float | str | None:
    if math.isnan(value):
        return None
    return value if math.isfinite(value) else str(value)


LEVEL = 0.05  # the chance that any of the differences that a comparison tells is none (Holm)


def p_value(left: Float[Tensor, " draws"], right: Float[Tensor, " other_draws"]) -> float:
    """Two-sided p-value of 'both have the same mean'; NaN where it cannot be tested.

    Welch's t-test for draws of both. One draw against several: whether it may be one more of them (Student's
    prediction interval). Numbers that do not vary from draw to draw need no test.
    """
    if min(len(left), len(right)) < 1 or len(left) == len(right) == 1 or is_certain(left, right):
        return math.nan
    if not bool(torch.cat([left, right]).isfinite().all()):
        return math.nan
    from scipy import stats  # it takes longer to load than all of Skiplens

    error, freedom = _noise(left, right)
    return float(2 * stats.t.sf(abs(float(left.mean() - right.mean())) / error, freedom))


def effect(left: Float[Tensor, " draws"], right: Float[Tensor, " other_draws"]) -> tuple[float, float]:
    """The difference of the means and half its 95 % interval, in standard deviations over draws; NaN if not tested."""
    if math.isnan(p_value(left, right)):
        return math.nan, math.nan
    from scipy import stats

    error, freedom = _noise(left, right)
    spread = math.sqrt(
        sum(float(v.var()) for v in (left, right) if len(v) > 1) / sum(len(v) > 1 for v in (left, right))
    )
    return float(right.mean() - left.mean()) / spread, float(stats.t.ppf(0.975, freedom)) * error / spread


EDGE = 10.0  # standard deviations; what differs by more is drawn there


def all_numbers(numbers: Sequence[Measured], names: Sequence[str]) -> Figure | None:
    """Every number that was tested as a dot with its interval, one row each."""
    shown = [number for number in numbers if any(not math.isnan(mean) for mean, _ in number.effects)]
    if not shown:
        return None
    shown.sort(key=lambda number: {"higher", "lower"}.isdisjoint(number.verdicts))  # what differs comes first
    marks: list[Mark] = [Reference(0.0, axis="x")]
    for index, name in enumerate(names[1:]):
        rows = [(place + 0.2 * index, *number.effects[index], number) for place, number in enumerate(shown)]
        noise = [row for row in rows if row[-1].verdict(index + 1) in ("seed noise", "unclear")]
        several = f"{name}: " * (len(names) > 2)
        marks += _dots([row for row in rows if row not in noise], index, f"{several}differs", colour(index + 1))
        marks += _dots(noise, index, f"{several}seed noise or unclear", REFERENCE_COLOUR)
    return Figure(
        name="all_numbers",
        title=f"All numbers against {names[0]}",
        caption="Dots are differences of means and lines their 95 % intervals, grey where they are seed noise, each in "
        f"standard deviations over draws of the weights; what is beyond {EDGE:g} is drawn at the edge. A grey line "
        f"that misses zero is unclear: among {len(shown)} numbers one such may be chance.",
        x_label=f"difference from {names[0]}, in standard deviations over draws",
        y_label="",
        marks=tuple(marks),
        y_names=tuple(number.label for number in shown),
    )


def _dots(rows: Sequence[tuple[float, float, float, Measured]], index: int, name: str, shade: str) -> list[Mark]:
    """Differences with their intervals, at (height, mean, half of the interval, number)."""
    if not rows:
        return []
    places = torch.tensor([(mean - half, mean, mean + half, at) for at, mean, half, _ in rows], dtype=torch.float64)
    low, means, high = places[:, :3].clamp(-EDGE, EDGE).T
    heights, gap = places[:, 3], torch.full_like(low, math.nan)  # which parts the lines
    line = Line(as_values(torch.stack([low, high, gap], 1)), as_values(heights.repeat_interleave(3)), colour=shade)
    words = tuple(
        f"{n.label}: {mean_and_spread(n.values[0])} → {mean_and_spread(n.values[index + 1])}, {n.verdict(index + 1)}"
        for *_, n in rows
    )
    return [Points(as_values(means), as_values(heights), name, labels=words, colour=shade), line]


def is_certain(left: Float[Tensor, " draws"], right: Float[Tensor, " other_draws"]) -> bool:
    """Whether draws show that chance has no part in a number: it is the same in all draws of each side."""
    several = max(len(left), len(right)) > 1
    return several and all(len(set(values.tolist())) == 1 for values in (left, right))


def _noise(left: Tensor, right: Tensor) -> tuple[float, float]:
    """The standard error of the difference of two means, and its degrees of freedom (Welch and Satterthwaite)."""
    if min(len(left), len(right)) == 1:
        several = left if len(left) > 1 else right
        return float(several.std()) * math.sqrt(1 + 1 / len(several)), len(several) - 1
    parts = [float(values.var()) / len(values) for values in (left, right)]
    total = sum(parts)
    weighted = sum(part**2 / (len(values) - 1) for part, values in zip(parts, (left, right), strict=True))
    return math.sqrt(total), total**2 / weighted


def adjusted(p_values: Sequence[float]) -> list[float]:
    """Holm's p-values: their order is kept, and the chance that any below the level is chance is below the level."""
    tested = sorted((p, place) for place, p in enumerate(p_values) if not math.isnan(p))
    found, highest = [math.nan] * len(p_values), 0.0
    for rank, (p, place) in enumerate(tested):
        highest = max(highest, min(1.0, p * (len(tested) - rank)))
        found[place] = highest
    return found
