"""Final losses and learning rates at their best, taken from the grids as the paper takes them."""

import math
from collections.abc import Callable, Sequence

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.readings import Measurement
from skiplens.studies.claim import Judgement
from skiplens.studies.selection import chosen
from skiplens.studies.statistics import Band, decide, over_seeds
from skiplens.training.batched import best_rate

FLOOR = -8.0
"""Nearer to the optimum counts as this near: some starts end at rounding, and one of them would widen all intervals."""


def grid_of(readings: Sequence[Measurement], family: str, depth: int) -> Measurement:
    """The grid of a family and depth."""
    return chosen(readings, family=family, depth=depth)[0]


def depths_of(readings: Sequence[Measurement], family: str, at_least: int = 0) -> list[int]:
    """The depths of a family from a given one on, that are part of this preset."""
    own = {reading.setting("depth") for reading in readings if reading.setting("family") == family}
    return sorted(depth for depth in own if depth >= at_least)


def final_losses(grid: Measurement) -> Float[Tensor, "rates networks"]:
    """What the figure's left side is about: above the optimal loss for linear networks, as it is for others."""
    return grid["excess"] if "excess" in grid.arrays else grid["losses"]


def rates_of(grid: Measurement) -> Float[Tensor, " rates"]:
    """log10 of the learning rates."""
    return torch.tensor(grid.setting("exponents"), dtype=torch.float64)


def best_losses(grid: Measurement) -> Float[Tensor, " networks"]:
    """log10 of the final losses at the rate with the lowest mean loss, but no less than `FLOOR`.

    A rate at which one network diverges has an infinite mean, and is out.
    """
    losses = final_losses(grid)
    return losses[best_rate(losses)].log10().clamp(min=FLOOR)


def best_rates(grid: Measurement) -> Float[Tensor, " networks"]:
    """log10 of the rate at which each network ends lowest."""
    return rates_of(grid)[final_losses(grid).nan_to_num(math.inf).argmin(0)]


def judge_columns(columns: Sequence[Tensor], band: Band, sentence: str) -> Judgement:
    """A verdict on several numbers, each with its networks; none means that the preset lacks the depths."""
    if not columns:
        return Judgement("not attempted", explanation=f"{sentence} This preset has no networks as deep as that.")
    return decide(over_seeds(torch.stack(list(columns), dim=1)), band, sentence)


def each(
    readings: Sequence[Measurement], family: str, take: Callable[[Measurement], Tensor], at_least: int = 0
) -> list[Tensor]:
    """What `take` gives for each depth of a family from a given one on."""
    return [take(grid_of(readings, family, depth)) for depth in depths_of(readings, family, at_least)]
