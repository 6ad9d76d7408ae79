"""Columns of a table as a picture."""

import math

from skiplens.core.errors import InvalidInputError
from skiplens.explorer.view import Values
from skiplens.explorer.views.runs.content import Table
from skiplens.figures import Figure, Line, Points

MOST_SERIES = 12
_EVERYTHING = "none"


def chart(table: Table, values: Values) -> Figure:
    """One column against another, one line for each cell of a third."""
    if "x" not in values:
        raise InvalidInputError("The table has fewer than two columns of numbers, so there is nothing to draw.")
    x, y, by = values["x"], values["y"], values["by"]
    marks = [mark for name in _names(table, by) for mark in _series(table, (x, y, by), name, values)]
    return Figure(
        "columns",
        f"{y} against {x}",
        f"{len(table.rows)} rows of the table{'' if by == _EVERYTHING else f', one line for each {by}'}.",
        x,
        y,
        tuple(marks),
        x_log=values["x_log"],
        y_log=values["y_log"],
    )


def _names(table: Table, by: str) -> list[object]:
    return [None] if by == _EVERYTHING else list(dict.fromkeys(table.columns[by]))


def _series(table: Table, names: tuple[str, str, str], cell: object, values: Values) -> list[Line | Points]:
    x, y, by = names
    keys = [None] * len(table.columns[x]) if by == _EVERYTHING else table.columns[by]
    pairs = zip(table.columns[x], table.columns[y], keys, strict=True)
    own = sorted((along, up) for along, up, key in pairs if key == cell and _drawable(along, up, values))
    label = "" if by == _EVERYTHING else f"{by} = {cell}"
    places, heights = tuple(along for along, _ in own), tuple(up for _, up in own)
    if by == _EVERYTHING or len(set(places)) < len(places):
        return [Points(places, heights, label)]
    return [Line(places, heights, label)]


def _drawable(along: float, up: float, values: Values) -> bool:
    if not (math.isfinite(along) and math.isfinite(up)):
        return False
    return (along > 0 or not values["x_log"]) and (up > 0 or not values["y_log"])
