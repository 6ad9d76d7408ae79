"""The fit of the forecast: a family is forecast without having been seen, and what is stored can be read."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.trainability import fit, pilots
from benchmarks.trainability.fit import Case
from skiplens.trainability.extrapolation import Situation
from skiplens.trainability.pilot import Pilot, Trial

FAMILIES = ("plain", "residual", "dense")
GUESS = 2.0


def made(number: int, family: str) -> Case:
    """A start whose pilot ended at some level, and whose training ends lower by as much as all do."""
    generator = np.random.default_rng(number)
    level = -2 * generator.random() - 0.2
    rates = (0.01, 0.1)
    trials = tuple(Trial(rate, [GUESS] * 3 + [GUESS * math.exp(level + rate)] * 9) for rate in rates)
    ends = {rate: GUESS * math.exp(1.2 * level - 0.5 + rate) for rate in rates}
    start = {"trouble": level + 3}
    return Case(
        f"{family} {number}", family, "digits", "adam", 0, ends, {70: Pilot(trials, 70)}, Situation(GUESS, 10, start)
    )


@pytest.fixture
def cases(monkeypatch):
    monkeypatch.setattr(Case, "piloted", lambda case, cost: replace(case.situation, share=0.5))
    return [made(3 * number + place, family) for number in range(8) for place, family in enumerate(FAMILIES)]


def test_a_line_that_all_follow_is_found_and_ends_are_in_the_interval(cases):
    for row in fit.forecasts(cases):
        case = next(case for case in cases if case.network == row["network"])
        if row["method"] == "forecast, 70 steps":
            assert float(row["rate"]) == 0.01  # of two that are close the smaller one
            assert float(row["loss"]) == pytest.approx(case.ends[0.01], rel=0.02)
            assert float(row["score"]) == pytest.approx(-math.log(case.pilots[70].trials[0].losses[-1] / GUESS))
        else:
            assert row["method"] == "forecast, 0 steps" and row["cost"] == "2"


def test_no_forecast_knows_its_own_family(cases):
    before = {(row["method"], row["network"]): row for row in fit.forecasts(cases)}
    changed = [
        replace(case, ends={rate: 0.1 * end for rate, end in case.ends.items()}) if case.family == "plain" else case
        for case in cases
    ]
    for row in fit.forecasts(changed):
        same = row["loss"] == before[row["method"], row["network"]]["loss"]
        assert same == row["network"].startswith("plain")


def test_pilots_are_kept_in_one_file(tmp_path):
    trials = [[0.1, [2.0, 1.2345678], False], [1.0, [2.0, math.inf], True]]
    kept = {"adam 0 70": {"trials": trials, "cost": 3}, "start 0": {"trouble": 1.5}}
    (tmp_path / "a net.json").write_text(json.dumps(kept))
    assert pilots.join(tmp_path, tmp_path / "all.gz") == 1
    found = pilots.stored(tmp_path / "all.gz")["a net"]
    assert found["start 0"] == {"trouble": 1.5}
    assert found["adam 0 70"] == Pilot((Trial(0.1, [2.0, 1.2346]), Trial(1.0, [2.0, math.inf], True)), 3)
