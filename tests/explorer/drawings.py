"""What tests of views ask of them: values that differ from the defaults, and a series of a picture by its name."""

from typing import Any

from skiplens.explorer.view import Drawing, View
from skiplens.plots.figure import Figure, Mark


def values_of(view: View, **changed: Any) -> dict[str, Any]:
    """The defaults of all controls, but for these."""
    return {control.name: control.default for control in view.controls({})} | changed


def figure_of(drawing: Drawing, name: str) -> Figure:
    """The picture of this name."""
    return next(each for each in drawing.figures if each.name == name)


def has_series(drawing: Drawing, figure: str, name: str) -> bool:
    """Whether the picture has a series of this name."""
    return any(getattr(mark, "name", None) == name for mark in figure_of(drawing, figure).marks)


def series_of(drawing: Drawing, figure: str, name: str) -> Mark:
    """The series of this name in the picture."""
    return next(mark for mark in figure_of(drawing, figure).marks if getattr(mark, "name", None) == name)
