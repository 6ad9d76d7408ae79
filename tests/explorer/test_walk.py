"""Guided walks: every step can be taken, and its sentence has the numbers that the page shows there."""

import re

import pytest

from skiplens.explorer.control import read, words_of
from skiplens.explorer.measurements import Measurements
from skiplens.explorer.page.panes import draw, walk_pane
from skiplens.explorer.view import Drawing
from skiplens.explorer.views import theory_views
from skiplens.explorer.views.runs import RunsView
from skiplens.explorer.walk import WALKS, Step, canonical, place

VIEWS = {view.name: view for view in theory_views()}
STEPS = [
    pytest.param(VIEWS[name], number, step, id=f"{name}-{number + 1}")
    for name, (_, steps) in WALKS.items()
    for number, step in enumerate(steps)
]


def test_every_paper_has_six_steps_and_one_that_is_false_in_print():
    assert set(WALKS) == set(VIEWS)
    for _, steps in WALKS.values():
        assert len(steps) == 6
        assert any(step.false_in_print for step in steps)


@pytest.mark.parametrize(("view", "number", "step"), STEPS)
def test_a_step_stands_where_it_says(view, number, step):
    words = words_of(step.query)
    state = read(view.controls(words), words)
    assert not state.refused and not state.unknown
    assert place(view, canonical(view, step.query)) == number  # no other step stands there
    if view.measurement(state.values) is None:
        drawing = view.draw(state.values)
        told = step.told(drawing)
        assert "…" not in told and "{" not in told
        facts = dict(drawing.facts)
        for label in re.findall(r"{([^}]+)}", step.words):
            assert facts[label] in told


def test_what_the_paper_says_is_wrong_by_the_numbers_of_the_page():
    """The sentences that call something false, against the drawing they stand beside."""

    def facts(name, number):
        view, step = VIEWS[name], WALKS[name][1][number]
        return dict(view.draw(read(view.controls({}), words_of(step.query)).values).facts)

    assert facts("curvature", 2)["directions down at zero"] == "50 %"
    harmonic = sum(1 / layer for layer in range(1, 6))  # errata, Littwin & Wolf 2020, no. 7
    assert float(facts("tangent", 4)["kernel at equal inputs"]) == pytest.approx(harmonic, rel=5e-3)
    assert facts("paths", 4)["complexity θ"] == "0"
    assert facts("jacobians", 5)["hypotheses that hold"] == "18 of 18"


def test_a_number_that_is_not_there_yet_is_an_ellipsis():
    assert Step("", "It is {depth}.").told(Drawing()) == "It is …."


def test_the_page_marks_the_step_and_tells_it():
    view = VIEWS["curvature"]
    pane = walk_pane(draw(view, words_of(WALKS["curvature"][1][2].query), Measurements()))[0].to_plotly_json()
    text = str(pane)
    assert "What is printed is false." in text and "50 % of all directions go down" in text
    beside = str(walk_pane(draw(view, {"depth": "7"}, Measurements()))[0].to_plotly_json())
    assert "Guided walk" in beside and "aria-current" not in beside
    assert walk_pane(draw(RunsView(), {}, Measurements())) == []
