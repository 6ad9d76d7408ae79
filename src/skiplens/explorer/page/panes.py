"""What a view shows for some words, as parts of the page; every word of it is text, never markup."""

import json
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import singledispatch
from typing import Any
from urllib.parse import quote

from dash import dcc, html
from dash.development.base_component import Component

from skiplens.base import SkiplensError, in_words
from skiplens.explorer.control import SEPARATOR, Choice, Control, Several, Slider, State, Switch, query_of, read
from skiplens.explorer.exports import TABLE, picture_code
from skiplens.explorer.measurements import Measurements, MeasurementStatus
from skiplens.explorer.view import Check, Drawing, View
from skiplens.explorer.walk import WALKS, place
from skiplens.plots.figure import Figure
from skiplens.plots.plotly_json import plotly_json
from skiplens.report.page import json_in_html

MOST_ROWS = 200
_MOST_LARGE_FACTS = 8
_NOTHING = MeasurementStatus("done")
_LOG = logging.getLogger(__name__)
_MOST_RADIOS = 4
_LOG_STEPS = 200  # of a logarithmic slider, over its whole range


@dataclass(frozen=True)
class Drawn:
    """What a view shows for some words."""

    view: View
    controls: tuple[Control, ...]  # its controls for these words
    state: State  # what they stand at
    drawing: Drawing  # what is shown
    standing: MeasurementStatus = _NOTHING  # how far the measurement is; done where there is none
    problem: str = ""  # why nothing can be shown

    @property
    def query(self) -> str:
        """The words that say what is shown."""
        return query_of(self.controls, self.state.values)

    @property
    def is_awaited(self) -> bool:
        """Whether there is no picture yet because it has to be measured first."""
        return not self.standing.is_over and not self.drawing.figures

    def export(self, name: str, ending: str) -> str:
        """The address of a file of this drawing."""
        return f"/export/{self.view.name}/{quote(name, safe='')}.{ending}{self.query}"


def draw(view: View, words: Mapping[str, str], measurements: Measurements, wait: bool = False) -> Drawn:
    """What `view` shows for `words`; a measurement is started, and waited for only where `wait` is set."""
    controls = view.controls(words)
    state = read(controls, words)
    try:
        wanted, standing = view.measurement(state.values), _NOTHING
        if wanted is not None:
            standing = measurements.wait(view, wanted) if wait else measurements.ask(view, wanted)
        return Drawn(view, controls, state, view.draw(state.values, standing.result), standing)
    except SkiplensError as error:
        return Drawn(view, controls, state, Drawing(), problem=str(error))
    except Exception as error:
        _LOG.exception("The view %s cannot be drawn for %s", view.name, state.values)
        return Drawn(view, controls, state, Drawing(), problem=f"This cannot be drawn: {type(error).__name__}: {error}")


def drawing_panes(drawn: Drawn) -> tuple[list[Component], list[Component], list[Component]]:
    """The words, the main figure and everything below it."""
    mark = html.Span(**{"data-view": drawn.view.name})  # whose words these are: under another title they are hidden
    if drawn.problem:
        return [mark, html.P(drawn.problem, className="problem")], [], []
    drawing = drawn.drawing
    unknown = [f"The address says {name!r}, which this view does not know." for name in drawn.state.unknown]
    words: list[Component] = [mark, *(html.P(said, className="problem") for said in unknown)]
    words += walk_pane(drawn)
    if drawing.says and not drawing.page:
        words.append(html.P(drawing.says, className="says"))
    if drawing.facts:
        tiles = [html.Div([html.Dt(label), html.Dd(value)]) for label, value in drawing.facts]
        words.append(html.Dl(tiles, className="facts" if len(tiles) <= _MOST_LARGE_FACTS else "facts many"))
    if drawn.is_awaited:
        words.append(html.Span(className="awaited"))
    hero: list[Component] = [html.Figure(_picture(figure)) for figure in drawing.figures[:1]]
    for figure in drawing.figures[1 : drawing.beside]:
        hero.append(html.Figure([*_picture(figure), *_files_and_numbers(figure, drawn)]))
    if drawing.page:
        frame = {"src": drawing.page, "title": drawing.says, "sandbox": "allow-scripts allow-downloads"}
        hero = [html.Iframe(className="report", **frame)]
    return words, hero, _below_the_main_figure(drawn)


