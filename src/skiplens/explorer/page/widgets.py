"""Controls as fields of the page."""

import json
import math
from collections.abc import Mapping
from functools import singledispatch
from typing import Any

from dash import dcc, html
from dash.development.base_component import Component

from skiplens.explorer.control import SEPARATOR, Choice, Control, Several, Slider, Switch

MOST_RADIOS = 4
_LOG_STEPS = 200  # of a logarithmic slider, over its whole range
_TYPING_SECONDS = 0.4


def identity(kind: str, view: str, name: str) -> dict[str, str]:
    """How the page's callbacks find a part of a control."""
    return {"kind": kind, "view": view, "name": name}


def element_id(kind: str, view: str, name: str) -> str:
    """The same as the browser writes it."""
    return json.dumps(identity(kind, view, name), sort_keys=True, separators=(",", ":"))


def field(control: Control, view: str, value: Any, refused: Mapping[str, str]) -> Component:
    """The control with its label, what it means and room for what is wrong."""
    problem = refused.get(control.name, "")
    return html.Div(
        [
            *_widget(control, view, value),
            html.P(control.help, className="help"),
            html.P(problem, id=identity("problem", view, control.name), className="problem", role="alert"),
        ],
        id=identity("row", view, control.name),
        className="field",
    )


@singledispatch
def _widget(control: Control, view: str, value: Any) -> list[Component]:
    raise TypeError(f"No field for {type(control).__name__}.")


@_widget.register
def _(control: Slider, view: str, value: Any) -> list[Component]:
    name = control.name
    text = dcc.Input(
        id=identity("number", view, name),
        type="text",
        inputMode="numeric" if control.whole else "verbatim",
        value=control.words(value),
        debounce=_TYPING_SECONDS,
        autoComplete="off",
        className="number",
    )
    label = html.Label(control.label, htmlFor=element_id("number", view, name))
    scale = _scale(control)
    slider = dcc.Input(
        id=identity("range", view, name), type="range", value=_place(control, value), className="range", **scale
    )
    meta = {"low": control.low, "high": control.high, "whole": control.whole, "logarithmic": control.logarithmic}
    return [
        html.Div([label, text], className="line"),
        html.Div(slider, className="rail", **{"data-label": control.label}),
        dcc.Store(id=identity("meta", view, name), data=meta),
    ]


@_widget.register
def _(control: Choice, view: str, value: Any) -> list[Component]:
    options = [{"label": label, "value": name} for name, label in control.options]
    place = identity("field", view, control.name)
    if len(options) <= MOST_RADIOS:
        radios = dcc.RadioItems(options, value, id=place, className="options")
        return [html.Div([html.Span(control.label, className="label"), radios], **_group(control, "radiogroup"))]
    dropdown = dcc.Dropdown(options, value, id=place, clearable=False, searchable=False, className="dropdown")
    return [html.Label([control.label, dropdown], className="label")]


@_widget.register
def _(control: Switch, view: str, value: Any) -> list[Component]:
    place = identity("field", view, control.name)
    box = dcc.Checklist(
        [{"label": control.label, "value": "on"}], ["on"] if value else [], id=place, className="options"
    )
    return [box]


@_widget.register
def _(control: Several, view: str, value: Any) -> list[Component]:
    options = [{"label": label, "value": name} for name, label in control.options]
    boxes = dcc.Checklist(options, list(value), id=identity("several", view, control.name), className="options long")
    return [html.Div([html.Span(control.label, className="label"), boxes], **_group(control, "group"))]


def _group(control: Control, role: str) -> dict[str, str]:
    return {"role": role, "aria-label": control.label}


def words_in(kind: str, value: Any) -> str:
    """What the browser has in a field of this kind, as the words of an address."""
    if kind == "several":
        return SEPARATOR.join(map(str, value or ()))
    if isinstance(value, list):  # the one box of a switch
        return "on" if value else "off"
    return "" if value is None else str(value).strip()


def _scale(control: Slider) -> dict[str, float]:
    if not control.logarithmic:
        return {"min": control.low, "max": control.high, "step": control.step}
    low, high = math.log10(control.low), math.log10(control.high)
    return {"min": low, "max": high, "step": (high - low) / _LOG_STEPS}


def _place(control: Slider, value: float) -> float:
    return math.log10(value) if control.logarithmic else value
