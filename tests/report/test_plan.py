import pytest

from skiplens.report.verification import FEWEST_STEPS, MOST_STEPS, plan


def test_the_time_is_filled_with_steps():
    made = plan(changes=2, runs=10, step_seconds=0.01, seconds=30.1)
    assert (made.changes, made.steps, made.reason) == (2, 100, "")  # 3 networks · 10 runs · 100 steps · 0.01 s


def test_there_are_never_more_steps_than_needed():
    assert plan(1, 10, 1e-6, 60).steps == MOST_STEPS


def test_where_time_is_short_the_first_changes_are_raced():
    seconds = 10 * 0.01 * FEWEST_STEPS * 3 + 0.1
    made = plan(5, 10, 0.01, seconds)
    assert (made.changes, made.steps) == (2, FEWEST_STEPS) and "no time" in made.reason


@pytest.mark.parametrize("seconds", [-5.0, 0.0, 0.1])
def test_without_time_nothing_is_raced_and_the_reason_has_the_numbers(seconds):
    made = plan(1, 10, 0.2, seconds)
    assert made.changes == 0 and "a step takes 0.2 s" in made.reason and "60 s" in made.reason


def test_steps_that_were_asked_for_are_made():
    assert plan(3, 10, 5.0, 0.0, steps=7).steps == 7
