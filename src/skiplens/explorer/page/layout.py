"""The frame of the page: the same for every view; callbacks fill it."""

from collections.abc import Mapping, Sequence

from dash import dcc, html
from dash.development.base_component import Component

from skiplens.core.version import VERSION
from skiplens.explorer.view import View

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