def walk_pane(drawn: Drawn) -> list[Component]:
    """The guided walk: links to its steps, and what is to be seen where the page stands at one."""
    if drawn.view.name not in WALKS:
        return []
    paper, steps = WALKS[drawn.view.name]
    here = place(drawn.view, drawn.query)
    links = []
    for number, step in enumerate(steps):
        title, current = f"Step {number + 1} of {len(steps)}", {"aria-current": "step"} if number == here else {}
        link = dcc.Link(str(number + 1), href=f"/{drawn.view.name}?{step.query}", title=title)
        links.append(html.Li(link, **current))
    parts: list[Component] = [html.Div([html.Span(f"Guided walk, {paper}"), html.Ol(links)], className="steps")]
    if here is not None:
        badge = [html.B("What is printed is false. ")] if steps[here].false_in_print else []
        parts.append(html.P([*badge, html.Span(steps[here].told(drawn.drawing))]))
    return [html.Nav(parts, className="walk" if here is None else "walk here", **{"aria-label": "Guided walk"})]


def progress_pane(standing: MeasurementStatus) -> list[Component]:
    """How far the measurement is, as a bar and in words; nothing once it is done."""
    if standing.state == "done":
        return []
    if standing.state == "failed":
        return [html.P(standing.problem, className="problem")]
    words = "waiting for another measurement" if standing.state == "waiting" else standing.label
    done = {"value": str(standing.done), "max": str(standing.total)} if standing.total else {}
    return [html.Progress(**done), html.Span(f"Measuring: {words}")]


def _below_the_main_figure(drawn: Drawn) -> list[Component]:
    drawing, parts = drawn.drawing, list[Component]()
    for figure in drawing.figures[:1]:
        caption = html.P(figure.caption, className="caption")
        parts.append(html.Div([caption, *_files_and_numbers(figure, drawn)], className="below"))
    if drawing.checks:
        parts.append(html.Ul([_check(check) for check in drawing.checks], className="checks"))
    others = [
        html.Figure([*_picture(figure), html.Figcaption(figure.caption), *_files_and_numbers(figure, drawn)])
        for figure in drawing.figures[drawing.beside :]
    ]
    if others:
        parts.append(html.Div(others, className="figures"))
    if drawing.cards:
        parts.append(html.Div([_card(card) for card in drawing.cards], className="cards"))
    if drawing.rows:
        parts.append(_table(drawn))
    if drawing.downloads:
        entries = [
            html.Li([html.A(one.name, href=one.address, download=""), html.Span(f" {one.about}", className="soft")])
            for one in drawing.downloads
        ]
        counted = f"{len(entries)} file{'s' if len(entries) > 1 else ''} to download"
        parts.append(html.Details([html.Summary(counted), html.Ul(entries, className="downloads")]))
    if drawing.code:
        parts.append(_code(drawing.code, picture_code(drawn.view, drawn.query)))
    return [*parts, *(html.P(note, className="note") for note in drawing.notes)]


def _picture(figure: Figure) -> list[Component]:
    """The plot; what it is drawn from stands beside it, as in a report."""
    return [
        html.H3(figure.title),
        html.Div(className="plot", role="img", **{"aria-label": f"{figure.title}. {figure.caption}"}),
        html.Script(json_in_html(plotly_json(figure)), type="application/json"),
    ]


def _files_and_numbers(figure: Figure, drawn: Drawn) -> list[Component]:
    links = [
        html.A(
            [ending.upper(), html.Span(f" of {figure.title}", className="unseen")],
            href=drawn.export(figure.name, ending),
            download=f"{figure.name}.{ending}",
        )
        for ending in ("png", "svg", "csv")
    ]
    unseen = html.Span(f": {figure.title}", className="unseen")
    return [
        html.P(links, className="files"),
        html.Details([html.Summary(["Numbers of this plot", unseen])], className="numbers"),
    ]


def _check(check: Check) -> Component:
    sign = {"holds": "✓", "fails": "✗", "unknown": "?"}[check.state]
    return html.Li(
        [
            html.Span(sign, className="state", **{"aria-hidden": "true"}),
            html.Span(f"{check.state}: ", className="unseen"),
            html.B(check.name),
            html.Span(f" {check.why}"),
        ],
        className=f"check {check.state}",
    )


def _card(card: Mapping[str, str]) -> Component:
    name, says = html.H2(dcc.Link(card["name"], href=card["address"])), html.P(card["says"], className="lead")
    small = [html.P(words, className="soft") for words in (f"{card['kind']}, {card['written']}", card["about"])]
    return html.Article([name, small[0], says, small[1]], className=f"card finding severity-{card['severity']}")


