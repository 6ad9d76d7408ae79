"""A figure as the JSON that plotly.js draws; no plotting library is needed to write it."""

import math
from collections.abc import Sequence
from functools import singledispatch
from itertools import pairwise
from typing import Any

from skiplens.plots import Band, Bars, Contour, Figure, Heat, Line, Points, Reference
from skiplens.plots.figure import FAINT, LEVELS, MOST_LABELLED_BARS, REFERENCE_COLOUR, Mark, colour


def plotly_json(figure: Figure, digits: int = 17) -> dict[str, Any]:
    """The `data` and `layout` of `figure` for plotly.js; colours of paper and text are left to the page.

    Args:
        figure: What is drawn.
        digits: Digits of each number. Six are more than a screen shows and make a page smaller; 17 lose nothing.
    """
    references = [mark for mark in figure.marks if isinstance(mark, Reference) and math.isfinite(mark.value)]
    levels = [mark for mark in references if mark.axis == "y" and mark.name]
    lowest = min(levels, key=lambda mark: mark.value) if len(levels) > 1 else None  # its name stands below it
    series = [mark for mark in figure.marks if not isinstance(mark, Reference)]
    traces = [trace for index, mark in enumerate(series) for trace in _traces(mark, colour(index, mark.name))]
    for trace in traces:  # names are drawn as the words they are, which can be those of a model; none is in no legend
        trace |= {"name": _escape(trace["name"])} if trace.get("name") else {"showlegend": False}
        trace |= _tooltip(trace, figure)
    return {
        "data": [in_digits(trace, digits) for trace in traces],
        "layout": {
            "xaxis": _axis(figure.x_label, figure.x_log) | _ticks(series),
            "yaxis": _axis(figure.y_label, figure.y_log) | _upside(series) | _groups(series) | _named(figure),
            "showlegend": sum(bool(trace.get("name")) and trace.get("showlegend", True) for trace in traces) > 1,
            "legend": {"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0},
            "margin": {"l": 60, "r": 20, "t": 30, "b": 50},
            "shapes": [_reference_line(mark) for mark in references],
            "annotations": [_reference_label(mark, figure, mark is lowest) for mark in references if mark.name],
        },
    }


@singledispatch
def _traces(mark: Mark, shade: str) -> list[dict[str, Any]]:
    raise TypeError(f"No drawing for {type(mark).__name__}.")


@_traces.register
def _(mark: Line, shade: str) -> list[dict[str, Any]]:
    dash = "dash" if mark.dashed else "solid"
    line = {"color": mark.colour or shade, "width": 1 if mark.faint else 2, "dash": dash}
    trace = {"type": "scatter", "mode": "lines", "x": mark.x, "y": mark.y, "name": mark.name, "line": line}
    # One of many has its name where it is pointed at; in a legend all of them would fill the plot.
    return [trace | ({"opacity": FAINT, "showlegend": False} if mark.faint else {})]


@_traces.register
def _(mark: Points, shade: str) -> list[dict[str, Any]]:
    trace = {"type": "scatter", "mode": "markers", "x": mark.x, "y": mark.y, "name": mark.name}
    marker = {"color": mark.colour or shade} | ({"size": 9, "symbol": "x"} if mark.crossed else {"size": 6})
    return [trace | {"marker": marker} | _error(mark.error) | _hover(mark.labels)]


@_traces.register
def _(mark: Bars, shade: str) -> list[dict[str, Any]]:
    # Categories stay words: plotly.js would turn names such as "1" into numbers.
    positions = list(range(len(mark.labels)))
    trace = {"type": "bar", "x": positions, "y": mark.y, "name": mark.name, "marker": {"color": mark.colour or shade}}
    return [trace | _error(mark.error) | _hover(mark.labels)]


@_traces.register
def _(mark: Band, shade: str) -> list[dict[str, Any]]:
    shade = mark.colour or shade
    edge = {"type": "scatter", "mode": "lines", "x": mark.x, "line": {"width": 0, "color": shade}, "hoverinfo": "skip"}
    upper = edge | {"y": mark.high, "fill": "tonexty", "fillcolor": f"{shade}33", "name": mark.name}
    return [edge | {"y": mark.low, "showlegend": False}, upper | {"showlegend": bool(mark.name)}]


@_traces.register
def _(mark: Heat, shade: str) -> list[dict[str, Any]]:
    names = [_escape(label) for label in mark.labels]
    pairs = {"hovertext": [[f"{row}, {column}" for column in names] for row in names]} if names else {}
    meta = {"meta": {"pictures": mark.pictures}} if mark.pictures else {}  # which the page puts along the axes
    return [{"type": "heatmap", "z": mark.rows, **pairs, **meta, **_heights(mark.name)}]


def _tooltip(trace: dict[str, Any], figure: Figure) -> dict[str, Any]:
    """What stands where one points: the series, then each quantity with its unit in a few digits."""
    if trace.get("hoverinfo") == "skip":
        return {}
    series = f"<b>{trace['name']}</b><br>" if trace.get("name") else ""
    across = "%{hovertext}" if trace.get("hovertext") else f"{_escape(figure.x_label)}: %{{x:,.4~r}}"
    height = "" if "z" not in trace else f"<br>{trace['colorbar']['title']['text']}: %{{z:,.3~r}}"
    named = trace.get("hovertext") and (trace["type"] == "heatmap" or figure.y_names)
    up = "" if named else f"<br>{_escape(figure.y_label)}: %{{y:,.3~r}}"
    return {"hovertemplate": f"{series}{across}{up}{height}<extra></extra>"}


@_traces.register
def _(mark: Contour, shade: str) -> list[dict[str, Any]]:
    lines = {"coloring": "heatmap", "showlines": True}
    plane = {"x": mark.x, "y": mark.y, "z": mark.rows, **_heights(mark.name)}
    return [plane | {"type": "contour", "ncontours": LEVELS, "contours": lines, "line": {"width": 0.5}}]


def _heights(name: str) -> dict[str, Any]:
    """Heights as colours, with a bar that says which is which."""
    return {"colorscale": "Viridis", "colorbar": {"title": {"text": _escape(name)}}}


def in_digits(value: Any, digits: int) -> Any:
    """The same value in so many digits, and None for what is not finite, which JSON lacks and plotly.js leaves open."""
    if isinstance(value, dict):
        return {key: in_digits(entry, digits) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [in_digits(entry, digits) for entry in value]
    if not isinstance(value, float):
        return value
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None


def _axis(label: str, logarithmic: bool) -> dict[str, Any]:
    scale = {"type": "log", "nticks": 7} if logarithmic else {"separatethousands": True, "minexponent": 5}
    return {"title": {"text": _escape(label), "standoff": 8}, "automargin": True, "exponentformat": "power", **scale}


def _ticks(series: Sequence[Mark]) -> dict[str, Any]:
    """The categories of bars as words under them, as long as they can be read."""
    labels = next((mark.labels for mark in series if isinstance(mark, Bars)), ())
    if not labels or len(labels) > MOST_LABELLED_BARS:
        return _groups(series)
    return {"tickvals": list(range(len(labels))), "ticktext": list(map(_escape, labels)), "showgrid": False}


def _named(figure: Figure) -> dict[str, Any]:
    """Things along y as words, the first at the top."""
    names = [_escape(name) for name in figure.y_names]
    ends = {"autorange": False, "range": [len(names) - 0.5, -0.5]}
    return {"tickvals": list(range(len(names))), "ticktext": names, **ends} if names else {}


def _groups(series: Sequence[Mark]) -> dict[str, Any]:
    """The names along a matrix, each once in the middle of the rows that share it, as long as they can be read."""
    labels = next((mark.labels for mark in series if isinstance(mark, Heat)), ())
    ends = [place for place in range(1, len(labels) + 1) if place == len(labels) or labels[place] != labels[place - 1]]
    if not labels or len(ends) > MOST_LABELLED_BARS:
        return {}
    middles = [(start + end - 1) / 2 for start, end in pairwise([0, *ends])]
    return {"tickvals": middles, "ticktext": [_escape(labels[end - 1]) for end in ends]}


def _upside(series: Sequence[Mark]) -> dict[str, Any]:
    """A matrix is read from the top, so its vertical axis points down; a plane has the same scale in both axes."""
    if any(isinstance(mark, Contour) for mark in series):
        return {"scaleanchor": "x", "constrain": "domain"}
    return {"autorange": "reversed"} if any(isinstance(mark, Heat) for mark in series) else {}


def _error(error: tuple[float, ...]) -> dict[str, Any]:
    return {"error_y": {"type": "data", "array": error, "thickness": 1}} if error else {}


def _hover(labels: tuple[str, ...]) -> dict[str, Any]:
    # Hover text is drawn as (a kind of) HTML by plotly.js: a name is shown as the words it is.
    return {"hovertext": [_escape(label) for label in labels]} if labels else {}


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _reference_line(mark: Reference) -> dict[str, Any]:
    across = {"x0": 0, "x1": 1, "xref": "paper", "y0": mark.value, "y1": mark.value}
    upright = {"y0": 0, "y1": 1, "yref": "paper", "x0": mark.value, "x1": mark.value}
    line = {"color": REFERENCE_COLOUR, "width": 1, "dash": "dot"}
    return {"type": "line", "line": line, **(across if mark.axis == "y" else upright)}


def _reference_label(mark: Reference, figure: Figure, below: bool) -> dict[str, Any]:
    # On a logarithmic axis plotly.js places lines by value but words by exponent.
    logarithmic = figure.y_log if mark.axis == "y" else figure.x_log
    at = math.log10(mark.value) if logarithmic and mark.value > 0 else mark.value
    place = {"x": 1, "xref": "paper", "y": at} if mark.axis == "y" else {"y": 1, "yref": "paper", "x": at}
    side = "top" if below else "bottom"
    return {"text": _escape(mark.name), "showarrow": False, "yanchor": side, "xanchor": "right", **place}
