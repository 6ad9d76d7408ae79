"""The numbers of a figure as a table: what is exported as CSV."""

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import singledispatch
from typing import Any

from skiplens.figures import Band, Bars, Contour, Figure, Heat, Line, Points, Reference, Surface
from skiplens.figures.figure import Mark

Row = dict[str, Any]
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def figure_rows(figure: Figure) -> list[Row]:
    """One row a point, with the name of its series."""
    return [row for mark in figure.marks for row in _rows(mark)]


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as CSV: all columns that occur, in order of first appearance; what is no number stays empty."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([_cell(name) for name in columns])
    writer.writerows([_cell(row.get(name, "")) for name in columns] for row in rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    """Words that a spreadsheet would run as a formula get an apostrophe before them."""
    if isinstance(value, float) and math.isnan(value):
        return ""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA_STARTS) else value


@singledispatch
def _rows(mark: Mark) -> Iterable[Row]:
    raise TypeError(f"No table for {type(mark).__name__}.")


@_rows.register
def _(mark: Line) -> Iterable[Row]:
    return ({"series": mark.name, "x": x, "y": y} for x, y in zip(mark.x, mark.y, strict=True))


@_rows.register
def _(mark: Points) -> Iterable[Row]:
    rows = [{"series": mark.name, "x": x, "y": y} for x, y in zip(mark.x, mark.y, strict=True)]
    return _with(_with(rows, "error", mark.error), "label", mark.labels)


@_rows.register
def _(mark: Bars) -> Iterable[Row]:
    rows = [{"series": mark.name, "label": label, "y": y} for label, y in zip(mark.labels, mark.y, strict=True)]
    return _with(rows, "error", mark.error)


@_rows.register
def _(mark: Band) -> Iterable[Row]:
    edges = zip(mark.x, mark.low, mark.high, strict=True)
    return ({"series": mark.name, "x": x, "low": low, "high": high} for x, low, high in edges)


@_rows.register
def _(mark: Reference) -> Iterable[Row]:
    return [{"series": mark.name, mark.axis: mark.value}]


@_rows.register
def _(mark: Heat) -> Iterable[Row]:
    places = range(1, max((len(row) for row in mark.rows), default=0) + 1)
    return _plane(mark.name, places, range(1, len(mark.rows) + 1), mark.rows)


@_rows.register
def _(mark: Contour) -> Iterable[Row]:
    return _plane(mark.name, mark.x, mark.y, mark.rows)


@_rows.register
def _(mark: Surface) -> Iterable[Row]:
    return _plane(mark.name, mark.x, mark.y, mark.rows)


def _plane(name: str, x: Sequence[float], y: Sequence[float], rows: Sequence[Sequence[float]]) -> Iterable[Row]:
    for place, heights in zip(y, rows, strict=True):
        for along, height in zip(x, heights, strict=True):
            yield {"series": name, "x": along, "y": place, "z": height}


def _with(rows: list[Row], name: str, column: Sequence[Any]) -> list[Row]:
    return [row | {name: value} for row, value in zip(rows, column, strict=True)] if column else rows
