"""Measurements along a training run: at chosen steps, and where the loss first falls to chosen values."""

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from skiplens.core.progress import Progress, silent
from skiplens.readings.training_history import TrainingHistory
from skiplens.training.checkpoints import Checkpoint
from skiplens.training.loop import train
from skiplens.training.measure_along import MeasureAlong, Taken
from skiplens.training.measurer import Measurer
from skiplens.training.recipe import Recipe


@dataclass(frozen=True)
class AlongTraining:
    """A training run and what was measured on its way.

    Attributes:
        history: The run itself.
        taken: The measurements by step.
        crossings: For each loss that was reached, the step before it was reached and the step at which it was.
    """

    history: TrainingHistory
    taken: dict[int, Taken]
    crossings: dict[float, tuple[int, int]]

    def at_steps(self) -> list[Taken]:
        """All measurements in the order of their steps."""
        return [self.taken[step] for step in sorted(self.taken)]


def readings_along(
    model: nn.Module,
    data: Any,
    recipe: Recipe,
    measurement: MeasureAlong,
    *,
    checkpoint: Checkpoint | Path | str | None = None,
    progress: Progress = silent,
) -> AlongTraining:
    """Train a copy of `model` and return what was measured on the way; `model` itself stays as it is.

    Args:
        model: Where the run starts.
        data: As for `train`.
        recipe: How to train.
        measurement: What to measure and when.
        checkpoint: File to keep the run and its measurements in; the run goes on from it where it exists.
        progress: Told the steps made.
    """
    trained = copy.deepcopy(model)
    measurer = Measurer(measurement)
    history = train(trained, data, recipe, callbacks=[measurer], checkpoint=checkpoint, progress=progress)
    return AlongTraining(history, dict(measurer.taken), dict(measurer.crossings))
