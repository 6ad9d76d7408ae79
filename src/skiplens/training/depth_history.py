"""Depth during training: does a network get deeper as it learns?"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from skiplens.core.errors import InvalidInputError
from skiplens.core.progress import Progress, silent
from skiplens.core.randomness import Randomness
from skiplens.data.batch import Batch, as_batch, take
from skiplens.readings.depth_history import DepthHistory
from skiplens.readings.provenance import Provenance
from skiplens.training.along import readings_along
from skiplens.training.checkpoints import Checkpoint
from skiplens.training.depth_moment import DepthMoment
from skiplens.training.depth_options import DepthOptions
from skiplens.training.measure_along import MeasureAlong
from skiplens.training.recipe import Recipe
from skiplens.training.source import source_of


def depth_during_training(
    model: nn.Module,
    data: Any,
    recipe: Recipe,
    *,
    probe: Any = None,
    checkpoint: Checkpoint | Path | str | None = None,
    progress: Progress = silent,
    **options: Any,
) -> DepthHistory:
    """The path spectrum, scales and weight norm of a network against the steps of its training, with what drives them.

    A copy is trained; `model` stays as it is. The samples looked at are the same at each moment.

    Args:
        model: Where the run starts; any module that `torch.export` accepts.
        data: As for `train`.
        recipe: How to train; its learning rate is also the size of the step whose forces are looked at.
        probe: `(inputs, targets)` to look at instead of the first samples of the data.
        checkpoint: File to keep the run in; the run goes on from it where it exists.
        progress: Told the steps made.
        options: Fields of `DepthOptions`: every, samples, mode, centre, centre_samples, forces, seed.
    """
    asked = DepthOptions.from_json(options)
    device = next(model.parameters(), torch.zeros(())).device
    clock = Provenance.begin({**recipe.to_json(), **asked.difference()}, recipe.seed, device)
    seen = (_first(data, recipe, asked) if probe is None else as_batch(probe, "probe")).to(device)
    moment = DepthMoment(seen, recipe.loss, recipe.learning_rate, asked)
    plan = MeasureAlong(moment, at_steps=_steps(data, recipe, asked, device))
    along = readings_along(model, data, recipe, plan, checkpoint=checkpoint, progress=progress)
    rows = [replace(taken.value, steps=torch.tensor([taken.step])) for taken in along.at_steps()]
    if not rows:
        raise InvalidInputError(f"The run ended before the first look: {along.history.outcome}.")
    return DepthHistory.joined(rows, outcome=along.history.outcome, provenance=clock.end())


def _first(data: Any, recipe: Recipe, asked: DepthOptions) -> Batch:
    if callable(data):
        return as_batch(data(Randomness(recipe.seed).child("depth_probe").torch()), "the batch drawn to look at")
    return take(data, asked.samples)


def _steps(data: Any, recipe: Recipe, asked: DepthOptions, device: torch.device) -> tuple[int, ...]:
    if recipe.steps is None:
        source = source_of(data, recipe.batch_size, Randomness(recipe.seed), device)
        total = recipe.epochs * source.steps_per_epoch
    else:
        total = recipe.steps
    return (*range(0, total, asked.every), total)
