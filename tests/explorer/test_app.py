"""The server without a browser: who is let in, what it answers, and what it never gives away."""

import csv
import io
import json

import pytest

from skiplens.explorer.guard import MOST_BODY_BYTES, Guard
from skiplens.explorer.page.app import make_app
from skiplens.explorer.views.paths import PathsView
from skiplens.explorer.views.runs import RunsView
from skiplens.explorer.views.runs_folder import RunsFolder
from skiplens.report.inspection import Report
from tests.explorer.run_folders import HOSTILE, report, write_comparison, write_gallery, write_report

HERE = {"Host": "127.0.0.1:8050"}


@pytest.fixture
def root(tmp_path):
    write_report(tmp_path / "runs" / "mine", report())
    (tmp_path / "secret.txt").write_text("secret")
    return tmp_path / "runs"


def client_of(root, guard):
    folder = RunsFolder(root)
    return make_app((PathsView(), RunsView(folder)), guard, folder).server.test_client()


@pytest.fixture
def client(root):
    return client_of(root, Guard("127.0.0.1", 8050))


@pytest.fixture
def guarded(root):
    return client_of(root, Guard("0.0.0.0", 8050, "the-token"))


PLACES = ("/", "/paths", "/look.css", "/page.js", "/theme.js", "/plotly.js", "/_dash-layout", "/_dash-dependencies")


@pytest.mark.parametrize("place", PLACES)
def test_everything_a_page_needs_is_on_this_server(client, place):
    assert client.get(place, headers=HERE).status_code == 200


def test_no_page_may_load_anything_from_elsewhere(client):
    response = client.get("/", headers=HERE)
    policy = response.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "http" not in policy and "'unsafe-eval'" not in policy
    assert "connect-src 'self'" in policy and "frame-ancestors 'none'" in policy
    scripts = [part for part in policy.split("; ") if part.startswith("script-src")]
    assert "unsafe-inline" not in scripts[0]
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Referrer-Policy"] == "no-referrer"
    assert 'src="http' not in response.text and 'href="http' not in response.text


