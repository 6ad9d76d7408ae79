"""Measurements along a training run: at chosen steps, and where the loss first falls to chosen values."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from skiplens.base import InvalidInputError, Progress, silent
from skiplens.base.axes import Float, Int
from skiplens.graph.inputs import copy_of
from skiplens.plots.figure import Band, Figure, Points, numbers
from skiplens.plots.section import ReadingView
from skiplens.readings.reading import Reading
from skiplens.report.during_training.measurer import MeasureAlong, Measurer, Taken
from skiplens.training import Checkpoint, Recipe, TrainingHistory, train


@dataclass(frozen=True)
class AlongTraining:
    """A training run and what was measured on its way."""

    history: TrainingHistory
    taken: dict[int, Taken]  # by step
    crossings: dict[float, tuple[int, int]]  # by loss, the step before it was reached and the step at which it was

    def at_steps(self) -> list[Taken]:
        """All measurements in the order of their steps."""
        return [self.taken[step] for step in sorted(self.taken)]


def readings_along(
    model: nn.Module,
    data: Any,
    recipe: Recipe,
    measurement: MeasureAlong,
    *,
    checkpoint: Checkpoint | Path | str | None = None,
    progress: Progress = silent,
) -> AlongTraining:
    """Train a copy of `model` and return what was measured on the way; `model` itself stays as it is.

    Args:
        model: Where the run starts.
        data: As for `train`.
        recipe: How to train.
        measurement: What to measure and when.
        checkpoint: File to keep the run and its measurements in; the run goes on from it where it exists.
        progress: Told the steps made.
    """
    fresh, measurer = copy_of(model, "a copy is trained"), Measurer(measurement)
    history = train(fresh, data, recipe, callbacks=[measurer], checkpoint=checkpoint, progress=progress)
    return AlongTraining(history, dict(measurer.taken), dict(measurer.crossings))


Quantity = str | Callable[[Any], float]  # the name of an entry or attribute of what was measured, or a function of it


class QuantityAlong(Reading, kind="along"):
    """What several runs measured of the quantity `name` at the same places of their ways."""

    name: str
    along: str  # what counts the places: "loss" (where it is first reached) or "step" (updates made)
    places: Float[Tensor, " places"]  # losses in descending, or steps in ascending order
    by_run: Float[Tensor, "runs places"]  # NaN where the run never came to that place

    @property
    def runs(self) -> Int[Tensor, " places"]:
        """How many runs reached each place."""
        return (~self.by_run.isnan()).sum(0)

    @property
    def mean(self) -> Float[Tensor, " places"]:
        """The mean over the runs that reached the place; NaN where none did."""
        return self.by_run.nanmean(0)

    @property
    def standard_error(self) -> Float[Tensor, " places"]:
        """The standard error of that mean; NaN where fewer than two runs reached the place."""
        squares = (self.by_run - self.mean).square().nansum(0)
        several = torch.where(self.runs > 1, self.runs, math.nan)
        return (squares / (several - 1) / several).sqrt()

    @property
    def lowest(self) -> Float[Tensor, " places"]:
        """The smallest value of any run; NaN where none reached the place."""
        return self.by_run.nan_to_num(math.inf, math.inf, -math.inf).amin(0).where(self.runs > 0, math.nan)

    @property
    def highest(self) -> Float[Tensor, " places"]:
        """The largest value of any run; NaN where none reached the place."""
        return self.by_run.nan_to_num(-math.inf, math.inf, -math.inf).amax(0).where(self.runs > 0, math.nan)


def at_losses(runs: Sequence[AlongTraining], quantity: Quantity, name: str = "") -> QuantityAlong:
    """The quantity of every run at each loss that was asked for, as figures 5 and 6 of 'Demystifying ResNet' have it.

    Where a run's loss falls from a to b past the wanted loss, the quantity is interpolated linearly in the loss
    between the measurements at a and at b.

    Args:
        runs: Runs measured at losses; a loss that a run never came to from above is NaN for that run.
        quantity: What to take from each measurement; ``"value"`` takes a measurement that is a number as it is.
        name: How to call the quantity; the words of `quantity` if not given.
    """
    losses = sorted({loss for run in runs for loss in run.crossings}, reverse=True)
    return _gathered(runs, losses, quantity, name, along="loss")


def at_steps(runs: Sequence[AlongTraining], quantity: Quantity, name: str = "") -> QuantityAlong:
    """The quantity of every run after each number of steps at which any of them was measured.

    Args:
        runs: Runs measured at steps; a step at which a run was not measured is NaN for that run.
        quantity: What to take from each measurement; ``"value"`` takes a measurement that is a number as it is.
        name: How to call the quantity; the words of `quantity` if not given.
    """
    steps = sorted({step for run in runs for step in run.taken})
    return _gathered(runs, steps, quantity, name, along="step")


def _gathered(
    runs: Sequence[AlongTraining], places: Sequence[float], quantity: Quantity, name: str, along: str
) -> QuantityAlong:
    if not runs:
        raise InvalidInputError("There are no runs to take a quantity from; hand over at least one.")
    if not places:
        raise InvalidInputError(
            f"None of the runs was measured at any {along}: ask for steps that the runs make, or for losses between "
            "their first and their last loss."
        )

    def value(run: AlongTraining, place: float) -> float:
        if along == "loss":
            return _interpolated(run, place, quantity)
        return _number(run.taken[int(place)].value, quantity) if place in run.taken else math.nan

    return QuantityAlong(
        name=name or (quantity if isinstance(quantity, str) else getattr(quantity, "__name__", "quantity")),
        along=along,
        places=torch.tensor(places, dtype=torch.float64),
        by_run=torch.tensor([[value(run, place) for place in places] for run in runs], dtype=torch.float64),
    )


def _interpolated(run: AlongTraining, loss: float, quantity: Quantity) -> float:
    if loss not in run.crossings:
        return math.nan
    before, after = (run.taken[step] for step in run.crossings[loss])
    share = 1.0 if before.step == after.step else (before.loss - loss) / (before.loss - after.loss)
    first, last = _number(before.value, quantity), _number(after.value, quantity)
    return last if share == 1 else first + share * (last - first)


def _number(value: Any, quantity: Quantity) -> float:
    if callable(quantity):
        return float(quantity(value))
    own = value.get(quantity) if isinstance(value, Mapping) else getattr(value, quantity, None)
    found = value if quantity == "value" and _is_number(value) else own
    if found is None or not _is_number(found):
        raise InvalidInputError(
            f"{quantity!r} is no number of a measurement of type {type(value).__name__}; "
            "name one of its numbers, or give a function that takes one from it."
        )
    return float(found)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) or (isinstance(value, torch.Tensor) and value.numel() == 1)


_WIDE_RANGE = 30.0  # quantities that span more are drawn on a logarithmic axis


def quantity_along(reading: QuantityAlong) -> Figure:
    """The mean over runs with its standard error, over the range of all runs."""
    figure = quantities_along({"mean of the runs": reading})
    if len(reading.by_run) < 2:
        return figure
    band = Band(numbers(reading.places), numbers(reading.lowest), numbers(reading.highest), "all runs")
    return replace(figure, marks=(*figure.marks, band))


def quantities_along(readings: Mapping[str, QuantityAlong]) -> Figure:
    """One quantity of several networks, each by its name: means over runs with standard errors."""
    first = next(iter(readings.values()))
    values = torch.cat([reading.by_run.flatten() for reading in readings.values()])
    finite, marks = values[values.isfinite()], []
    for name, reading in readings.items():
        error = reading.standard_error.nan_to_num(0.0)
        bars = numbers(error) if bool((error > 0).any()) else ()
        marks.append(Points(numbers(reading.places), numbers(reading.mean), name, error=bars))
    x_label, where = {
        "loss": ("training loss", "where the training loss first falls to each value, interpolated along each run"),
        "step": ("step", "after each number of steps"),
    }[first.along]
    name, title = f"{first.name}_by_{first.along}", f"{first.name[:1].upper()}{first.name[1:]} along training"
    caption = f"The {first.name} {where}; points are means over runs, bars their standard errors."
    wide = len(finite) > 0 and 0 < _WIDE_RANGE * float(finite.min()) < float(finite.max())
    return Figure(name.replace(" ", "_"), title, caption, x_label, first.name, tuple(marks), y_log=wide)


VIEW = ReadingView(QuantityAlong, figures=(quantity_along,))
