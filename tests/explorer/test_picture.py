"""From an address to the figures that the page draws there."""

import json
import time

import pytest
from plotly.basedatatypes import BaseFigure

from skiplens.base.errors import InvalidInputError
from skiplens.explorer.exports import picture, picture_code
from skiplens.explorer.measurements import Measurements
from skiplens.explorer.page.callbacks import Callbacks
from skiplens.explorer.views import theory_views
from skiplens.explorer.views.runs import RunsView

ADDRESSES = (
    "/paths",
    "/paths?depth=30&given=scale&scale=0.3&width=16&gate=0.25",
    "/paths?look_at=network&model=tangent_resnet&factor=2&seed=3",
    "/curvature",
    "/curvature?depth=4&branch_depth=1&width=3&seed=2",
    "/jacobians",
    "/jacobians?topic=block&width=40&seed=5",
    "/jacobians?topic=theorem",
    pytest.param("/jacobians?topic=block&mnist=on&scale=0.5", marks=pytest.mark.slow),
    "/tangent",
    "/tangent?sampled=off&architecture=densenet&depth=7&mark=0.5",
    "/tangent?architecture=vanilla&depth=4&width=30&networks=10&seed=2&trained=all",
)


def parts_of(node, kind):
    """All parts of a page of this kind, in their order."""
    if isinstance(node, list | tuple):
        return [found for child in node for found in parts_of(child, kind)]
    if not hasattr(node, "children"):
        return []
    return [*([node] if type(node).__name__ == kind else []), *parts_of(node.children, kind)]


class Awaited(Measurements):
    """Measurements that are over when they are asked for."""

    def ask(self, view, values):
        while not (standing := super().ask(view, values)).is_over:
            time.sleep(0.02)
        return standing


def page_at(address):
    """The main figure and everything below it, as the callbacks of the page give them for an address."""
    callbacks = Callbacks([*theory_views(), RunsView()], Awaited())
    opened, *_ = callbacks.open(*address.split("?", 1)) if "?" in address else callbacks.open(address, "")
    drawn = callbacks.draw(opened, {}, {"rows": [], "shown": None}, None)
    _, hero, rest, progress = drawn["panes"]
    assert progress == []
    return [hero, rest]


def figures_on(page):
    """What the script of the page draws: the title above each figure, and its JSON."""
    return [
        (title.children, json.loads(script.children))
        for title, script in zip(parts_of(page, "H3"), parts_of(page, "Script"), strict=True)
    ]


def without_empty(layout):
    return {name: entry for name, entry in layout.items() if entry != []}


@pytest.mark.slow
@pytest.mark.parametrize("address", ADDRESSES)
def test_the_figures_are_those_of_the_page(address):
    wanted = figures_on(page_at(address))
    made = [json.loads(figure.to_json()) for figure in picture(address)]
    assert len(made) == len(wanted) > 0
    for figure, (title, shown) in zip(made, wanted, strict=True):
        ink = json.dumps(shown["data"]).replace('"color": "ink"', '"color": "black"')
        assert figure["data"] == json.loads(ink)
        assert figure["layout"].pop("title")["text"] == title
        assert figure["layout"].pop("template")
        assert figure["layout"]["margin"].pop("t") > shown["layout"]["margin"].pop("t")
        assert without_empty(figure["layout"]) == without_empty(shown["layout"])


def test_every_view_is_compared_at_its_defaults_and_elsewhere():
    for view in theory_views():
        assert sum(f"/{view.name}" in str(address) for address in ADDRESSES) >= 2


def test_other_values_make_other_figures():
    assert picture("/paths?depth=30") != picture("/paths?depth=31")


@pytest.mark.parametrize("address", ["http://127.0.0.1:8050/paths?depth=30#top", "paths?depth=30", "/paths/?depth=30"])
def test_the_server_before_the_path_means_nothing(address):
    assert picture(address) == picture("/paths?depth=30")


@pytest.mark.parametrize("address", ["/paths?depth=30&beta=2", "/tangent?networks=5", "/jacobians", "/curvature"])
def test_the_lines_on_the_page_draw_its_figures(address, monkeypatch):
    shown = []
    monkeypatch.setattr(BaseFigure, "show", lambda figure: shown.append(figure))
    page = page_at(address)
    lines, numbers = [part.children for part in parts_of(page, "Code")]
    exec(lines, {})
    assert len([line for line in lines.splitlines() if line]) == 3
    assert "result = " in numbers
    assert tuple(shown) == picture(address) and len(shown) == len(figures_on(page))


def test_a_view_of_files_has_no_such_lines():
    assert picture_code(RunsView(), "?run=mine") == ""


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("/none", "There is no view 'none'; choose one of paths, curvature, jacobians, tangent"),
        ("/", "There is no view ''; choose one of paths"),
        ("/runs?run=mine", "There is no view 'runs'; choose one of paths"),
        ("/paths?deep=3", "The view 'paths' has no control 'deep'; it has look_at, depth, given"),
        ("/paths?depth=1e9", "depth: '1e9' is outside of the range. Give a whole number from 2 to 1000"),
        ("/paths?depth", "depth: '' is no number"),
        ("/tangent?architecture=resnets", "architecture: There is no 'resnets'. Did you mean resnet or densenet"),
        ("/tangent?sampled=1", "sampled: '1' is neither on nor off"),
        ("http://[/paths", "is no address .* give one as the browser shows it"),
        (f"/paths?{'&'.join(f'a{number}=1' for number in range(200))}", "has no words that can be read"),
    ],
)
def test_a_wrong_address_is_told_with_what_there_is(address, message):
    with pytest.raises(InvalidInputError, match=message.replace("?", r"\?")):
        picture(address)