@pytest.mark.parametrize("place", [*PLACES, "/export/paths/path_weights.csv", "/files?name=mine/readings.json"])
class TestGuard:
    def test_without_the_token_nothing_is_given(self, guarded, place):
        response = guarded.get(place)
        assert response.status_code == 403 and "asks for its token" in response.text
        assert "Set-Cookie" not in response.headers

    def test_a_wrong_token_is_none(self, guarded, place):
        join = "&" if "?" in place else "?"
        assert guarded.get(f"{place}{join}token=wrong").status_code == 403

    def test_with_the_cookie_everything_is(self, guarded, place):
        guarded.set_cookie("skiplens_explorer_8050", "the-token")
        assert guarded.get(place, buffered=True).status_code == 200

    def test_a_name_that_a_stranger_has_pointed_here_is_refused(self, client, place):
        assert client.get(place, headers={"Host": "evil.example:8050"}).status_code == 403

    def test_another_page_gets_nothing(self, client, place):
        headers = {**HERE, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
        assert client.get(place, headers=headers).status_code == 403

    @pytest.mark.parametrize("site", ["same-site", "cross-site"])
    def test_another_page_may_link_to_the_start_alone(self, client, place, site):
        headers = {**HERE, "Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate"}
        assert client.get(place, headers=headers, buffered=True).status_code == (200 if place == "/" else 403)

    @pytest.mark.parametrize("site", ["same-origin", "none"])
    def test_this_page_and_the_address_bar_may_open_everything(self, client, place, site):
        headers = {**HERE, "Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate"}
        assert client.get(place, headers=headers, buffered=True).status_code == 200


def test_the_link_with_the_token_opens_from_another_page(guarded):
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert "Set-Cookie" in guarded.get("/?token=the-token", headers=headers).headers
    assert guarded.get("/paths?token=the-token", headers=headers).status_code == 403


def test_callbacks_ask_for_the_token_too(guarded):
    assert guarded.post("/_dash-update-component", json={}).status_code == 403


@pytest.mark.parametrize(
    "body",
    [
        *({}, [], None, 1, {"output": []}, {"output": "none"}, {"output": "unused.data"}),
        *({"output": "fields.children", "inputs": inputs} for inputs in ([], [1], {}, None, [{}], [[{"id": "view"}]])),
        {"output": "fields.children", "changedPropIds": 1},
    ],
)
def test_a_request_that_no_page_sends_is_refused_without_a_trace(client, caplog, body):
    response = client.post("/_dash-update-component", json=body, headers=HERE)
    assert (response.status_code, response.mimetype) == (400, "text/plain")
    assert response.text == "This is no request of the explorer's page.\n" and not caplog.records


def test_a_request_without_json_is_refused(client):
    assert client.post("/_dash-update-component", data="{", headers=HERE).status_code == 400


def test_the_token_moves_from_the_address_into_a_cookie(guarded):
    response = guarded.get("/paths?depth=7&token=the-token&beta=%22%3E%3Cscript%3E")
    assert response.status_code == 200
    cookie = response.headers["Set-Cookie"]
    assert cookie.startswith("skiplens_explorer_8050=the-token;")
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
    assert 'url=/paths?depth=7&amp;beta=%22%3E%3Cscript%3E"' in response.text and "the-token" not in response.text
    assert guarded.get("/paths").status_code == 200


class TestExport:
    def test_a_figure_is_a_file(self, client):
        response = client.get("/export/paths/path_weights.csv?depth=3&beta=1", headers=HERE)
        assert response.mimetype == "text/csv"
        assert response.headers["Content-Disposition"].startswith("attachment;")
        rows = [row for row in csv.DictReader(io.StringIO(response.text)) if row["y"]]
        assert [float(row["y"]) for row in rows] == pytest.approx([1 / 6, 4 / 6, 1 / 6])

    @pytest.mark.parametrize(("ending", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
    def test_pictures(self, client, ending, start):
        assert client.get(f"/export/paths/complexity.{ending}", headers=HERE).data.startswith(start)

    @pytest.mark.parametrize("place", ["/export/none/a.csv", "/export/paths/none.csv", "/export/paths/complexity.exe"])
    def test_what_is_not_there_is_told(self, client, place):
        response = client.get(place, headers=HERE)
        assert response.status_code == 404 and response.mimetype == "text/plain" and "no" in response.text


class TestFiles:
    def test_a_file_of_a_run_is_downloaded_and_never_shown(self, client):
        response = client.get("/files?name=mine/readings.json", headers=HERE, buffered=True)
        assert json.loads(response.text)["title"] == "Net"
        assert response.headers["Content-Disposition"].startswith("attachment")
        assert response.mimetype == "application/octet-stream"
        assert response.headers["Content-Security-Policy"].startswith("sandbox")
        assert response.headers["Cache-Control"] == "no-store"

    @pytest.mark.parametrize(
        "name",
        [
            "../secret.txt",
            "..%2fsecret.txt",
            "%252e%252e/secret.txt",
            "/etc/passwd",
            "mine/%00",
            "",
            "mine/../../secret.txt",
        ],
    )
    def test_nothing_outside_of_the_folder_is_given(self, client, name):
        response = client.get(f"/files?name={name}", headers=HERE)
        assert response.status_code == 404 and "secret\n" not in response.text.replace("secret.txt", "")

    def test_without_a_folder_there_are_no_files(self):
        client = make_app((PathsView(), RunsView()), Guard("127.0.0.1", 8050)).server.test_client()
        assert b"{" not in client.get("/files?name=mine/readings.json", headers=HERE).data[:1]


def body_for(client, place, shared, view="paths", fields=()):
    """What the browser sends for the callback that writes `place`: the page's state, as the server has asked for it."""
    dependencies = json.loads(client.get("/_dash-dependencies", headers=HERE).text)
    (asked,) = [one for one in dependencies if place in one["output"] and one["clientside_function"] is None]

    def entry(one, has_value=True):
        name, wanted = one["id"], one["property"]
        if not name.startswith("{"):
            return {"id": name, "property": wanted, **({"value": shared.get(name)} if has_value else {})}
        kind = json.loads(name)["kind"]
        own = fields if kind in ("number", "row", "problem") else ()
        places = [{"kind": kind, "name": field, "view": view} for field in own]
        values = [place if wanted == "id" else fields[place["name"]] for place in places]
        found = zip(places, values, strict=True)
        return [{"id": at, "property": wanted, **({"value": value} if has_value else {})} for at, value in found]

    parts = [part.rsplit(".", 1) for part in asked["output"].strip(".").split("...")]
    outputs = [entry({"id": name, "property": wanted}, has_value=False) for name, wanted in parts]
    return {
        "output": asked["output"],
        "outputs": outputs if asked["output"].startswith("..") else outputs[0],
        "inputs": [entry(one) for one in asked["inputs"]],
        "state": [entry(one) for one in asked["state"]],
        "changedPropIds": ["view.data"],
    }


def update(client, view, words, fields):
    """The answer when a control has moved."""
    body = body_for(client, "words.children", {"view": {"name": view, "words": words}}, view, fields)
    return client.post("/_dash-update-component", json=body, headers=HERE)


SHARED = {
    "address": "/paths",
    "view": {"name": "paths", "words": {"depth": "7"}},
    "query": {"view": "paths", "query": "?depth=7", "asked": [["7"]], "whole": True},
    "measured": 3,
    "clock": 2,
}
CALLBACKS = ("lead.children", "fields.children", "words.children", "measured.data")


@pytest.fixture(scope="module")
def asked_by_a_page(tmp_path_factory):
    """A client, and a request of a page for every callback of the server."""
    client = client_of(tmp_path_factory.mktemp("runs"), Guard("127.0.0.1", 8050))
    return client, [body_for(client, place, SHARED, fields={"depth": "7"}) for place in CALLBACKS]


def test_the_requests_of_a_page_are_answered(asked_by_a_page):
    client, bodies = asked_by_a_page
    for body in bodies:
        assert client.post("/_dash-update-component", json=body, headers=HERE).status_code == 200


def places_in(node, before=()):
    """The way to everything inside of a JSON text."""
    yield before
    for key, child in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield from places_in(child, (*before, key))


def with_instead(node, way, value):
    if not way:
        return value
    copy = dict(node) if isinstance(node, dict) else list(node)
    copy[way[0]] = with_instead(node[way[0]], way[1:], value)
    return copy


WRONG = (*(None, 0, -1.5, True, "", "none", "{", "\ud800", "1e999"), *([], ["a", 1], [[]], {}, {"id": "view"}))


@pytest.mark.slow
@pytest.mark.parametrize("callback", range(len(CALLBACKS)), ids=CALLBACKS)
def test_nothing_wrong_in_a_request_is_a_fault_of_the_server(asked_by_a_page, callback, caplog):
    """Each part of a request of each callback is replaced by each wrong value, one at a time."""
    client, bodies = asked_by_a_page
    for way in places_in(bodies[callback]):
        for value in WRONG:
            body = with_instead(bodies[callback], way, value)
            status = client.post("/_dash-update-component", json=body, headers=HERE).status_code
            assert status < 500, (way, value)
    assert not caplog.records


def test_brackets_without_an_end_are_refused(client):
    for text in ("[" * 100_000, '{"output": ' * 50_000):
        sent = client.post("/_dash-update-component", data=text, headers=HERE, content_type="application/json")
        assert sent.status_code == 400


def test_a_body_that_no_page_would_send_is_not_read(client):
    class Endless(io.RawIOBase):
        taken = 0

        def readable(self):
            return True

        def readinto(self, room):
            self.taken += len(room)
            room[:] = b" " * len(room)
            return len(room)

    announced, in_pieces = {"CONTENT_LENGTH": str(60 * 2**20)}, {"wsgi.input_terminated": True}
    for length, status in ((announced, 413), (in_pieces, 400)):
        body = Endless()
        options = {"environ_overrides": {"wsgi.input": body, "CONTENT_LENGTH": "", **length}, "headers": HERE}
        sent = client.post("/_dash-update-component", content_type="application/json", **options)
        assert sent.status_code == status
        assert body.taken <= 2 * MOST_BODY_BYTES


@pytest.mark.parametrize("name", ["none", ["paths"]])
def test_a_view_that_there_is_not_is_told_in_a_sentence(client, caplog, name):
    response = update(client, name, {}, {})
    assert (response.status_code, response.mimetype) == (404, "text/plain")
    assert response.text == f"There is no view {name!r}; choose one of paths, runs.\n" and not caplog.records


def test_two_pages_with_different_values_do_not_see_each_other(client):
    first = update(client, "paths", {}, {"depth": "7"})
    second = update(client, "paths", {}, {"depth": "9"})
    again = update(client, "paths", {}, {"depth": "7"})
    assert first.status_code == 200, first.text
    assert "Of 7 layers" in first.text and "Of 9 layers" in second.text
    assert first.json == again.json


def test_wrong_words_are_refused_beside_the_field_and_the_default_is_drawn(client):
    text = update(client, "paths", {}, {"depth": "1e9"}).text
    assert "'1e9' is outside of the range" in text and "Of 100 layers" in text


def test_files_to_download_are_counted(root, client):
    assert '"1 file to download"' in update(client, "runs", {"run": "mine"}, {}).text
    (root / "mine" / "report.html").write_text("")
    assert '"2 files to download"' in update(client, "runs", {"run": "mine"}, {}).text


def test_a_hostile_run_is_shown_as_text(root, client):
    write_report(root / HOSTILE, report(HOSTILE))
    word = next(run.word for run in RunsFolder(root).runs() if run.path.name == HOSTILE)
    body = update(client, "runs", {"run": word}, {})
    assert body.status_code == 200, body.text
    (mark,) = body.json["response"]["words"]["children"]
    assert mark["props"]["data-view"] == "runs"
    (frame,) = body.json["response"]["hero"]["children"]
    assert frame["props"]["title"].startswith(f"{HOSTILE}: ")


def test_a_report_is_its_own_page_in_a_frame_without_an_origin(root, client):
    write_report(root / HOSTILE, report(HOSTILE))
    (root / HOSTILE / "report.html").write_text("<script>stolen</script>")
    word = next(run.word for run in RunsFolder(root).runs() if run.path.name == HOSTILE)
    (frame,) = update(client, "runs", {"run": word}, {}).json["response"]["hero"]["children"]
    assert frame["props"]["sandbox"] == "allow-scripts allow-downloads"
    response = client.get(frame["props"]["src"], headers=HERE)
    assert response.status_code == 200
    assert response.text == Report.load(root / HOSTILE).to_html()
    assert "stolen" not in response.text
    assert HOSTILE not in response.text
    policy = response.headers["Content-Security-Policy"]
    assert policy.startswith("sandbox allow-scripts") and "allow-same-origin" not in policy
    assert "default-src 'none'" in policy and "frame-ancestors 'self'" in policy
    assert response.headers["X-Frame-Options"] == "SAMEORIGIN"
    assert client.get("/", headers=HERE).headers["X-Frame-Options"] == "DENY"


@pytest.mark.parametrize(("write", "name"), [(write_gallery, "index.html"), (write_comparison, "comparison.html")])
def test_other_runs_are_their_own_page_in_such_a_frame(root, client, write, name):
    write(root / "other")
    (frame,) = update(client, "runs", {"run": "other"}, {}).json["response"]["hero"]["children"]
    assert frame["props"]["sandbox"] == "allow-scripts allow-downloads"
    response = client.get(frame["props"]["src"], headers=HERE)
    assert response.status_code == 200 and response.text.startswith((root / "other" / name).read_text())
    assert response.headers["Content-Security-Policy"].startswith("sandbox allow-scripts allow-downloads; default-src")


def test_a_page_that_is_a_link_is_not_shown(root, client):
    page = write_comparison(root / "other") / "comparison.html"
    page.unlink()
    page.symlink_to(root.parent / "secret.txt")
    assert client.get("/report?name=other", headers=HERE).status_code == 404


def test_a_huge_page_is_not_opened(root, client, monkeypatch):
    write_comparison(root / "other")
    monkeypatch.setattr("skiplens.explorer.views.runs_folder.MOST_BYTES", 100)
    response = client.get("/report?name=other", headers=HERE)
    assert response.status_code == 404 and "opens files up to 100 B" in response.text


@pytest.mark.parametrize("word", ["", "nothing", "../secret.txt", "mine/readings.json", "%2e%2e"])
def test_no_other_page_is_shown(client, word):
    response = client.get("/report", query_string={"name": word}, headers=HERE)
    assert response.status_code == 404 and "secret\n" not in response.text
