"""The raw numbers of an item: one table a measure, its rows with the settings of their run."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from skiplens.core.axes import Tensor
from skiplens.readings import Measurement
from skiplens.studies.study import Table

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
