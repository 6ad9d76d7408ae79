import pytest

from skiplens.base.errors import SettingsError
from skiplens.sweeps.sweep import grid
from tests.sweeps.measures import Probe


def test_all_combinations_in_order():
    found = grid(Probe(marks="here"), seed=(1, 2), seconds=(0.5, 1.0))
    assert [(probe.seed, probe.seconds) for probe in found] == [(1, 0.5), (1, 1.0), (2, 0.5), (2, 1.0)]
    assert {probe.marks for probe in found} == {"here"}


def test_no_axis_is_one_combination():
    assert grid(Probe()) == (Probe(),)


def test_an_unknown_axis_offers_the_nearest():
    with pytest.raises(SettingsError, match=r"Probe has no setting 'sead'. Did you mean seed or"):
        grid(Probe(), sead=(1,))
