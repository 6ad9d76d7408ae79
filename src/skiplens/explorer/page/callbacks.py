"""The page, and what happens when a control moves: pure functions of what the page says, which nobody remembers."""

from collections.abc import Mapping, Sequence
from typing import Any

from dash import ALL, MATCH, ClientsideFunction, Dash, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component

from skiplens.base.version import VERSION
from skiplens.explorer.control import Several, read, shown_names, words_of
from skiplens.explorer.measurements import Measurements, MeasurementStatus
from skiplens.explorer.page.panes import draw, drawing_panes, field, progress_pane, words_in
from skiplens.explorer.view import View, view_named

Opened = Mapping[str, Any]  # the name of the view that is open, and the words of the address it was opened with
Fields = Mapping[str, Mapping[str, Sequence[Any]]]  # for each kind of field the values, and where they belong
KINDS = ("several", "field", "number")
POLL_MILLISECONDS = 400


def layout(views: Sequence[View]) -> Component:
    """The page before a view is chosen."""
    theme = html.Button("Dark", id="theme", type="button", **{"aria-label": "Dark look"})
    brand = html.P(["Skiplens ", html.Span("explorer")], className="brand")
    links = html.Ul(navigation(views, ""), id="navigation")
    fields = [html.Div(id="chooser"), html.Fieldset(html.Div(id="fields"), id="renewed")]
    panel = html.Form(fields, id="panel", tabIndex=-1, **{"aria-label": "Controls"})
    words = html.Div([html.Div(id="progress", role="status"), html.Div(id="words", **{"aria-live": "polite"})])
    hold = html.Button("Hold this picture beside the next", id="hold", type="button", **{"aria-pressed": "false"})
    card = html.Button("Copy a card", id="copy-card", type="button")
    tools = html.P([html.Button("Play", id="play", type="button"), hold, card], className="tools")
    frames = [html.Div(id=name) for name in ("network", "held", "hero")]
    pictures = html.Div([html.H2("Pictures", className="unseen"), *frames, tools], className="pictures")
    main = [
        html.Div([html.H1(id="title"), html.P(id="lead", className="lead")], className="top"),
        html.Div(words, className="words"),
        html.Div([pictures, panel], className="stage"),
        html.Div(id="rest"),
        html.P(id="status", className="unseen", role="status"),
    ]
    return html.Div(
        [
            dcc.Location(id="address", refresh=False),
            *(dcc.Store(id=name) for name in ("view", "query", "measured", "lacking", "unused")),
            dcc.Interval(id="clock", interval=POLL_MILLISECONDS, disabled=True),
            html.A("Skip to the controls", href="#panel", className="skip"),
            html.Header([brand, html.Nav(links, className="views", **{"aria-label": "Views"}), theme]),
            html.Main(main, id="main"),
            html.Footer(f"Skiplens {VERSION}. Everything on this page is computed on this machine."),
        ]
    )


def navigation(views: Sequence[View], chosen: str) -> list[Component]:
    """Links to all views; dcc.Link takes no aria attributes, so the item around it carries the mark of the chosen."""
    return [
        html.Li(dcc.Link(view.title, href=f"/{view.name}"), **({"aria-current": "page"} if view.name == chosen else {}))
        for view in views
    ]


class Callbacks:
    """The functions behind the page, for the views of one server."""

    def __init__(self, views: Sequence[View], measurements: Measurements) -> None:
        self._views = tuple(views)
        self._measurements = measurements

    def register(self, app: Dash) -> None:
        """Tie them to the page."""
        opened = Input("view", "data")
        chooser = {kind: _values(kind, Input if kind == "several" else State) for kind in KINDS}
        everything = {kind: _values(kind, Input) for kind in KINDS}
        app.callback(
            output=[Output("view", "data"), *_children("chooser", "navigation", "title", "lead")],
            inputs={"pathname": Input("address", "pathname"), "search": Input("address", "search")},
        )(self.open)
        # While other fields are on their way nothing can be chosen in these: the answer would take it back.
        app.callback(
            output=Output("fields", "children"),
            inputs={"opened": opened, "fields": chooser, "lacking": Input("lacking", "data")},
            running=[(Output("renewed", "disabled"), True, False)],
        )(self.fields)
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
        # What needs no server: a slider moves its field and the other way round; the address follows.
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

    def open(self, pathname: str | None, search: str | None) -> list[Any]:
        """The view that the address names, with what has to be chosen first; the first view for any other address."""
        name = (pathname or "").strip("/")
        view = next((view for view in self._views if view.name == name), self._views[0])
        words, links = words_of(search or ""), navigation(self._views, view.name)
        return [{"name": view.name, "words": words}, _fields(view, words, True), links, view.title, view.lead]

    def fields(self, opened: Opened | None, fields: Fields, lacking: Any = None) -> Any:
        """The other controls, which may depend on what was chosen; `lacking` only says that some are not there."""
        if not opened:
            return no_update
        view = view_named(self._views, opened["name"])
        # Where nothing has to be chosen first, this is a new address: its words count, not what the fields had before.
        asked = any(isinstance(control, Several) for control in view.controls(opened["words"]))
        return _fields(view, current_words(view, opened, fields) if asked else opened["words"], False)

    def draw(self, opened: Opened | None, fields: Fields, page: Mapping[str, Any], measured: Any) -> Any:
        """What is shown for the values of all controls; `measured` only says that there is something new."""
        if not opened:
            return no_update
        view = view_named(self._views, opened["name"])
        drawn = draw(view, current_words(view, opened, fields), self._measurements)
        rows, before = page["rows"], page["shown"]
        values, shown = drawn.state.values, shown_names(drawn.controls, drawn.state.values)
        # What was wrong in the address stays beside fields that still stand at what they were given instead.
        untouched = {control.name for control in drawn.controls if values[control.name] == control.default}
        at_first = read(drawn.controls, opened["words"]).refused
        problems = {name: why for name, why in at_first.items() if name in untouched} | dict(drawn.state.refused)
        # The values that this answer is for: the page asks again where they are no longer those of its fields.
        asked = [list(fields[kind]["values"]) for kind in KINDS if kind in fields]
        here = {row["name"] for row in rows if row["view"] == view.name}  # the others are on their way
        words, *pictures = drawing_panes(drawn)
        if drawn.is_awaited and before and before["view"] == view.name:
            pictures = [no_update, no_update]  # what was measured before stays in sight until there is something new
        return {
            "panes": [words, *pictures, progress_pane(drawn.standing)],
            "problems": [problems.get(row["name"], "") for row in rows],
            "hidden": [row["name"] not in shown for row in rows],
            # The clock is stopped by a poll: one that is under way now would show what nobody waits for any more.
            "page": [
                {
                    "view": view.name,
                    "query": drawn.query,
                    "asked": asked,
                    "whole": {control.name for control in drawn.controls} <= here,
                },
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


def _all(kind: str) -> dict[str, Any]:
    return {"kind": kind, "view": ALL, "name": ALL}


def _values(kind: str, dependency: type[Input] | type[State]) -> dict[str, Any]:
    return {"values": dependency(_all(kind), "value"), "ids": State(_all(kind), "id")}


def _children(*places: str) -> list[Output]:
    return [Output(place, "children") for place in places]
