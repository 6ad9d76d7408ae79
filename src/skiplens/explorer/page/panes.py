"""A drawing as parts of the page; every word of it is text, never markup."""

import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any
from urllib.parse import quote

from dash import dcc, html
from dash.development.base_component import Component

from skiplens.base.errors import SkiplensError
from skiplens.explorer.control import SEPARATOR, Choice, Control, Several, Slider, State, Switch, query_of, read
from skiplens.explorer.exports import TABLE, picture_code
from skiplens.explorer.measurements import Measurements, MeasurementStatus
from skiplens.explorer.view import Check, Download, Drawing, Values, View
from skiplens.plots.figure import Figure
from skiplens.plots.plotly_json import plotly_json
from skiplens.plots.section import number_in_words
from skiplens.report.page import json_in_html

MOST_ROWS = 200

MOST_LARGE_FACTS = 8

_STATES = {"holds": "✓", "fails": "✗", "unknown": "?"}

_NOTHING = MeasurementStatus("done")


@dataclass(frozen=True)
class Drawn:
    """What a view shows for some words.

    Attributes:
        view: The view.
        controls: Its controls for these words.
        state: What they stand at.
        drawing: What is shown.
        standing: How far the measurement is; done where there is none.
        problem: Why nothing can be shown.
    """

    view: View
    controls: tuple[Control, ...]
    state: State
    drawing: Drawing
    standing: MeasurementStatus = _NOTHING
    problem: str = ""

    @property
    def query(self) -> str:
        """The words that say what is shown."""
        return query_of(self.controls, self.state.values)

    @property
    def is_awaited(self) -> bool:
        """Whether there is no picture yet because it has to be measured first."""
        return not self.standing.is_over and not self.drawing.figures

    def export(self, name: str, ending: str = "{ending}") -> str:
        """The address of a file of this drawing."""
        return f"/export/{self.view.name}/{quote(name, safe='')}.{ending}{self.query}"

    @property
    def exports(self) -> Mapping[str, str]:
        """The addresses of all figures' files."""
        return {figure.name: self.export(figure.name) for figure in self.drawing.figures}

    @property
    def table_export(self) -> str:
        """The address of the table's file."""
        return self.export(TABLE, "csv")

    @property
    def picture_code(self) -> str:
        """The Python that draws the same figures; empty where there is none."""
        return picture_code(self.view, self.query)


def drawing_panes(drawn: Drawn) -> tuple[list[Component], list[Component], list[Component]]:
    """The words, the main figure and everything below it."""
    if drawn.problem:
        return [html.P(drawn.problem, className="problem")], [], []
    unknown = [
        html.P(f"The address says {name!r}, which this view does not know.", className="problem")
        for name in drawn.state.unknown
    ]
    drawing = drawn.drawing
    hero = [html.Figure(_picture(figure)) for figure in drawing.figures[:1]]
    awaited = [html.Span(className="awaited")] if drawn.is_awaited else []
    return [*unknown, *words_pane(drawing), *awaited], hero, rest_pane(drawn)


def progress_pane(standing: MeasurementStatus) -> list[Component]:
    """How far the measurement is, as a bar and in words; nothing once it is done."""
    if standing.state == "done":
        return []
    if standing.state == "failed":
        return [html.P(standing.problem, className="problem")]
    words = "waiting for another measurement" if standing.state == "waiting" else standing.label
    done = {"value": str(standing.done), "max": str(standing.total)} if standing.total else {}
    return [html.Progress(**done), html.Span(f"Measuring: {words}")]


def words_pane(drawing: Drawing) -> list[Component]:
    """What is seen, in words and in a few numbers."""
    tiles = [html.Div([html.Dt(label), html.Dd(value)]) for label, value in drawing.facts]
    says = [html.P(drawing.says, className="says")] if drawing.says else []
    look = "facts" if len(tiles) <= MOST_LARGE_FACTS else "facts many"
    return [*says, *([html.Dl(tiles, className=look)] if tiles else [])]


def figure_pane(figure: Figure, export: str) -> Component:
    """A figure with its caption, its numbers and its files; `export` is the address of them without the ending."""
    return html.Figure([*_picture(figure), html.Figcaption(figure.caption), *_files_and_numbers(figure, export)])


def rest_pane(drawn: Drawn) -> list[Component]:
    """Everything below the main figure."""
    drawing, exports = drawn.drawing, drawn.exports
    main, others = drawing.figures[:1], drawing.figures[1:]
    figures = [figure_pane(figure, exports[figure.name]) for figure in others]
    return [
        *[html.Div(_below(figure, exports[figure.name]), className="below") for figure in main],
        *([_checklist(drawing.checks)] if drawing.checks else []),
        *([html.Div(figures, className="figures")] if figures else []),
        *([_table(drawing.rows, drawn.table_export)] if drawing.rows else []),
        *([_downloads(drawing.downloads)] if drawing.downloads else []),
        *([_code(drawing.code, drawn.picture_code)] if drawing.code else []),
        *[html.P(note, className="note") for note in drawing.notes],
    ]


