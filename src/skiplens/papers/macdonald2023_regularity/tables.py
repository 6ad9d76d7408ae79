"""The raw numbers, and the paper's table with ours beside."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from skiplens.papers.macdonald2023_regularity.images import CLASSES, final_loss, mean_and_deviation, of_data
from skiplens.papers.statistics import raw_tables
from skiplens.papers.study import Table
from skiplens.readings.reading import Measurement


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


@dataclass(frozen=True)
class Cell:
    """A number with the standard deviation that is printed behind it."""

    value: float
    deviation: float


@dataclass(frozen=True)
class Row:
    """Test accuracy and final loss, each (original, modified)."""

    accuracy: tuple[Cell, Cell]
    loss: tuple[Cell, Cell]


def _row(accuracies: tuple[float, float, float, float], losses: tuple[float, float, float, float]) -> Row:
    (a, b, c, d), (e, f, g, h) = accuracies, losses
    return Row((Cell(a / 100, b / 100), Cell(c / 100, d / 100)), (Cell(e, f), Cell(g, h)))


TABLES: dict[str, dict[float, Row]] = {
    "cifar10": {
        0.2: _row((48.14, 19.95, 62.71, 6.14), (1.3883, 0.5503, 0.9495, 0.2150)),
        0.1: _row((91.64, 0.24, 91.42, 0.61), (0.0032, 0.0002, 0.0022, 0.0002)),
        0.05: _row((91.22, 0.25, 91.14, 0.25), (0.0043, 0.0003, 0.0041, 0.0001)),
        0.02: _row((89.50, 0.32, 88.94, 0.35), (0.0112, 0.0004, 0.0125, 0.0004)),
    },
    "cifar100": {
        0.2: _row((69.67, 0.58, 70.07, 0.53), (0.0150, 0.0005, 0.0115, 0.0005)),
        0.1: _row((70.05, 0.43, 70.87, 0.42), (0.0147, 0.0004, 0.0116, 0.0003)),
        0.05: _row((70.04, 0.48, 70.34, 0.56), (0.0145, 0.0003, 0.0116, 0.0003)),
        0.02: _row((69.75, 0.56, 70.13, 0.55), (0.0145, 0.0003, 0.0116, 0.0004)),
    },
    "imagenet": {
        0.1: _row((74.69, 0.12, 74.99, 0.09), (0.9201, 0.0014, 0.8949, 0.0019)),
        0.05: _row((74.62, 0.12, 74.84, 0.03), (0.8563, 0.0041, 0.8420, 0.0030)),
        0.02: _row((73.87, 0.09, 74.00, 0.11), (0.8690, 0.0025, 0.8441, 0.0026)),
    },
}
"""By data set and learning rate; on ImageNet at 0.2 the modified network did not converge."""
