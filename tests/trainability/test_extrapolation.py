"""The line from first losses to later ones."""

import math

import numpy as np
import pytest
from scipy.optimize import linprog

from benchmarks.trainability.fit import as_json, fitted_line
from skiplens.trainability.extrapolation import LOWEST, Fit, Situation, advised, candidates, trial_features
from skiplens.trainability.pilot import Pilot, Trial

FRESH = Situation(guess=2.0, epoch=math.inf)


def pilot(*trials):
    return Pilot(tuple(trials), 0)


def test_the_line_misses_by_the_least_in_sum():
    generator = np.random.default_rng(0)
    table = generator.standard_normal((61, 2)) * [1.0, 10.0] + [0.0, 5.0]
    targets = np.clip(table @ [1.0, 0.2] - 1 + 0.3 * generator.standard_t(2, 61), -6, 1.5)
    found = fitted_line([dict(zip("ab", row, strict=True)) for row in table], targets, ridge=0.0)
    # the same as a linear program: targets = line + above - below, with the least above + below
    columns = np.column_stack([table, np.ones(61)])
    costs = np.concatenate([np.zeros(3), np.ones(122)])
    exact = linprog(
        costs,
        A_eq=np.hstack([columns, np.eye(61), -np.eye(61)]),
        b_eq=targets,
        bounds=[(None, None)] * 3 + [(0, None)] * 122,
    )
    line = (table - found.centres) / found.scales @ found.weights + found.offset
    assert np.abs(targets - line).sum() == pytest.approx(exact.fun, rel=0.01)
    shrunk = fitted_line([dict(zip("ab", row, strict=True)) for row in table], targets, ridge=1e9)
    assert shrunk.offset == pytest.approx(np.median(targets), abs=0.05)
    assert np.abs(shrunk.weights).max() < 1e-6


def test_a_fit_is_kept_as_json():
    fit = Fit(("a",), np.ones(1), np.ones(1), np.ones(1), 0.5, np.zeros(2), -np.ones(2), np.ones(2))
    assert Fit.from_json(as_json(fit)).predict({"a": 1.3}) == pytest.approx(fit.predict({"a": 1.3}))


def test_an_interval_is_open_below_what_losses_were_cut_at():
    """The fit has never seen how far below a thousandth of a guess a loss may end."""
    fit = Fit(("a",), np.zeros(1), np.ones(1), np.ones(1), 0.0, np.zeros(2), -np.ones(2), np.ones(2))
    assert fit.predict({"a": LOWEST + 1.5}) == (LOWEST + 1.5, LOWEST + 0.5, LOWEST + 2.5)
    for level in (LOWEST + 0.5, LOWEST, LOWEST - 3):
        centre, low, high = fit.predict({"a": level})
        assert (centre, low, high) == (max(level, LOWEST), -math.inf, max(level, LOWEST) + 1)


def test_losses_in_units_of_a_guess():
    trial = Trial(0.1, [2.0] * 6 + [1.0] * 2)
    found = trial_features(pilot(trial), trial, FRESH, 80)
    level = -2 / 3 * math.log(2)  # the last quarter has two steps, and three are the least
    assert found == pytest.approx(
        {"level": level, "moved": 1.0, "moved x ahead": math.log(10), "moved x by heart": 0.0}
    )
    twice = Trial(0.1, [4.0] * 6 + [2.0] * 2)
    assert trial_features(pilot(twice), twice, Situation(4.0, math.inf), 80) == pytest.approx(found)


def test_what_is_stuck_is_not_expected_to_move():
    stuck = Trial(0.1, [2.0] * 8)
    assert trial_features(pilot(stuck), stuck, Situation(2.0, 10, share=0.5), 1000) == {
        "level": 0.0,
        "moved": 0.0,
        "moved x ahead": 0.0,
        "moved x by heart": 0.0,
    }


def test_what_is_left_to_learn_by_heart():
    trial = Trial(0.1, [1.0] * 8)
    often = Situation(2.0, epoch=10, share=0.25)
    found = trial_features(pilot(trial), trial, often, 80)
    assert found["moved x by heart"] == pytest.approx(math.log(9) * math.log(4))
    assert trial_features(pilot(trial), trial, Situation(2.0, epoch=10), 80)["moved x by heart"] == 0.0  # all was met


def test_all_trials_of_a_pilot_have_as_far_to_go():
    short, far = Trial(0.1, [1.0] * 10), Trial(0.2, [1.0] * 20)
    both = pilot(short, far)
    assert trial_features(both, short, FRESH, 80) == trial_features(both, far, FRESH, 80)
    assert trial_features(both, far, FRESH, 5)["moved x ahead"] == 0.0


def test_the_smaller_rate_is_advised_of_two_that_are_close():
    def tried(*ends):
        return pilot(*(Trial(0.1 * 2**place, [2.0] * 6 + [end] * 6) for place, end in enumerate(ends)))

    assert advised(tried(1.0, 0.95, 0.5), FRESH).losses[-1] == 0.5
    close = tried(1.0, 0.52, 0.5, 0.9)
    assert advised(close, FRESH) is close.trials[1]
    assert advised(pilot(Trial(0.1, [2.0, math.nan], True)), FRESH) is None


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
