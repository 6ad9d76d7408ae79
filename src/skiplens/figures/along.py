"""Figures of quantities along training runs."""

from collections.abc import Mapping

import torch

from skiplens.figures.figure import Band, Figure, Points, numbers
from skiplens.readings import QuantityAlong

_WIDE_RANGE = 30.0
"""Quantities that span more than this are drawn on a logarithmic axis."""


def quantity_along(reading: QuantityAlong) -> Figure:
    """The mean over runs with its standard error, over the range of all runs."""
    figure = quantities_along({"mean of the runs": reading})
    if len(reading.by_run) < 2:
        return figure
    band = Band(numbers(reading.places), numbers(reading.lowest), numbers(reading.highest), "all runs")
    return Figure(**{**vars(figure), "marks": (*figure.marks, band)})


def quantities_along(readings: Mapping[str, QuantityAlong]) -> Figure:
    """One quantity of several networks, each by its name: means over runs with standard errors."""
    first = next(iter(readings.values()))
    values = torch.cat([reading.by_run.flatten() for reading in readings.values()])
    where = (
        "where the training loss first falls to each value, interpolated along each run"
        if first.along == "loss"
        else "after each number of steps"
    )
    return Figure(
        name=f"{first.name}_by_{first.along}".replace(" ", "_"),
        title=f"{first.name[:1].upper()}{first.name[1:]} along training",
        caption=f"The {first.name} {where}; points are means over runs, bars their standard errors.",
        x_label="training loss" if first.along == "loss" else "step",
        y_label=first.name,
        marks=tuple(_points(reading, name) for name, reading in readings.items()),
        y_log=_spans_widely(values),
    )


def _points(reading: QuantityAlong, name: str) -> Points:
    error = reading.standard_error.nan_to_num(0.0)
    bars = numbers(error) if bool((error > 0).any()) else ()
    return Points(numbers(reading.places), numbers(reading.mean), name, error=bars)


def _spans_widely(values: torch.Tensor) -> bool:
    finite = values[torch.isfinite(values)]
    return len(finite) > 0 and float(finite.min()) > 0 and float(finite.max()) > _WIDE_RANGE * float(finite.min())
