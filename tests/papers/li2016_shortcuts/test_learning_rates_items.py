"""Figures 7 and 8 from one command at the smallest preset."""

import pytest

from skiplens.papers.li2016_shortcuts import fig7, fig8
from skiplens.papers.reproduction import ReproductionEffort, reproduce
from skiplens.papers.study import choose

CERTAIN_AT_SMOKE = {
    "fig7": {"close_to_optimal", "lowest", "xavier", "high_rate", "falling_rate", "three_stay"},
    "fig8": {"deeper", "trend"},
}
"""What even the smallest preset reproduces, whatever the seed."""


@pytest.mark.parametrize("item", ["fig7", "fig8"])
def test_the_smallest_preset(item, tmp_path, seed):
    found = reproduce(choose(f"li2016_shortcuts/{item}"), tmp_path, ReproductionEffort("smoke", seed))
    (result,) = found.results
    assert not result.problems
    words = {verdict.claim: verdict.verdict for verdict in result.verdicts}
    assert {name for name in CERTAIN_AT_SMOKE[item] if words[name] != "reproduced"} == set(), words
    assert set(words.values()) <= {"reproduced", "not attempted"}
    assert len(result.figures) == 3 and len(result.tables) == 1


def test_grids_are_have_all_depths_and_rates():
    linear, rectified = fig7.runs("laptop", 0), fig8.runs("laptop", 0)
    assert len(linear) == 30 and len(rectified) == 15
    assert {len(run.settings.exponents) for run in linear} == {21}
    assert {len(run.settings.exponents) for run in rectified} == {9}
    assert {run.settings.depth for run in linear if run.settings.family == "3-shortcut"} == {6, 12, 18, 33, 66, 96}
    assert {run.settings.epochs for run in [*linear, *rectified]} == {1000}
    assert len({run.key for run in [*linear, *rectified, *fig7.runs("laptop", 1)]}) == 75