def _table(drawn: Drawn) -> Component:
    rows = drawn.drawing.rows
    names = list(rows[0])
    head = html.Thead(html.Tr([html.Th(name, scope="col") for name in names]))
    body = html.Tbody([html.Tr([_cell(row.get(name, "")) for name in names]) for row in rows[:MOST_ROWS]])
    more = f" (the first {MOST_ROWS} of {len(rows)} rows)" if len(rows) > MOST_ROWS else ""
    frame = html.Div(html.Table([head, body]), className="table", role="region", tabIndex=0, **{"aria-label": "Table"})
    link = html.A("Table as CSV", href=drawn.export(TABLE, "csv"), download="table.csv")
    return html.Div([frame, html.P([link, more], className="files")], className="rows")


def _cell(value: Any) -> Component:
    words = in_words(value) if isinstance(value, float) else str(value)
    return html.Td(words, className="long" if len(words) > 30 else None)


def _code(numbers: str, picture: str) -> Component:
    """The lines that draw the pictures, where there are some, and those that make the numbers."""

    def lines(code: str, what: str) -> Component:
        button = html.Button("Copy", type="button", className="copy-code", **{"aria-label": what})
        return html.Div([button, html.Pre(html.Code(code), tabIndex=0)], className="code")

    parts = [lines(numbers, "Copy the code")]
    if picture:
        drawing = lines(picture, "Copy the lines that draw the pictures")
        parts = [html.P("The pictures:", className="soft"), drawing, html.P("The numbers:", className="soft"), *parts]
    return html.Section([html.H2("The same in Python"), *parts])


def identity(kind: str, view: str, name: str) -> dict[str, str]:
    """How the page's callbacks find a part of a control."""
    return {"kind": kind, "view": view, "name": name}


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


def words_in(kind: str, value: Any) -> str:
    """What the browser has in a field of this kind, as the words of an address."""
    if kind == "several":
        return SEPARATOR.join(map(str, value or ()))
    if isinstance(value, list):  # the one box of a switch
        return "on" if value else "off"
    return "" if value is None else str(value).strip()


@singledispatch
def _widget(control: Control, view: str, value: Any) -> list[Component]:
    raise TypeError(f"No field for {type(control).__name__}.")


@_widget.register
def _(control: Slider, view: str, value: Any) -> list[Component]:
    place = identity("number", view, control.name)
    text = dcc.Input(
        id=place,
        type="text",
        inputMode="numeric" if control.whole else "verbatim",
        value=control.words(value),
        debounce=True,
        autoComplete="off",
        className="number",
    )
    as_the_browser_writes_it = json.dumps(place, sort_keys=True, separators=(",", ":"))
    label = html.Label(control.label, htmlFor=as_the_browser_writes_it)
    low, high, step, start = control.low, control.high, control.step, value
    if control.logarithmic:
        low, high, start = math.log10(low), math.log10(high), math.log10(value)
        step = (high - low) / _LOG_STEPS
    there = identity("range", view, control.name)
    slider = dcc.Input(id=there, type="range", value=start, className="range", min=low, max=high, step=step)
    meta = {"low": control.low, "high": control.high, "whole": control.whole, "logarithmic": control.logarithmic}
    return [
        html.Div([label, text], className="line"),
        html.Div(slider, className="rail", **{"data-label": control.label}),
        dcc.Store(id=identity("meta", view, control.name), data=meta),
    ]


@_widget.register
def _(control: Choice, view: str, value: Any) -> list[Component]:
    options = [{"label": label, "value": name} for name, label in control.options]
    place = identity("field", view, control.name)
    if len(options) <= _MOST_RADIOS:
        return _group(control, "radiogroup", dcc.RadioItems(options, value, id=place, className="options"))
    dropdown = dcc.Dropdown(options, value, id=place, clearable=False, searchable=False, className="dropdown")
    return [html.Label([control.label, dropdown], className="label")]


@_widget.register
def _(control: Switch, view: str, value: Any) -> list[Component]:
    options, place = [{"label": control.label, "value": "on"}], identity("field", view, control.name)
    return [dcc.Checklist(options, ["on"] if value else [], id=place, className="options")]


@_widget.register
def _(control: Several, view: str, value: Any) -> list[Component]:
    options = [{"label": label, "value": name} for name, label in control.options]
    place = identity("several", view, control.name)
    return _group(control, "group", dcc.Checklist(options, list(value), id=place, className="options long"))


def _group(control: Control, role: str, boxes: Component) -> list[Component]:
    label = html.Span(control.label, className="label")
    return [html.Div([label, boxes], role=role, **{"aria-label": control.label})]
