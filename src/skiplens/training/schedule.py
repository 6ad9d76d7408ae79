"""The learning rate of every step, as a function of the step alone: nothing to save and nothing to restore."""

import math

from skiplens.training.recipe import Recipe


def learning_rate(recipe: Recipe, step: int, steps_per_epoch: int, steps: int) -> float:
    """The learning rate of the update that follows `step` updates in a run of `steps`."""
    passed = sum(step >= milestone * steps_per_epoch for milestone in recipe.milestones)
    rate = recipe.learning_rate * recipe.milestone_factor**passed
    if recipe.schedule == "cosine":
        rate *= (1 + math.cos(math.pi * step / steps)) / 2
    return rate * _warmth(step, recipe.warmup_epochs * steps_per_epoch)


def _warmth(step: int, warmup_steps: int) -> float:
    """The share of the rate in use: it rises by equal amounts and is one at the last step of the warm-up."""
    return min(1.0, (step + 1) / warmup_steps) if warmup_steps else 1.0
