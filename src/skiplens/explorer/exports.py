"""What a view shows as files: figures as PNG, SVG and CSV, tables as CSV."""

import threading
from typing import Literal, get_args

from skiplens.core.errors import InvalidInputError
from skiplens.explorer.drawing import Drawing
from skiplens.explorer.figure_table import csv_text, figure_rows
from skiplens.figures import Figure
from skiplens.figures.matplotlib_file import figure_bytes

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
