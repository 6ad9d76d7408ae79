"""The page asks how far a measurement is until it hears that it is over: only such an answer stops its clock."""

from dash import no_update

from skiplens.explorer.measurements import Measurements
from skiplens.explorer.page.callbacks import POLL_MILLISECONDS, Callbacks
from skiplens.explorer.views.tangent import TangentView

OPENED = {"name": "tangent", "words": {"sampled": "off"}}


def callbacks():
    return Callbacks([TangentView()], Measurements())


def test_drawing_what_needs_no_measurement_leaves_the_clock_alone():
    """A poll may be under way that saw a measurement: its bar would stay on the page of a stopped clock."""
    drawn = callbacks().draw(OPENED, {}, {"rows": [], "shown": None}, None)
    assert drawn["page"][1] is no_update


def test_drawing_what_is_measured_starts_the_clock():
    drawn = callbacks().draw(OPENED | {"words": {"networks": "5"}}, {}, {"rows": [], "shown": None}, None)
    assert drawn["page"][1] is False


def test_a_poll_clears_the_bar_and_stops_the_clock_when_nothing_is_measured():
    shown = {"view": "tangent", "query": "?sampled=off"}
    assert callbacks().poll(7, OPENED, shown) == [[], 7, True]


def test_a_poll_of_another_view_changes_nothing():
    assert callbacks().poll(7, OPENED, {"view": "paths", "query": ""}) == [no_update] * 3


def test_one_that_is_wanted_outlives_two_lost_polls_and_one_that_is_not_soon_makes_room():
    assert 3 * POLL_MILLISECONDS / 1000 < Measurements()._patience <= 2
