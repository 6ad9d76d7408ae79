"""Runs that differ in nothing but their random numbers: each is one seed of a confidence interval."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from skiplens.core.randomness import Randomness
from skiplens.core.settings import Settings, option
from skiplens.sweeps import Run, grid


@dataclass(frozen=True)
class ReplicateSettings(Settings):
    """Settings of a run that is repeated; subclasses add what is measured."""

    replicate: int = option(0, "which repetition")
    seed: int = option(0, "names every draw")

    def stream(self) -> torch.Generator:
        """Where all draws of this run come from: its settings name the stream."""
        return Randomness(self.seed).child(self.key()).torch()

    def shared_stream(self, name: str) -> torch.Generator:
        """Where the draws called `name` come from that all runs of this replicate share, such as those of the data."""
        return Randomness(self.seed).child(name, self.replicate).torch()


R = TypeVar("R", bound=ReplicateSettings)


def replicated(
    measure: str,
    base: R,
    replicates: int,
    seed: int,
    cost: Callable[[R], float] = lambda settings: 1.0,
    **axes: Iterable[Any],
) -> list[Run]:
    """One run for each combination of the axes and each replicate; replicates of one setting are neighbours.

    Args:
        measure: ``"package.module:function"``.
        base: What all runs share.
        replicates: How many of each.
        seed: Of the whole study.
        cost: Expected time of a run, in any unit.
        axes: Values of settings, by name.
    """
    combinations = grid(base, **axes, replicate=range(replicates), seed=(seed,))
    return [Run(measure, settings, cost=cost(settings)) for settings in combinations]
