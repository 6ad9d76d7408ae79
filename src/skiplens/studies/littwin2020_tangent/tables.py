"""The raw numbers of every item: one row a run, or one row a run and angle or matrix."""

from collections.abc import Sequence

from skiplens.core.axes import Tensor
from skiplens.readings import Measurement
from skiplens.studies.raw_tables import entries, raw_tables
from skiplens.studies.study import Table


def tables(readings: Sequence[Measurement]) -> tuple[Table, ...]:
    """One table for each measure that the item uses."""
    return raw_tables(readings, _summaries)


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
            return entries(reading)


def _moments(arrays: dict[str, Tensor]) -> list[dict[str, float]]:
    """Mean, variance and second moment of every column."""
    columns = {}
    for name, array in arrays.items():
        columns[f"{name}_mean"] = array.mean(0).tolist()
        columns[f"{name}_variance"] = array.var(0).tolist()
        columns[f"{name}_second_moment"] = array.square().mean(0).tolist()
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
