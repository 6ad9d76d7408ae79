"""Figures 7 and 8: networks of one family and depth, each start trained with every learning rate of a grid."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from skiplens.base.axes import Float
from skiplens.base.randomness import Randomness
from skiplens.base.settings import Settings, option
from skiplens.papers.images import needs
from skiplens.papers.li2016_shortcuts import common
from skiplens.papers.li2016_shortcuts.common import FamilyName, Source
from skiplens.papers.statistics import (
    Band,
    Measure,
    Readings,
    chosen,
    curve,
    decide,
    import_name,
    over_seeds,
    raw_tables,
)
from skiplens.papers.study import Judgement, Table
from skiplens.plots.figure import Figure, Mark
from skiplens.readings.reading import Measurement
from skiplens.sweeps.run import Run, unfinished_work
from skiplens.training.batched.chains import Units, network_maps, train_linear_networks, train_rectified_networks
from skiplens.training.batched.plan import BatchedPlan, best_rate, drawn_starts


@dataclass(frozen=True)
class RateGrid(Settings):
    """Networks of one family and depth, each start trained with every learning rate; one run is one program."""

    family: FamilyName = option("2-shortcut", "shortcuts and initial weights")
    depth: int = option(8, "weight matrices")
    exponents: tuple[float, ...] = option((), "log10 of the learning rates")
    networks: int = option(10, "starts, each with weights of its own")
    epochs: int = option(1000, "updates, each with all samples")
    source: Source = option("mnist", "the embedded digits or all of MNIST")
    samples: int | None = option(None, "the first images only")
    seed: int = option(0, "names every draw")
    gpu: bool = option(False, "train on a GPU")

    def streams(self) -> list[Randomness]:
        """Where the weights of each start come from; the same for every grid of rates, number of epochs and data."""
        stream = Randomness(self.seed).child("learning rates", self.family, self.depth)
        return [stream.child(network) for network in range(self.networks)]


@dataclass(frozen=True)
class LinearGrid(RateGrid):
    """Linear networks (figure 7)."""


@dataclass(frozen=True)
class RectifiedGrid(RateGrid):
    """Networks with a ReLU in the middle of every pair of matrices (figure 8)."""


def grids(measure: Measure, base: RateGrid, families: Iterable[FamilyName], depths: Iterable[int]) -> list[Run]:
    """One run for each family and depth, like `base` in all else."""
    runs = []
    for family in families:
        for depth in depths:
            settings = replace(base, family=family, depth=depth_of(family, depth))
            products = settings.depth * settings.networks * len(settings.exponents) * settings.epochs
            cost = products * (20 if isinstance(settings, RectifiedGrid) else 1)  # products with samples are larger
            runs.append(Run(import_name(measure), settings, needs(base.gpu), cost))
    return runs


def depth_of(family: str, depth: int) -> int:
    """The depth of the networks of `family` that stand beside others of `depth`: units of three do not fill all."""
    return {4: 6, 8: 12, 16: 18, 32: 33, 64: 66}.get(depth, depth) if family == "3-shortcut" else depth


def exponents(low: float, high: float, step: float) -> tuple[float, ...]:
    """Equally spaced powers of ten."""
    return tuple(low + step * place for place in range(round((high - low) / step) + 1))


def linear_grid(settings: LinearGrid) -> dict[str, Tensor]:
    """Losses above the lowest one a linear network can have, (rates, networks), and the losses at the start."""
    moments, family = common.digit_moments(settings.source, settings.samples), common.FAMILIES[settings.family]
    # Plain networks in pairs too: that changes rounding only, and is faster.
    units = Units(family.branch_depth) if family.shortcut else Units(2, shortcut=False)
    plan = BatchedPlan(settings.epochs, record_at=(0,), checkpoint=unfinished_work())
    runs = train_linear_networks(*_starts(settings), moments, plan, units)
    excess = torch.stack([moments.excess_loss(network) for network in network_maps(runs.weights, units)])
    return {
        "excess": _square(excess.nan_to_num(torch.inf), settings),
        "losses": _square(runs.losses, settings),
        "first_losses": _square(runs.loss_history[0], settings)[0],
    }


def rectified_grid(settings: RectifiedGrid) -> dict[str, Tensor]:
    """Losses in float32, (rates, networks)."""
    starts, rates = _starts(settings)
    data = common.whitened_digits(settings.source, settings.samples)
    shortcut = common.FAMILIES[settings.family].shortcut
    starts = starts.to("cuda" if settings.gpu else "cpu", torch.float32)
    plan = BatchedPlan(settings.epochs, record_at=(0,), checkpoint=unfinished_work())
    runs = train_rectified_networks(starts, rates, data, plan, shortcut)
    return {"losses": _square(runs.losses.double().cpu(), settings)}


def _starts(settings: RateGrid) -> tuple[Float[Tensor, "nets matrices width width"], Float[Tensor, " nets"]]:
    """Every start with every learning rate, the starts of one rate side by side."""
    starts = drawn_starts(common.FAMILIES[settings.family].law, settings.depth, common.WIDTH, settings.streams())
    rates = 10 ** torch.tensor(settings.exponents, dtype=torch.float64)
    return starts.repeat(len(rates), 1, 1, 1), rates.repeat_interleave(len(starts))


def _square(by_network: Float[Tensor, " nets"], settings: RateGrid) -> Float[Tensor, "rates networks"]:
    return by_network.reshape(len(settings.exponents), settings.networks)


def grid_of(readings: Readings, family: str, depth: int) -> Measurement:
    """The grid of a family and depth."""
    return chosen(readings, family=family, depth=depth)[0]


def depths_of(readings: Readings, family: str, at_least: int = 0) -> list[int]:
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
    """log10 of the final losses at the rate with the lowest mean loss, but no less than -8.

    A rate at which one network diverges has an infinite mean, and is out. Some starts end at rounding, and one of them
    would widen all intervals: hence the -8.
    """
    losses = final_losses(grid)
    return losses[best_rate(losses)].log10().clamp(min=-8.0)


def best_rates(grid: Measurement) -> Float[Tensor, " networks"]:
    """log10 of the rate at which each network ends lowest."""
    return rates_of(grid)[final_losses(grid).nan_to_num(math.inf).argmin(0)]


def judge_columns(columns: Sequence[Tensor], band: Band, sentence: str) -> Judgement:
    """A verdict on several numbers, each with its networks; none means that the preset lacks the depths."""
    if not columns:
        return Judgement("not attempted", explanation=f"{sentence} This preset has no networks as deep as that.")
    return decide(over_seeds(torch.stack(list(columns), dim=1)), band, sentence)


def each(readings: Readings, family: str, take: Callable[[Measurement], Tensor], at_least: int = 0) -> list[Tensor]:
    """What `take` gives for each depth of a family from a given one on."""
    return [take(grid_of(readings, family, depth)) for depth in depths_of(readings, family, at_least)]


class Words(NamedTuple):
    """What stands around a figure."""

    name: str
    title: str
    y_label: str
    caption: str


_BAND = "Lines are means over starts, bands one standard deviation."


def against_depth(readings: Readings, take: Callable[[Measurement], Tensor], words: Words) -> Figure:
    """What `take` gives for each depth, one curve a family."""
    marks: list[Mark] = []
    for number, family in enumerate(_families(readings)):
        values = torch.stack(each(readings, family, take), dim=1)
        marks += curve(depths_of(readings, family), values, family, number)
    return Figure(words.name, words.title, f"{words.caption} {_BAND}", "depth", words.y_label, tuple(marks), x_log=True)


def against_rate(readings: Readings, words: Words) -> Figure:
    """The losses at the largest depth against the learning rate; none at rates at which a network diverged."""
    marks: list[Mark] = []
    for number, family in enumerate(_families(readings)):
        grid = grid_of(readings, family, depths_of(readings, family)[-1])
        losses = final_losses(grid)
        kept = torch.where(torch.isfinite(losses).all(1, keepdim=True), losses, math.nan)
        marks += curve(rates_of(grid), kept.log10().T, family, number)
    title = f"{words.title} {max(depths_of(readings, '2-shortcut'))}"
    caption = f"{words.caption} {_BAND}"
    return Figure(words.name, title, caption, "log10(learning rate)", words.y_label, tuple(marks))


def _families(readings: Readings) -> list[str]:
    return list(dict.fromkeys(reading.setting("family") for reading in readings))


def tables(readings: Readings) -> tuple[Table, ...]:
    """A row for each learning rate and start."""
    return raw_tables(readings, _rows)


def _rows(reading: Measurement) -> Iterator[dict[str, Any]]:
    for exponent, row in zip(reading.setting("exponents"), final_losses(reading), strict=True):
        for network, loss in enumerate(row.tolist()):
            yield {"exponents": exponent, "learning_rate": 10**exponent, "network": network, "final_loss": loss}


DEVIATIONS = (
    common.DEPTH,
    common.SIGNS,
    "The paper does not say which learning rates it tries nor how many runs it averages: here the rates are powers of "
    "ten in equal steps, and intervals are over independent starts.",
    "The learning rate is chosen by the mean loss over the starts, as in the paper, and its claims are judged by the "
    "logarithms there, 10^-8 being the least: means of losses depend on the worst start alone.",
)