def _picture(figure: Figure) -> list[Component]:
    """The plot; what it is drawn from stands beside it, as in a report."""
    return [
        html.H3(figure.title),
        html.Div(className="plot", role="img", **{"aria-label": f"{figure.title}. {figure.caption}"}),
        html.Script(json_in_html(plotly_json(figure)), type="application/json"),
    ]


def _below(figure: Figure, export: str) -> list[Component]:
    return [html.P(figure.caption, className="caption"), *_files_and_numbers(figure, export)]


def _files_and_numbers(figure: Figure, export: str) -> list[Component]:
    unseen = html.Span(f": {figure.title}", className="unseen")
    return [
        html.P([*_files(figure, export)], className="files"),
        html.Details([html.Summary(["Numbers of this plot", unseen])], className="numbers"),
    ]


def _files(figure: Figure, export: str) -> list[Component]:
    links: list[Component] = []
    for ending in ("PNG", "SVG", "CSV"):
        address = export.replace("{ending}", ending.lower())
        unseen = html.Span(f" of {figure.title}", className="unseen")
        links.append(html.A([ending, unseen], href=address, download=f"{figure.name}.{ending.lower()}"))
    return links


def _checklist(checks: Sequence[Check]) -> Component:
    entries = [
        html.Li(
            [
                html.Span(_STATES[check.state], className="state", **{"aria-hidden": "true"}),
                html.Span(f"{check.state}: ", className="unseen"),
                html.B(check.name),
                html.Span(f" {check.why}"),
            ],
            className=f"check {check.state}",
        )
        for check in checks
    ]
    return html.Ul(entries, className="checks")


def _table(rows: Sequence[Mapping[str, Any]], export: str) -> Component:
    names = list(rows[0])
    head = html.Thead(html.Tr([html.Th(name, scope="col") for name in names]))
    body = html.Tbody([html.Tr([html.Td(_cell(row.get(name, ""))) for name in names]) for row in rows[:MOST_ROWS]])
    more = f" (the first {MOST_ROWS} of {len(rows)} rows)" if len(rows) > MOST_ROWS else ""
    frame = html.Div(html.Table([head, body]), className="table", role="region", tabIndex=0, **{"aria-label": "Table"})
    links = html.P([html.A("Table as CSV", href=export, download="table.csv"), more], className="files")
    return html.Div([frame, links], className="rows")


def _cell(value: Any) -> str:
    return number_in_words(value) if isinstance(value, float) else str(value)


def _downloads(downloads: Sequence[Download]) -> Component:
    entries = [
        html.Li([html.A(entry.name, href=entry.address, download=""), html.Span(f" {entry.about}", className="soft")])
        for entry in downloads
    ]
    counted = f"{len(entries)} file{'s' if len(entries) > 1 else ''}"
    return html.Details([html.Summary(f"{counted} to download"), html.Ul(entries, className="downloads")])


def _code(code: str, picture: str) -> Component:
    """The lines that draw the pictures, where there are some, and those that make the numbers."""
    numbers = _lines(code, "Copy the code")
    drawing = _lines(picture, "Copy the lines that draw the pictures")
    words = [html.P(text, className="soft") for text in ("The pictures:", "The numbers:")]
    both = [words[0], drawing, words[1], numbers] if picture else [numbers]
    return html.Section([html.H2("The same in Python"), *both])


def _lines(code: str, what: str) -> Component:
    button = html.Button("Copy", type="button", className="copy-code", **{"aria-label": what})
    return html.Div([button, html.Pre(html.Code(code), tabIndex=0)], className="code")


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


_LOG = logging.getLogger(__name__)


def draw(view: View, words: Mapping[str, str], measurements: Measurements, wait: bool = False) -> Drawn:
    """What `view` shows for `words`; a measurement is started, and waited for only where `wait` is set."""
    controls = view.controls(words)
    state = read(controls, words)
    try:
        standing = _standing(view, state.values, measurements, wait)
        drawing = view.draw(state.values, standing.result)
        return Drawn(view, controls, state, drawing, standing)
    except SkiplensError as error:
        return Drawn(view, controls, state, Drawing(), problem=str(error))
    except Exception as error:
        _LOG.exception("The view %s cannot be drawn for %s", view.name, state.values)
        return Drawn(view, controls, state, Drawing(), problem=f"This cannot be drawn: {type(error).__name__}: {error}")


def _standing(view: View, values: Values, measurements: Measurements, wait: bool) -> MeasurementStatus:
    wanted: Any = view.measurement(values)
    if wanted is None:
        return _NOTHING
    return measurements.wait(view, wanted) if wait else measurements.ask(view, wanted)
