"""What a view shows as files (figures as PNG, SVG and CSV, tables as CSV) and as figures of Plotly in Python."""

import csv
import dataclasses
import io
import math
import threading
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any
from urllib.parse import unquote, urlsplit

from skiplens.base import InvalidInputError, refuse_if, silent
from skiplens.base.optional_imports import optional_import
from skiplens.explorer.control import read, words_of
from skiplens.explorer.view import Drawing, View, view_named
from skiplens.explorer.views import theory_views
from skiplens.explorer.walk import canonical
from skiplens.plots.figure import INK, Band, Bars, Contour, Figure, Heat, Line, Mark, Points, Reference, Surface
from skiplens.plots.matplotlib_file import figure_bytes
from skiplens.plots.plotly_json import plotly_json

TYPES: dict[str, str] = {"png": "image/png", "svg": "image/svg+xml", "csv": "text/csv; charset=utf-8"}
TABLE = "table"
Row = dict[str, Any]
_ONE_AT_A_TIME = threading.Lock()  # Matplotlib's caches of fonts are not made for threads


def exported(drawing: Drawing, name: str, ending: str) -> bytes:
    """The figure of that name, or the table, as the content of a file."""
    refuse_if(ending not in TYPES, f"A view has no .{ending} files; ask for one of {', '.join(TYPES)}.")
    if name == TABLE and ending == "csv" and drawing.rows:
        return csv_text(drawing.rows).encode()
    figure = next((figure for figure in drawing.figures if figure.name == name), None)
    if figure is None:
        known = ", ".join(figure.name for figure in drawing.figures) or "none"
        raise InvalidInputError(f"For these values there is no figure {name!r}. There are: {known}.")
    if ending == "csv":
        return csv_text(figure_rows(figure)).encode()
    with _ONE_AT_A_TIME:
        return figure_bytes(figure, ending)


def figure_rows(figure: Figure) -> list[Row]:
    """One row a point, with the name of its series."""
    return [{"series": mark.name, **row} for mark in figure.marks for row in _rows(mark)]


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
    is_formula = isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{value}" if is_formula else value


def _rows(mark: Mark) -> list[Row]:
    match mark:
        case Line() | Points() | Bars() | Band():
            return _columns({name: cells for name, cells in vars(mark).items() if isinstance(cells, tuple)})
        case Reference():
            return [{mark.axis: mark.value}]
        case Heat():
            places = range(1, max((len(row) for row in mark.rows), default=0) + 1)
            return _plane(places, range(1, len(mark.rows) + 1), mark.rows)
        case Contour() | Surface():
            return _plane(mark.x, mark.y, mark.rows)
    raise TypeError(f"No table for {type(mark).__name__}.")


def _columns(columns: Mapping[str, Sequence[Any]]) -> list[Row]:
    """The columns row by row, without those that are empty; a mark without points has none."""
    given = {name.removesuffix("s"): cells for name, cells in columns.items() if len(cells)}
    return [dict(zip(given, cells, strict=True)) for cells in zip(*given.values(), strict=True)]


def _plane(x: Sequence[float], y: Sequence[float], rows: Sequence[Sequence[float]]) -> list[Row]:
    return [
        {"x": along, "y": place, "z": height}
        for place, heights in zip(y, rows, strict=True)
        for along, height in zip(x, heights, strict=True)
    ]


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
    try:
        parts = urlsplit(address)
    except ValueError as error:
        raise InvalidInputError(
            f"{address!r} is no address ({error}); give one as the browser shows it, such as '/paths?depth=50'."
        ) from error
    words = words_of(parts.query)
    if parts.query and not words:
        raise InvalidInputError("The address has no words that can be read; give them as in '/paths?depth=50&beta=2'.")
    view = view_named(theory_views(), unquote(parts.path).strip("/"))
    controls = view.controls(words)
    state = read(controls, words)  # what the page would tell beside its fields is an error here
    for name in state.unknown:
        known = ", ".join(control.name for control in controls)
        raise InvalidInputError(f"The view {view.name!r} has no control {name!r}; it has {known}.")
    for name, problem in state.refused.items():
        raise InvalidInputError(f"{name}: {problem}")
    wanted = view.measurement(state.values)
    measured = None if wanted is None else view.measure(wanted, silent)
    return tuple(_standing_alone(figure) for figure in view.draw(state.values, measured).figures)


def picture_code(view: View, query: str) -> str:
    """The lines of Python that draw what `view` shows for `query`; none for what needs files."""
    alone = next((known for known in theory_views() if known.name == view.name), None)
    if alone is None:
        return ""
    if words_of(query).get("ghost", "none") != "none":  # a run that is laid over the theory
        return ""
    address = f"/{view.name}{canonical(alone, query)}"
    return f"from skiplens.explorer.exports import picture\n\nfor figure in picture({address!r}):\n    figure.show()\n"


def _standing_alone(figure: Figure) -> Any:
    """The figure of Plotly: what the page draws, in ink that can be seen without it and below its title."""
    marks = tuple(
        dataclasses.replace(mark, colour="black") if isinstance(mark, Line) and mark.colour == INK else mark
        for mark in figure.marks
    )
    graph_objects = optional_import("plotly.graph_objects", "the pictures of the explorer")
    drawn = graph_objects.Figure(plotly_json(dataclasses.replace(figure, marks=marks)))
    title = {"text": escape(figure.title, quote=False), "y": 0.98, "yanchor": "top"}
    return drawn.update_layout(template="plotly_white", title=title, margin_t=90)  # room for title and legend
