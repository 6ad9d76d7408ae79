"""What every view of the catalogue must do; a new view is in these tests as soon as it is in the catalogue."""

import json
import math

import pytest

from skiplens.base.errors import SkiplensError
from skiplens.explorer.control import Choice, Slider, Switch, query_of, read, words_of
from skiplens.explorer.exports import csv_text, figure_rows
from skiplens.explorer.view import View
from skiplens.explorer.views import theory_views
from skiplens.plots.plotly_json import plotly_json

VIEWS = theory_views()


def corners(view: View) -> list[dict[str, str]]:
    """The defaults, and each control at its ends with the others at their defaults."""
    found: list[dict[str, str]] = [{}]
    for control in view.controls({}):
        ends: tuple = ()
        if isinstance(control, Slider):
            ends = (int(control.low), int(control.high)) if control.whole else (control.low, control.high)
        elif isinstance(control, Choice):
            ends = tuple(name for name, _ in control.options)
        elif isinstance(control, Switch):
            ends = (True, False)
        found += [_with_its_condition(view, control) | {control.name: control.words(end)} for end in ends]
    return found


def _with_its_condition(view: View, control) -> dict[str, str]:
    """The values of other controls for which this one is shown."""
    if control.only_when is None:
        return {}
    name, (wanted, *_) = control.only_when
    other = next(other for other in view.controls({}) if other.name == name)
    return _with_its_condition(view, other) | {name: other.words(wanted)}


CASES = [pytest.param(view, words, id=f"{view.name}{words}") for view in VIEWS for words in corners(view)]


@pytest.mark.parametrize(("view", "words"), CASES)
def test_it_is_drawn_at_the_ends_of_every_control(view, words):
    state = read(view.controls(words), words)
    assert not state.refused and not state.unknown
    try:
        drawing = view.draw(state.values)
    except SkiplensError as error:
        assert str(error)
        return
    assert drawing.says and drawing.code
    assert len({figure.name for figure in drawing.figures}) == len(drawing.figures)
    assert drawing.figures or view.measurement(state.values) is not None
    for figure in drawing.figures:
        json.dumps(plotly_json(figure), allow_nan=False)
        assert csv_text(figure_rows(figure)).count("\n") > 1
        assert figure.title and figure.caption and figure.x_label and figure.y_label
        assert any(
            math.isfinite(value) for row in figure_rows(figure) for value in row.values() if isinstance(value, float)
        )


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_its_code_runs_by_itself(view):
    state = read(view.controls({}), {})
    names: dict = {}
    exec(view.draw(state.values).code, names)
    assert "result" in names


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_a_link_restores_it(view):
    controls = view.controls({})
    for words in corners(view):
        values = read(controls, words).values
        assert read(controls, words_of(query_of(controls, values))).values == values


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_every_control_has_help_a_range_and_a_default_inside_of_it(view):
    names = [control.name for control in view.controls({})]
    assert len(set(names)) == len(names)
    for control in view.controls({}):
        assert control.help.endswith((".", "?")) and control.label
        assert control.parse(control.words(control.default)) == control.default
        if isinstance(control, Slider):
            assert control.low < control.high and (control.low > 0 or not control.logarithmic)
        if control.only_when is not None:
            assert names.index(control.only_when[0]) < names.index(control.name)


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_it_says_what_it_is(view):
    assert view.name.isidentifier() and view.title and view.lead.endswith((".", "?"))
