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


def test_the_time_left_follows_the_cost(tmp_path, monkeypatch):
    now, told = [0.0], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    class Takes(ThisProcess):
        def outcomes(self, queue, running):
            for outcome in super().outcomes(queue, running):
                now[0] += 6.0
                yield outcome

    costs = (4.0, 6.0)
    chosen = [Run("tests.sweeps.measures:draw", Probe(seed=int(cost)), cost=cost) for cost in costs]
    sweep(chosen, Store(tmp_path), Takes(), told.append)
    left = [status.seconds_left for status in told]
    assert left[0] is None and left[-1] == 0.0
    assert pytest.approx(4.0) in left  # 6 s for the 6 units of 10 that come first
