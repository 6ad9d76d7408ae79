"""What happens when a control moves: pure functions of what the page says; the server remembers no page."""

from collections.abc import Mapping, Sequence
from typing import Any

from dash import ALL, MATCH, ClientsideFunction, Dash, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component

from skiplens.base.version import VERSION
from skiplens.explorer.control import Several, read, shown_names, words_of
from skiplens.explorer.measurements import Measurements, MeasurementStatus
from skiplens.explorer.page.panes import Drawn, draw, drawing_panes, field, progress_pane, words_in
from skiplens.explorer.view import View, view_named

Opened = Mapping[str, Any]
"""The name of the view that is open, and the words of the address it was opened with."""

KINDS = ("several", "field", "number")

Fields = Mapping[str, Mapping[str, Sequence[Any]]]
"""For each kind of field the values, and where they belong."""


class Callbacks:
    """The functions behind the page, for the views of one server."""

    def __init__(self, views: Sequence[View], measurements: Measurements) -> None:
        self._views = tuple(views)
        self._measurements = measurements

    def register(self, app: Dash) -> None:
        """Tie them to the page."""
        opened = Input("view", "data")
        others = {kind: _values(kind, State) for kind in ("field", "number")}
        chooser = {"several": _values("several", Input)}
        everything = {kind: _values(kind, Input) for kind in KINDS}
        app.callback(
            output=[Output("view", "data"), *_children("chooser", "navigation", "title", "lead")],
            inputs={"pathname": Input("address", "pathname"), "search": Input("address", "search")},
        )(self.open)
        app.callback(output=Output("fields", "children"), inputs={"opened": opened, "fields": chooser | others})(
            self.fields
        )
        app.callback(
            output={
                "panes": _children("words", "hero", "rest", "progress"),
                "problems": Output(_all("problem"), "children"),
                "hidden": Output(_all("row"), "hidden"),
                "page": [Output("query", "data"), Output("clock", "disabled")],
            },
            inputs={
                "opened": opened,
                "fields": everything,
                "page": {"rows": State(_all("row"), "id"), "shown": State("query", "data")},
                "measured": Input("measured", "data"),
            },
        )(self.draw)
        app.callback(
            output=[
                Output("progress", "children", allow_duplicate=True),
                Output("measured", "data"),
                Output("clock", "disabled", allow_duplicate=True),
            ],
            inputs={
                "ticks": Input("clock", "n_intervals"),
                "opened": State("view", "data"),
                "shown": State("query", "data"),
            },
            prevent_initial_call=True,
        )(self.poll)
        _register_in_browser(app)

    def open(self, pathname: str | None, search: str | None) -> list[Any]:
        """The view that the address names, with what has to be chosen first; the first view for any other address."""
        name = (pathname or "").strip("/")
        view = next((view for view in self._views if view.name == name), self._views[0])
        words = words_of(search or "")
        links = navigation(self._views, view.name)
        return [{"name": view.name, "words": words}, _fields(view, words, True), links, view.title, view.lead]

    def fields(self, opened: Opened | None, fields: Fields) -> Any:
        """The other controls, which may depend on what was chosen."""
        if not opened:
            return no_update
        view = view_named(self._views, opened["name"])
        return _fields(view, current_words(view, opened, fields), False)

    def draw(
        self,
        opened: Opened | None,
        fields: Fields,
        page: Mapping[str, Any],
        measured: Any,
    ) -> Any:
        """What is shown for the values of all controls; `measured` only says that there is something new."""
        if not opened:
            return no_update
        view = view_named(self._views, opened["name"])
        drawn = draw(view, current_words(view, opened, fields), self._measurements)
        rows, before = page["rows"], page["shown"]
        shown = shown_names(drawn.controls, drawn.state.values)
        problems = {**_refused_when_opened(drawn, opened), **drawn.state.refused}
        words, *pictures = drawing_panes(drawn)
        if drawn.is_awaited and before and before["view"] == view.name:
            pictures = [no_update, no_update]  # what was measured before stays in sight until there is something new
        return {
            "panes": [words, *pictures, progress_pane(drawn.standing)],
            "problems": [problems.get(row["name"], "") for row in rows],
            "hidden": [row["name"] not in shown for row in rows],
            # The clock is stopped by a poll: one that is under way now would show what nobody waits for any more.
            "page": [
                {"view": view.name, "query": drawn.query, "asked": _asked(fields)},
                no_update if drawn.standing.is_over else False,
            ],
        }

    def poll(self, ticks: int, opened: Opened | None, shown: Mapping[str, str] | None) -> list[Any]:
        """How far the measurement is; when it is over the page is drawn again and the clock stops."""
        if not opened or not shown or shown["view"] != opened["name"]:
            return [no_update, no_update, no_update]
        view = view_named(self._views, opened["name"])
        words = words_of(shown["query"])
        wanted = view.measurement(read(view.controls(words), words).values)
        standing = self._measurements.ask(view, wanted) if wanted is not None else MeasurementStatus("done")
        return [progress_pane(standing), *([ticks, True] if standing.is_over else [no_update, no_update])]


def _asked(fields: Fields) -> list[list[Any]]:
    """The values that an answer is for; the page asks again where they are no longer those of its fields."""
    return [list(fields[kind]["values"]) for kind in KINDS if kind in fields]


