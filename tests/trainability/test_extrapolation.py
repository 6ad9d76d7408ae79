"""The line from first losses to later ones."""

import math

import numpy as np
import pytest

from skiplens.trainability.extrapolation import Fit, Situation, candidates, fitted_line, trial_features
from skiplens.trainability.pilot import Pilot, Trial

FRESH = Situation(guess=2.0, epoch=math.inf)


def pilot(*trials):
    return Pilot(tuple(trials), 0)


def test_the_line_is_that_of_ridge_regression():
    generator = np.random.default_rng(0)
    table = generator.standard_normal((50, 3)) * [1.0, 10.0, 0.1] + [0.0, 5.0, 1.0]
    targets = table @ [1.0, 0.2, -3.0] + 4 + 0.1 * generator.standard_normal(50)
    rows = [dict(zip("abc", row, strict=True)) for row in table]
    exact = fitted_line(rows, targets, ridge=0.0)
    weights = np.linalg.lstsq(np.column_stack([table, np.ones(50)]), targets, rcond=None)[0]
    for row, values in zip(rows[:5], table, strict=False):
        assert exact.predict(row)[0] == pytest.approx(min(2.0, max(-7.0, values @ weights[:3] + weights[3])), rel=1e-4)
    shrunk = fitted_line(rows, targets, ridge=1e6)
    assert shrunk.predict(rows[0])[0] == pytest.approx(min(2.0, targets.mean()), rel=1e-3)


def test_a_fit_is_kept_as_json():
    fit = Fit(("a",), np.ones(1), np.ones(1), np.ones(1), 0.5, np.zeros(2), -np.ones(2), np.ones(2))
    assert Fit.from_json(fit.to_json()).predict({"a": 1.3}) == pytest.approx(fit.predict({"a": 1.3}))


def test_losses_in_units_of_a_guess():
    trial = Trial(0.1, [2.0] * 4 + [1.0] * 4)
    found = trial_features(pilot(trial), trial, FRESH, 80)
    assert found["start"] == 0.0
    assert found["level"] == pytest.approx(-math.log(2))
    assert found["ahead"] == pytest.approx(math.log(10))
    assert found["times seen"] == 0.0
    twice = Trial(0.1, [4.0] * 4 + [2.0] * 4)
    assert trial_features(pilot(twice), twice, Situation(4.0, math.inf), 80) == pytest.approx(found, nan_ok=True)


def test_neighbours_are_compared_after_as_many_steps():
    short, here, gone = Trial(0.1, [2.0, 1.5]), Trial(0.2, [2.0, 1.0, 0.1, 0.1, 0.1]), Trial(0.3, [2.0, 9.0], True)
    found = trial_features(pilot(short, here, gone), here, FRESH, 10)
    assert found["below"] == pytest.approx((math.log(1.5) - math.log(1.0)) / 2)
    assert found["above"] == 2.0
    assert found["to the edge"] == 1.0
    assert trial_features(pilot(short, here), here, FRESH, 10)["to the edge"] == 4.0


def test_only_those_that_went_far_are_advised():
    trials = Trial(0.1, [1.0] * 4), Trial(0.2, [1.0] * 12), Trial(0.3, [1.0] * 36), Trial(0.4, [1.0] * 36, True)
    assert candidates(pilot(*trials)) == [trials[1], trials[2]]


def test_predictions_stay_where_they_mean_something():
    fit = Fit(("a",), np.zeros(1), np.ones(1), np.full(1, 100.0), 0.0, np.zeros(1), np.zeros(1), np.zeros(1))
    assert fit.predict({"a": 1.0})[0] == 2.0
    assert fit.predict({"a": -1.0})[0] == -7.0


def test_what_could_not_be_read_says_nothing():
    fit = Fit(("a", "b"), np.array([1.0, 3.0]), np.ones(2), np.ones(2), 0.5, np.zeros(1), np.zeros(1), np.zeros(1))
    assert fit.predict({"a": 1.5, "b": math.nan})[0] == pytest.approx(1.0)
