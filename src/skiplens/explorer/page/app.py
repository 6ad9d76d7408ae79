"""The server: Dash's page, the files of views and runs, and the guard before all of them."""

import gzip
from collections.abc import Callable, Sequence
from html import escape
from importlib.resources import files
from urllib.parse import quote, urlencode

import flask
from dash import Dash

from skiplens.base.errors import SkiplensError
from skiplens.explorer.control import words_of
from skiplens.explorer.exports import TYPES, exported
from skiplens.explorer.guard import COOKIE_DAYS, MOST_BODY_BYTES, UPDATES, Guard, Visitor, is_update
from skiplens.explorer.measurements import Measurements
from skiplens.explorer.page.callbacks import Callbacks, layout
from skiplens.explorer.page.panes import draw
from skiplens.explorer.view import UnknownViewError, View, view_named
from skiplens.explorer.views.runs_folder import PAGES, RunsFolder, load_page, load_report
from skiplens.report.page import page_script, plotly_zipped, resource

_SCRIPTS = ("elements", "plots", "numbers", "copying")

_POLICY = (
    "default-src 'none'; script-src 'self' {hashes}; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "font-src 'self' data:; connect-src 'self'; frame-src 'self'; form-action 'none'; base-uri 'none'; "
    "frame-ancestors 'none'"
)

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}

_REPORT_POLICY = (
    "sandbox allow-scripts allow-downloads; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:; form-action 'none'; base-uri 'none'; frame-ancestors 'self'"
)  # of a report in its frame: it has no origin, and can neither read this server nor be framed by another page


def make_app(views: Sequence[View], guard: Guard, runs: RunsFolder | None = None) -> Dash:
    """The whole application; it can be served, or asked by a test without a server.

    `runs` has the files that can be downloaded, and refuses all other names.
    """
    server = flask.Flask("skiplens.explorer", static_folder=None)
    server.config["MAX_CONTENT_LENGTH"] = MOST_BODY_BYTES
    app = Dash(
        __name__,
        server=server,
        title="Skiplens explorer",
        update_title="",
        index_string=_asset("index.html"),
        serve_locally=True,
        include_assets_files=False,
        suppress_callback_exceptions=True,
        add_log_handler=False,
        enable_mcp=False,
        meta_tags=[{"name": "viewport", "content": "width=device-width, initial-scale=1"}],
    )
    app.enable_dev_tools(debug=False, dev_tools_disable_version_check=True)  # it would ask a server of Plotly's
    measurements = Measurements()
    app.layout = layout(views)
    Callbacks(views, measurements).register(app)
    _add_guards(server, guard, app)
    _add_look(server)
    _add_exports(server, views, measurements)
    server.register_error_handler(UnknownViewError, lambda error: _message(str(error)))
    if runs is not None:
        _add_files(server, runs)
    policy = _POLICY.format(hashes=" ".join(app.csp_hashes()))

    @server.after_request
    def with_headers(response: flask.Response) -> flask.Response:
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
        response.headers.setdefault("Content-Security-Policy", policy)
        if not flask.request.path.startswith("/_dash-component-suites"):
            response.headers.setdefault("Cache-Control", "no-store")
        return response

    return app


def _add_guards(server: flask.Flask, guard: Guard, app: Dash) -> None:
    """Before every answer: may this visitor ask, and is it something that the page asks?"""

    @server.before_request
    def check_visitor() -> flask.Response | None:
        request = flask.request
        visitor = Visitor(
            request.host,
            request.headers.get("Sec-Fetch-Site", ""),
            request.headers.get("Sec-Fetch-Mode", ""),
            request.args.get("token", ""),
            request.cookies.get(guard.cookie_name, ""),
            request.path,
        )
        refusal = guard.refusal(visitor)
        if refusal:
            return _message(refusal, 403)
        return _welcome(guard) if guard.knows(visitor.token) else None

    @server.before_request
    def check_update() -> flask.Response | None:
        if flask.request.path != UPDATES:
            return None
        try:
            is_ours = is_update(flask.request.get_json(silent=True), app.callback_map)
        except RecursionError:  # brackets in brackets without an end
            is_ours = False
        return None if is_ours else _message("This is no request of the explorer's page.", 400)


