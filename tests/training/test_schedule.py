import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skiplens.training.recipe import Recipe, learning_rate


def rates(recipe: Recipe, steps_per_epoch: int, steps: int) -> list[float]:
    return [learning_rate(recipe, step, steps_per_epoch, steps) for step in range(steps)]


def test_milestones_count_finished_epochs():
    recipe = Recipe(learning_rate=1.0, milestones=(1, 3), milestone_factor=0.5)
    assert rates(recipe, 2, 8) == [1, 1, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25]


def test_warmup_rises_by_equal_amounts():
    assert rates(Recipe(learning_rate=1.0, warmup_epochs=2), 2, 6) == [0.25, 0.5, 0.75, 1, 1, 1]


def test_cosine_is_half_way_in_the_middle():
    recipe = Recipe(learning_rate=2.0, schedule="cosine")
    assert rates(recipe, 1, 4) == pytest.approx([2, 1 + math.sqrt(0.5), 1, 1 - math.sqrt(0.5)])


@given(
    step=st.integers(0, 99),
    milestones=st.lists(st.integers(1, 20), unique=True, max_size=4).map(lambda found: tuple(sorted(found))),
    warmup=st.integers(0, 5),
    schedule=st.sampled_from(["constant", "cosine"]),
)
def test_the_rate_is_positive_and_never_above_the_recipe(step, milestones, warmup, schedule):
    recipe = Recipe(learning_rate=0.3, milestones=milestones, warmup_epochs=warmup, schedule=schedule)
    assert 0 < learning_rate(recipe, step, 5, 100) <= 0.3
