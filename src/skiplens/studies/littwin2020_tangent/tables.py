"""The raw numbers of every item: one row a run, or one row a run and angle or matrix."""

from collections.abc import Iterator, Sequence
from typing import Any

from skiplens.core.axes import Tensor
from skiplens.readings import Measurement
from skiplens.studies.study import Table


def tables(readings: Sequence[Measurement]) -> tuple[Table, ...]:
    """One table for each measure that the item uses."""
    measures = dict.fromkeys(reading.name.rpartition(":")[2] for reading in readings)
    return tuple(
        Table(
            measure,
            tuple(row for reading in readings if reading.name.endswith(f":{measure}") for row in _rows(reading)),
        )
        for measure in measures
    )


def _rows(reading: Measurement) -> Iterator[dict[str, Any]]:
    settings = dict(reading.provenance.settings)
    for index, numbers in enumerate(_summaries(reading)):
        yield {**settings, "index": index, **numbers}


def _summaries(reading: Measurement) -> list[dict[str, float]]:
    """Moments over the networks of the run; moments that were measured as such are passed on."""
    match reading.name.rpartition(":")[2]:
        case "bundle":
            return _moments({"kernel": reading["kernel"]})
        case "diagonal":
            return _moments({"kernel": reading["kernel"][:, None]})
        case "layer":
            return _moments({name: reading[name][:, None] for name in ("jacobian_squared", "output_squared")})
        case _:
            columns = {name: array.tolist() for name, array in reading.arrays.items()}
            return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _moments(arrays: dict[str, Tensor]) -> list[dict[str, float]]:
    """Mean, variance and second moment of every column."""
    columns = {}
    for name, array in arrays.items():
        columns[f"{name}_mean"] = array.mean(0).tolist()
        columns[f"{name}_variance"] = array.var(0).tolist()
        columns[f"{name}_second_moment"] = array.square().mean(0).tolist()
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