def _welcome(guard: Guard) -> flask.Response:
    """Move the token from the address into a cookie.

    By a page and not by a redirection: after one, a browser that came from elsewhere keeps a strict cookie to itself.
    """
    others = [(name, value) for name, value in flask.request.args.items(multi=True) if name != "token"]
    address = f"{quote(flask.request.path)}{f'?{urlencode(others)}' if others else ''}"
    page = f'<!doctype html><meta http-equiv="refresh" content="0; url={escape(address)}"><title>Skiplens</title>'
    response = flask.Response(page, mimetype="text/html")
    age = COOKIE_DAYS * 24 * 3600
    response.set_cookie(guard.cookie_name, guard.token, max_age=age, httponly=True, samesite="Strict")
    return response


def _add_look(server: flask.Flask) -> None:
    """The colours, plots and copying of the report, and what the explorer adds to them."""
    texts: dict[str, tuple[Callable[[], str], str]] = {
        "look.css": (lambda: resource("report.css") + _asset("explorer.css"), "text/css"),
        "theme.js": (lambda: _asset("theme.js"), "text/javascript"),
        "page.js": (lambda: page_script(_SCRIPTS, _asset("explorer.js")), "text/javascript"),
        "plotly.js": (lambda: gzip.decompress(plotly_zipped()).decode(), "text/javascript"),
    }

    @server.get("/<any('look.css','theme.js','page.js','plotly.js'):name>")
    def look(name: str) -> flask.Response:
        text, kind = texts[name]
        response = flask.Response(text(), mimetype=kind)
        response.headers["Cache-Control"] = "private, max-age=3600" if name == "plotly.js" else "no-cache"
        return response


def _asset(name: str) -> str:
    return files("skiplens.explorer.page").joinpath("assets", name).read_text(encoding="utf-8")


def _add_exports(server: flask.Flask, views: Sequence[View], measurements: Measurements) -> None:
    @server.get("/export/<view>/<name>.<ending>")
    def export(view: str, name: str, ending: str) -> flask.Response:
        words = words_of(flask.request.query_string.decode(errors="replace"))
        drawn = draw(view_named(views, view), words, measurements, wait=True)
        try:
            content = exported(drawn.drawing, name, ending)
        except SkiplensError as error:
            return _message(drawn.problem or str(error))
        response = flask.Response(content, content_type=TYPES[ending])
        response.headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(name, safe='')}.{ending}"
        return response


def _add_files(server: flask.Flask, runs: RunsFolder) -> None:
    @server.get("/report")
    def report() -> flask.Response:
        """The page of a run: of a report made here from its readings, else as it was written; neither may ask us."""
        try:
            run = runs.run(flask.request.args.get("name", ""))
            saved = "" if run.kind == "report" else load_page(runs.file(f"{run.word}/{PAGES[run.kind]}"))
            response = flask.Response(saved or load_report(run.path).to_html(), mimetype="text/html")
        except (SkiplensError, OSError) as error:
            return _message(str(error) if isinstance(error, SkiplensError) else "There is no such report.")
        response.headers["Content-Security-Policy"] = _REPORT_POLICY
        response.headers["X-Frame-Options"] = "SAMEORIGIN"
        return response

    @server.get("/files")
    def file() -> flask.Response:
        try:
            path = runs.file(flask.request.args.get("name", ""))
            response = flask.send_file(path, mimetype="application/octet-stream", as_attachment=True)
        except (SkiplensError, OSError) as error:
            return _message(str(error) if isinstance(error, SkiplensError) else "There is no such file.")
        response.headers["Content-Security-Policy"] = "sandbox; default-src 'none'"
        response.headers["Cache-Control"] = "no-store"
        return response


def _message(text: str, status: int = 404) -> flask.Response:
    return flask.Response(f"{text}\n", status, mimetype="text/plain")
