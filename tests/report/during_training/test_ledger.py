import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from skiplens.report.during_training.watch import TimeBudget
from tests.report.during_training.subjects import Clock

CPU = torch.device("cpu")


def ledger(names, share=0.05):
    clock = Clock()
    made = TimeBudget(share, names, clock)
    made.begin()
    return made, clock


def spend(made, clock, name, seconds):
    with made.charged(name, CPU):
        clock.now += seconds


def test_time_is_that_of_the_run_or_of_looking():
    made, clock = ledger(["a", "b"])
    clock.now += 10
    with made.charged(None, CPU):
        clock.now += 1
        spend(made, clock, "a", 2)
        spend(made, clock, "b", 4)
        clock.now += 1
    clock.now += 5
    assert made.spent == {"a": 2, "b": 4} and made.shared == 2 and made.own_seconds == 8
    assert made.run_seconds == 15


def test_what_fails_is_paid_for_too():
    made, clock = ledger(["a"])
    with pytest.raises(ZeroDivisionError), made.charged("a", CPU):
        clock.now += 3
        raise ZeroDivisionError
    assert made.spent == {"a": 3} and made.run_seconds == 0
    made.write_off("a", 3)
    assert made.spent == {"a": 0} and made.shared == 0 and made.own_seconds == 3


def test_shared_work_can_be_divided():
    made, clock = ledger(["a", "b", "c"])
    spend(made, clock, None, 6)
    made.divide(4, ["a", "b"], again=False)
    assert made.spent == {"a": 2, "b": 2, "c": 0} and made.shared == 2 and not made.last
    spend(made, clock, "a", 1)
    made.divide(2, ["a"])
    assert made.spent["a"] == 5 and made.last == {"a": 3} and made.shared == 0 and made.own_seconds == 7


def test_the_first_measurement_is_always_made_and_the_next_must_be_paid_for():
    made, clock = ledger(["a"], share=0.1)
    assert made.affordable() == ["a"]
    spend(made, clock, "a", 1)
    clock.now += 19.9  # two looks of a second each are a tenth of twenty seconds
    assert made.affordable() == []
    clock.now += 0.2
    assert made.affordable() == ["a"]


def test_a_closed_quantity_leaves_its_part_to_the_others():
    made, clock = ledger(["a", "b"], share=0.1)
    spend(made, clock, "a", 1)
    spend(made, clock, "b", 1)
    clock.now += 21
    assert made.affordable() == []
    made.write_off("b", 1)
    made.open.remove("b")
    assert made.open == ["a"] and made.affordable() == []
    clock.now += 10  # a tenth of 31 seconds pays for two of a and the one of b in vain
    assert made.affordable() == ["a"]


def test_earlier_looks_are_taken_up():
    clock = Clock()
    made = TimeBudget(0.1, ["a", "b"], clock)
    made.take_up(2.0, [{"a": 3.0}, {"a": 1.0, "gone": 9.0}])
    made.begin(100.0)
    assert made.spent == {"a": 4.0, "b": 0.0} and made.last == {"a": 1.0} and made.shared == 2.0
    clock.now += 1
    assert made.run_seconds == 101.0


@given(
    needs=st.lists(st.floats(0.01, 10), min_size=1, max_size=6),
    run=st.floats(0, 400),
)
def test_time_is_divided_as_water_fills_vessels(needs, run):
    """The oracle finds the level of the water by bisection: Σ min(need, level) = what may be spent."""
    names = [f"q{index}" for index in range(len(needs))]
    made, clock = ledger(names, share=0.1)
    for name, need in zip(names, needs, strict=True):
        spend(made, clock, name, need / 2)  # spent and expected again: the need
    clock.now += run
    budget = 0.1 * made.run_seconds
    low, high = 0.0, 1e3
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(min(need, middle) for need in needs) <= budget else (low, middle)
    near = [abs(need - low) < 1e-9 for need in needs]
    expected = [name for name, need in zip(names, needs, strict=True) if need <= low]
    if not any(near):
        assert made.affordable() == expected


def test_looking_stays_within_its_share_and_starves_nothing():
    costs = {"cheap": 0.01, "dear": 1.0, "dearest": 5.0}
    made, clock = ledger(costs, share=0.05)
    times = dict.fromkeys(costs, 0)
    first = sum(costs.values())
    for _ in range(4000):
        clock.now += 1
        for name in made.affordable():
            spend(made, clock, name, costs[name])
            times[name] += 1
        assert made.own_seconds <= 0.05 * made.run_seconds + first + 1e-9
        if made.run_seconds > 5.0 * len(costs) / 0.05:  # an equal part has paid for the dearest first measurement
            assert made.own_seconds <= 0.05 * made.run_seconds + 1e-9
    # Of the 200 seconds the cheap one takes at most 40; the two others share the rest, 80 seconds each.
    assert times["cheap"] > 3900 and times["dear"] >= 75 and times["dearest"] >= 15
