"""The raw numbers, and the paper's table with ours beside."""

from collections.abc import Sequence
from typing import Any

from skiplens.readings import Measurement
from skiplens.studies.macdonald2023_regularity.images.pairs import final_loss, mean_and_deviation, of_data
from skiplens.studies.macdonald2023_regularity.images.printed import TABLES
from skiplens.studies.macdonald2023_regularity.images.settings import CLASSES
from skiplens.studies.raw_tables import raw_tables
from skiplens.studies.study import Table


def tables(readings: Sequence[Measurement]) -> tuple[Table, ...]:
    """Every run epoch by epoch, and means over trials; none where there are no runs."""
    return (*raw_tables(readings), Table("means", tuple(_means(readings)))) if readings else ()


def _means(readings: Sequence[Measurement]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for data in CLASSES:
        rates = sorted({r.setting("learning_rate") for r in of_data(readings, data)}, reverse=True)
        for rate in rates:
            for modified in (False, True):
                chosen = of_data(readings, data, learning_rate=rate, modified=modified)
                place = {"data": data, "learning_rate": rate, "modified": modified, "trials": len(chosen)}
                rows.append({**place, **_summary(chosen), **_printed(data, rate, modified)})
    return rows


def _summary(readings: Sequence[Measurement]) -> dict[str, float]:
    columns = {
        "final_loss": [final_loss(reading) for reading in readings],
        "accuracy_batch_statistics": [float(reading["accuracy_batch_statistics"]) for reading in readings],
        "accuracy": [float(reading["accuracy"]) for reading in readings],
    }
    found: dict[str, float] = {"diverged": sum(value != value for value in columns["final_loss"])}
    for name, column in columns.items():
        found[name], found[f"{name}_deviation"] = mean_and_deviation(column)
    return found


def _printed(data: str, rate: float, modified: bool) -> dict[str, float | None]:
    row = TABLES[data].get(rate)
    loss, accuracy = (None, None) if row is None else (row.loss[modified].value, row.accuracy[modified].value)
    return {"printed_final_loss": loss, "printed_accuracy": accuracy}
