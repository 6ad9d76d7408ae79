"""A training race: the same batches in the same order for every starter, several seeds."""

import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from skiplens.core.untouched import untouched
from skiplens.data.batch import Batch, concatenate
from skiplens.derivatives.outputs import main_output
from skiplens.lenses.curvature.fitting_loss import fitted
from skiplens.readings.verification import final_losses
from skiplens.reports.verification.options import RaceOptions
from skiplens.residual.trial import try_call
from skiplens.training import Recipe, train

Start = Callable[[int], nn.Module]
"""A fresh network for a seed; it will be trained in place."""

_PIECE = 64
_WARM_UP, _TIMED = 1, 3


@dataclass(frozen=True)
class Track:
    """What all runs of a race share: samples, recipe, seeds; `tick` is called after each run."""

    batch: Batch
    recipe: Recipe
    options: RaceOptions
    tick: Callable[[], None] = lambda: None

    def tuned(self, start: Start) -> float:
        """The learning rate with the lowest final loss on a seed of its own; the smallest where all diverge."""
        finals = {rate: float(final_losses(self._run(start, rate, self.options.seed))) for rate in self._ascending()}
        return min(finals, key=lambda rate: finals[rate])

    def losses(self, start: Start, rate: float) -> Tensor:
        """The loss of each step, one row a seed; NaN from where a run diverged."""
        seeds = range(self.options.seed + 1, self.options.seed + 1 + self.options.seeds)
        return torch.cat([self._run(start, rate, seed) for seed in seeds])

    @property
    def runs(self) -> int:
        """How many runs one starter needs."""
        return len(self.options.learning_rates) + self.options.seeds

    def _ascending(self) -> list[float]:
        return sorted(self.options.learning_rates)

    def _run(self, start: Start, rate: float, seed: int) -> Tensor:
        recipe = replace(self.recipe, learning_rate=rate, seed=seed)
        made = train(start(seed), self.batch, recipe).losses
        row = torch.full((1, recipe.steps or len(made)), math.nan, dtype=torch.float64)
        row[0, : len(made)] = made.cpu()
        self.tick()
        return row


def track(model: nn.Module, batch: Batch, options: RaceOptions) -> Track:
    """The race over `batch` with the loss that fits the targets; no steps are made yet."""
    loss, batch = _with_loss(model, batch)
    size = min(options.batch_size, max(1, batch.samples // 2))
    rate = min(options.learning_rates)
    recipe = Recipe(learning_rate=rate, momentum=options.momentum, batch_size=size, loss=loss, steps=1)
    return Track(batch, recipe, options)


def seconds_of_step(race: Track, model: nn.Module) -> float:
    """How long one step takes here and now."""
    trained = copy.deepcopy(model)
    train(trained, race.batch, replace(race.recipe, steps=_WARM_UP))
    began = time.perf_counter()
    train(trained, race.batch, replace(race.recipe, steps=_TIMED))
    return (time.perf_counter() - began) / _TIMED


def _with_loss(model: nn.Module, batch: Batch) -> tuple[str, Batch]:
    pieces = [batch.select(slice(start, start + _PIECE)) for start in range(0, batch.samples, _PIECE)]
    with untouched(model):
        found = [fitted(main_output(try_call(model, piece.arguments())), piece) for piece in pieces]
    return found[0][0], concatenate([piece for _, piece in found])
