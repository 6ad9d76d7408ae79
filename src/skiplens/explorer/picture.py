"""The pictures of a page from its address alone: without a server and without a browser."""

import dataclasses
from collections.abc import Mapping
from html import escape
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from skiplens.core.doors import open_door
from skiplens.core.errors import InvalidInputError
from skiplens.core.progress import silent
from skiplens.explorer.address import read, words_of
from skiplens.explorer.catalogue import theory_views
from skiplens.explorer.view import Values, View, view_named
from skiplens.figures import Figure, Line
from skiplens.figures.plotly_json import plotly_json
from skiplens.figures.style import INK

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
    return f"from skiplens.explorer.picture import picture\n\nfor figure in picture({address!r}):\n    figure.show()\n"


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
    drawn = open_door("plotly.graph_objects", "the pictures of the explorer").Figure(
        plotly_json(dataclasses.replace(figure, marks=marks))
    )
    title = {"text": escape(figure.title, quote=False), **_TITLE}
    return drawn.update_layout(template="plotly_white", title=title, margin_t=_ROOM)
