"""Quantities of all runs at the same losses."""

import math
from collections.abc import Mapping, Sequence

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.readings import Measurement
from skiplens.studies.selection import chosen
from skiplens.studies.statistics import Interval, over_seeds


def by_loss(readings: Sequence[Measurement], family: str, quantity: str) -> dict[float, Float[Tensor, " replicates"]]:
    """The quantity of the runs of this family at each loss, descending; there are more runs at some losses."""
    columns: dict[float, list[Tensor]] = {}
    for reading in chosen(readings, "spectra_at_losses", family=family):
        for loss, value in zip(reading["loss"].tolist(), reading[quantity], strict=True):
            columns.setdefault(loss, []).append(value)
    return {loss: torch.stack(columns[loss]).double() for loss in sorted(columns, reverse=True)}


def at_losses(
    readings: Sequence[Measurement], family: str, quantity: str
) -> tuple[list[float], Float[Tensor, "replicates losses"]]:
    """The losses, and the quantity (replicates, losses); NaN where there are fewer replicates."""
    columns = by_loss(readings, family, quantity)
    rows = max(len(column) for column in columns.values())
    padded = [torch.nn.functional.pad(column, (0, rows - len(column)), value=math.nan) for column in columns.values()]
    return list(columns), torch.stack(padded, dim=1)


def arrived(numbers: Float[Tensor, " replicates"]) -> Float[Tensor, " arrived"]:
    """The numbers of the runs that came to the losses in question; the others have NaN."""
    return numbers[numbers.isfinite()]


def over_losses(columns: Mapping[float, Tensor]) -> Interval:
    """Intervals of the means at each loss, holding together; each loss has its own number of runs."""
    found = [over_seeds(column, comparisons=len(columns)) for column in columns.values()]
    return Interval(torch.stack([one.value for one in found]), torch.stack([one.half_width for one in found]))
