"""A drawing as parts of the page; every word of it is text, never markup."""

from collections.abc import Mapping, Sequence
from typing import Any

from dash import html
from dash.development.base_component import Component

from skiplens.explorer.drawing import Check, Download, Drawing
from skiplens.explorer.measurements import Standing
from skiplens.explorer.page.drawn import Drawn
from skiplens.figures import Figure
from skiplens.figures.plotly_json import plotly_json
from skiplens.reports.html import json_in_html
from skiplens.reports.section import number_in_words

MOST_ROWS = 200
MOST_LARGE_FACTS = 8
_STATES = {"holds": "✓", "fails": "✗", "unknown": "?"}


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


def progress_pane(standing: Standing) -> list[Component]:
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
