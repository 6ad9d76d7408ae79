import time

import pytest

from skiplens.readings.store import Store
from skiplens.sweeps.executor import ThisProcess
from skiplens.sweeps.run import Run
from skiplens.sweeps.sweep import Status, sweep
from tests.sweeps.measures import Probe


@pytest.mark.parametrize(
    ("standing", "words"),
    [
        (Status(0, 0, 0, 9), "0 of 9 runs done"),
        (Status(3, 2, 1, 9, 61.0), "3 of 9 runs done, 2 running, 1 failed, about 61 s left"),
        (Status(3, 2, 0, 9, 600.0), "3 of 9 runs done, 2 running, about 10 min left"),
        (Status(3, 0, 0, 9, 9000.0), "3 of 9 runs done, about 2.5 h left"),
        (Status(8, 0, 1, 9, 0.0), "8 of 9 runs done, 1 failed"),
    ],
)
def test_in_words(standing, words):
    assert str(standing) == words


@pytest.fixture
def takes_six_seconds(monkeypatch):
    """An executor in which each run takes six seconds."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    class Takes(ThisProcess):
        def outcomes(self, queue, running):
            for outcome in super().outcomes(queue, running):
                now[0] += 6.0
                yield outcome

    return Takes()


def test_the_time_left_follows_the_cost(tmp_path, takes_six_seconds):
    costs, told = (4.0, 6.0), []
    chosen = [Run("tests.sweeps.measures:draw", Probe(seed=int(cost)), cost=cost) for cost in costs]
    sweep(chosen, Store(tmp_path), takes_six_seconds, told.append)
    left = [status.seconds_left for status in told]
    assert left[0] is None and left[-1] == 0.0
    assert pytest.approx(4.0) in left  # 6 s for the 6 units of 10 that come first


def test_measures_whose_costs_are_in_other_units_count_alike(tmp_path, takes_six_seconds):
    """A million products of one against a repetition of another: the other is not done in no time."""
    costs, told = {"draw": 1e6, "fail_at_three": 1.0}, []
    chosen = [
        Run(f"tests.sweeps.measures:{name}", Probe(seed=seed), cost=cost)
        for name, cost in costs.items()
        for seed in range(3)
    ]
    sweep(chosen, Store(tmp_path), takes_six_seconds, told.append)
    left = [status.seconds_left for status in told if status.done == 3]
    assert left == [pytest.approx(18.0)] * len(left) and left
