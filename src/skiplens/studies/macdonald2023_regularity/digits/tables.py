"""The raw numbers of figure 2: losses of every trial, statistics of every spectrum."""

from collections.abc import Iterator, Sequence
from typing import Any

from skiplens.core.axes import Tensor
from skiplens.readings import Measurement
from skiplens.studies.macdonald2023_regularity.digits.claims import ZERO, mean_log, median
from skiplens.studies.macdonald2023_regularity.digits.settings import NETWORKS, PRINTED
from skiplens.studies.raw_tables import raw_tables
from skiplens.studies.study import Table


def tables(readings: Sequence[Measurement]) -> tuple[Table, ...]:
    """One table for each measure."""
    return raw_tables(readings, _rows)


def statistics(values: Tensor) -> dict[str, float]:
    """What is reported of every spectrum."""
    return {
        "count": len(values),
        "min": float(values.min()),
        "max": float(values.max()),
        "median": float(median(values)),
        "rms": float(values.double().square().mean().sqrt()),
        "mean_log10": float(mean_log(values)),
        "above_1": float((values > 1).double().mean()),
        "zero": float((values < ZERO).double().mean()),
        "at_1": float(((values - 1).abs() < ZERO).double().mean()),
    }


def _rows(reading: Measurement) -> Iterator[dict[str, Any]]:
    measure = reading.name.rpartition(":")[2]
    if measure == "digit_losses":
        yield from _loss_rows(reading["loss"])
    elif measure == "digit_composites":
        yield from _moment_rows(reading)
    else:
        names = PRINTED[1:] if measure == "digit_starts" else NETWORKS
        for array, spectra in reading.arrays.items():
            for name, values in zip(names, spectra, strict=False):
                yield {"of": array, "network": name, **statistics(values)}


def _loss_rows(losses: Tensor) -> Iterator[dict[str, Any]]:
    for trial, rows in enumerate(losses):
        for name, row in zip(NETWORKS, rows, strict=True):
            yield {"trial": trial, "network": name, **{f"loss_{t}": loss for t, loss in enumerate(row.tolist())}}


def _moment_rows(reading: Measurement) -> Iterator[dict[str, Any]]:
    for name, spectra in zip(PRINTED, reading["values"], strict=True):
        for moment, values in zip(reading.setting("moments"), spectra, strict=True):
            yield {"network": name, "iteration": moment, **statistics(values)}
