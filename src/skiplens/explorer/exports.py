"""What a view shows as files: figures as PNG, SVG and CSV, tables as CSV."""

import csv
import dataclasses
import io
import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import singledispatch
from html import escape
from typing import Any, Literal, get_args
from urllib.parse import SplitResult, unquote, urlsplit

from skiplens.base.errors import InvalidInputError
from skiplens.base.optional_imports import optional_import
from skiplens.base.progress import silent
from skiplens.explorer.control import read, words_of
from skiplens.explorer.view import Drawing, Values, View, view_named
from skiplens.explorer.views import theory_views
from skiplens.plots.figure import INK, Band, Bars, Contour, Figure, Heat, Line, Mark, Points, Reference, Surface
from skiplens.plots.matplotlib_file import figure_bytes
from skiplens.plots.plotly_json import plotly_json

Ending = Literal["png", "svg", "csv"]

TYPES: dict[str, str] = {"png": "image/png", "svg": "image/svg+xml", "csv": "text/csv; charset=utf-8"}

TABLE = "table"

_ONE_AT_A_TIME = threading.Lock()  # Matplotlib's caches of fonts are not made for threads


def exported(drawing: Drawing, name: str, ending: str) -> bytes:
    """The figure of that name, or the table, as the content of a file."""
    if ending not in get_args(Ending):
        raise InvalidInputError(f"A view has no .{ending} files; ask for one of {', '.join(get_args(Ending))}.")
    if name == TABLE and ending == "csv" and drawing.rows:
        return csv_text(drawing.rows).encode()
    figure = _figure(drawing, name)
    if ending == "csv":
        return csv_text(figure_rows(figure)).encode()
    with _ONE_AT_A_TIME:
        return figure_bytes(figure, ending)


def _figure(drawing: Drawing, name: str) -> Figure:
    found = next((figure for figure in drawing.figures if figure.name == name), None)
    if found is None:
        known = ", ".join(figure.name for figure in drawing.figures) or "none"
        raise InvalidInputError(f"For these values there is no figure {name!r}. There are: {known}.")
    return found


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


_INK = "black"  # on the white paper of a figure that stands alone

_TITLE = {"y": 0.98, "yanchor": "top"}

_ROOM = 90  # pixels above a plot, for the title and the legend below it


def picture(address: str) -> tuple[Any, ...]:
    """The figures that the explorer draws at `address`, as figures of Plotly, the main one first.

    What the page would measure is measured here, so it can take seconds. Each figure can be shown, changed and
    written: ``picture("/paths?depth=50&beta=2")[0].write_html("paths.html")``.

    Args:
        address: Of a theory view, as the browser shows it, from the path on or with the server before it. A control
            that it does not name has its default.

    Raises:
        InvalidInputError: There is no such view, or it has no such controls or values; the message says which it has.
    """
    parts = _split(address)
    view = view_named(theory_views(), unquote(parts.path).strip("/"))
    values = _values(view, _words(parts.query))
    wanted = view.measurement(values)
    measured = None if wanted is None else view.measure(wanted, silent)
    return tuple(_standing_alone(figure) for figure in view.draw(values, measured).figures)


def picture_code(view: View, query: str) -> str:
    """The lines of Python that draw what `view` shows for `query`; none for a view that needs files."""
    if view.name not in {known.name for known in theory_views()}:
        return ""
    address = f"/{view.name}{query}"
    return f"from skiplens.explorer.exports import picture\n\nfor figure in picture({address!r}):\n    figure.show()\n"


def _split(address: str) -> SplitResult:
    try:
        return urlsplit(address)
    except ValueError as error:
        raise InvalidInputError(
            f"{address!r} is no address ({error}); give one as the browser shows it, such as '/paths?depth=50'."
        ) from error


def _words(query: str) -> dict[str, str]:
    words = words_of(query)
    if query and not words:
        raise InvalidInputError("The address has no words that can be read; give them as in '/paths?depth=50&beta=2'.")
    return words


def _values(view: View, words: Mapping[str, str]) -> Values:
    """The values of all controls; what the page would tell beside its fields is an error here."""
    controls = view.controls(words)
    state = read(controls, words)
    if state.unknown:
        known = ", ".join(control.name for control in controls)
        raise InvalidInputError(f"The view {view.name!r} has no control {state.unknown[0]!r}; it has {known}.")
    for name, problem in state.refused.items():
        raise InvalidInputError(f"{name}: {problem}")
    return state.values


def _standing_alone(figure: Figure) -> Any:
    """The figure of Plotly: what the page draws, in ink that can be seen without it and below its title."""
    marks = tuple(
        dataclasses.replace(mark, colour=_INK) if isinstance(mark, Line) and mark.colour == INK else mark
        for mark in figure.marks
    )
    drawn = optional_import("plotly.graph_objects", "the pictures of the explorer").Figure(
        plotly_json(dataclasses.replace(figure, marks=marks))
    )
    title = {"text": escape(figure.title, quote=False), **_TITLE}
    return drawn.update_layout(template="plotly_white", title=title, margin_t=_ROOM)