def current_words(view: View, opened: Opened, fields: Fields) -> dict[str, str]:
    """The words in the fields of the view; those of the address for fields that are not there yet.

    Fields that have just lost their meaning, because something else was chosen, are left out.
    """
    pairs = [pair for group in fields.values() for pair in zip(group["ids"], group["values"], strict=True)]
    own = {place["name"]: words_in(place["kind"], value) for place, value in pairs if place["view"] == view.name}
    words = {**opened["words"], **own}
    known = {control.name for control in view.controls(words)}
    gone = {control.name for control in view.controls(opened["words"])} | set(own)
    return {name: word for name, word in words.items() if name in known or name not in gone}


def _fields(view: View, words: Mapping[str, str], choosers: bool) -> list[Component]:
    """The fields that others depend on, or all the others."""
    controls = view.controls(words)
    state = read(controls, words)
    return [
        field(control, view.name, state.values[control.name], state.refused)
        for control in controls
        if isinstance(control, Several) == choosers
    ]


def _refused_when_opened(drawn: Drawn, opened: Opened) -> dict[str, str]:
    """What was wrong in the address, for the fields that still stand at what they were given instead."""
    refused = read(drawn.controls, opened["words"]).refused
    untouched = {control.name for control in drawn.controls if drawn.state.values[control.name] == control.default}
    return {name: problem for name, problem in refused.items() if name in untouched}


def _all(kind: str) -> dict[str, Any]:
    return {"kind": kind, "view": ALL, "name": ALL}


def _values(kind: str, dependency: type[Input] | type[State]) -> dict[str, Any]:
    return {"values": dependency(_all(kind), "value"), "ids": State(_all(kind), "id")}


def _children(*places: str) -> list[Output]:
    return [Output(place, "children") for place in places]


def _register_in_browser(app: Dash) -> None:
    """What needs no server: a slider moves its field and the other way round; the address follows."""
    own = {"view": MATCH, "name": MATCH}
    app.clientside_callback(
        ClientsideFunction("explorer", "together"),
        *(Output({"kind": "number", **own}, "value"), Output({"kind": "range", **own}, "value")),
        *(Input({"kind": "number", **own}, "value"), Input({"kind": "range", **own}, "value")),
        State({"kind": "meta", **own}, "data"),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        ClientsideFunction("explorer", "tell"),
        Output("unused", "data"),
        Input("query", "data"),
        *(State(_all(kind), "value") for kind in KINDS),
    )


POLL_MILLISECONDS = 400

INDEX = """<!DOCTYPE html>
<html lang="en">
<head>
{%metas%}
<meta name="color-scheme" content="light dark">
<title>{%title%}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/look.css">
{%css%}
<script src="/theme.js"></script>
</head>
<body>
<noscript><p class="note">The explorer needs JavaScript; everything it loads comes from this machine.</p></noscript>
{%app_entry%}
<script src="/page.js"></script>
{%config%}
{%scripts%}
{%renderer%}
<script src="/plotly.js" defer></script>
</body>
</html>
"""
"""Around the page: the look of the report, its plots, and no address outside of this server."""


def layout(views: Sequence[View]) -> Component:
    """The page before a view is chosen."""
    return html.Div(
        [
            dcc.Location(id="address", refresh=False),
            dcc.Store(id="view"),
            dcc.Store(id="query"),
            dcc.Store(id="measured"),
            dcc.Store(id="unused"),
            dcc.Interval(id="clock", interval=POLL_MILLISECONDS, disabled=True),
            html.A("Skip to the controls", href="#panel", className="skip"),
            _header(views),
            _main(),
            html.Footer(f"Skiplens {VERSION}. Everything on this page is computed on this machine."),
        ]
    )


def navigation(views: Sequence[View], chosen: str) -> list[Component]:
    """Links to all views."""
    return [_link(view, {"aria-current": "page"} if view.name == chosen else {}) for view in views]


def _link(view: View, marks: Mapping[str, str]) -> Component:
    # dcc.Link takes no aria attributes, so the item around it carries the mark.
    return html.Li(dcc.Link(view.title, href=f"/{view.name}"), **marks)


def _header(views: Sequence[View]) -> Component:
    theme = html.Button("Dark", id="theme", type="button", **{"aria-label": "Dark look"})
    brand = html.P(["Skiplens ", html.Span("explorer")], className="brand")
    links = html.Ul(navigation(views, ""), id="navigation")
    return html.Header([brand, html.Nav(links, className="views", **{"aria-label": "Views"}), theme])


def _main() -> Component:
    panel = html.Form(
        [html.Div(id="chooser"), html.Div(id="fields")],
        id="panel",
        tabIndex=-1,
        **{"aria-label": "Controls"},
    )
    words = html.Div([html.Div(id="progress", role="status"), html.Div(id="words", **{"aria-live": "polite"})])
    return html.Main(
        [
            html.Div([html.H1(id="title"), html.P(id="lead", className="lead")], className="top"),
            html.Div(words, className="words"),
            html.Div([html.Div(id="hero"), panel], className="stage"),
            html.Div(id="rest"),
            html.P(id="status", className="unseen", role="status"),
        ],
        id="main",
    )
