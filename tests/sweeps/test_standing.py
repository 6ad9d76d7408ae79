import pytest

from skiplens.sweeps.sweep import Clock, Status


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


def test_the_time_left_follows_the_cost():
    now = [0.0]
    clock = Clock(10.0, lambda: now[0])
    assert clock.seconds_left() is None
    now[0] = 6.0
    clock.passed(4.0)
    assert clock.seconds_left() == pytest.approx(9.0)  # 6 s for 4 of 10 units
    clock.passed(6.0)
    assert clock.seconds_left() == 0.0
