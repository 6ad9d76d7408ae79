"""Figures 7 and 8: the grids of learning rates, and how large they are at each preset."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from skiplens.base.axes import Float
from skiplens.base.randomness import Randomness
from skiplens.base.settings import Settings, option
from skiplens.papers.images import needs
from skiplens.papers.li2016_shortcuts.common import (
    FAMILIES,
    WIDTH,
    Family,
    FamilyName,
    Source,
    digit_moments,
    whitened_digits,
)
from skiplens.papers.statistics import Band, chosen, curve, decide, over_seeds
from skiplens.papers.study import Judgement, Preset
from skiplens.plots.figure import Figure, Mark
from skiplens.readings.reading import Measurement
from skiplens.sweeps.run import Run, unfinished_work
from skiplens.training.batched.chains import Units, network_maps, train_linear_networks, train_rectified_networks
from skiplens.training.batched.plan import BatchedPlan, best_rate, drawn_starts

LINEAR_FAMILIES: tuple[FamilyName, ...] = ("xavier", "orthogonal", "1-shortcut", "2-shortcut", "3-shortcut")

RECTIFIED_FAMILIES: tuple[FamilyName, ...] = ("xavier", "orthogonal", "2-shortcut")
"""Those with as many ReLUs as each other at every depth."""

_THREES = {4: 6, 8: 12, 16: 18, 32: 33, 64: 66}


def depth_of(family: str, depth: int) -> int:
    """The depth of the networks of `family` that stand beside others of `depth`: units of three do not fill all."""
    return _THREES.get(depth, depth) if family == "3-shortcut" else depth


def exponents(low: float, high: float, step: float) -> tuple[float, ...]:
    """Equally spaced powers of ten."""
    return tuple(low + step * place for place in range(round((high - low) / step) + 1))


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


@dataclass(frozen=True)
class Sizes:
    """How large the grids of a preset are; `linear` and `rectified` are (networks, exponents, depths)."""

    linear: tuple[int, tuple[float, ...], tuple[int, ...]]
    rectified: tuple[int, tuple[float, ...], tuple[int, ...]]
    linear_source: Source = "mnist"
    rectified_source: Source = "sample"  # the first 1,000 digits of MNIST are among the embedded ones
    rectified_samples: int | None = 1000
    rectified_gpu: bool = False


_LINEAR_RATES, _RECTIFIED_RATES = exponents(-4.0, 1.0, 0.25), exponents(-3.0, 1.0, 0.5)

SIZES: dict[Preset, Sizes] = {
    "smoke": Sizes(
        linear=(12, (-3.0, *exponents(-2.0, 0.75, 0.25)), (4, 16)),
        rectified=(8, exponents(-1.0, 0.0, 0.5), (4, 8)),
        linear_source="sample",
        rectified_samples=250,
    ),
    "laptop": Sizes(
        linear=(20, _LINEAR_RATES, (4, 8, 16, 32, 64, 96)), rectified=(8, _RECTIFIED_RATES, (4, 8, 16, 32, 64))
    ),
    "paper": Sizes(
        linear=(40, _LINEAR_RATES, (4, 8, 16, 32, 64, 96)),
        rectified=(10, _RECTIFIED_RATES, (4, 8, 16, 32, 64)),
        rectified_source="mnist",
        rectified_samples=None,
        rectified_gpu=True,
    ),
}


def fig7_runs(preset: Preset, seed: int) -> list[Run]:
    """A grid for each of five families and each depth."""
    sizes = SIZES[preset]
    networks, rates, depths = sizes.linear
    base = LinearGrid(exponents=rates, networks=networks, source=sizes.linear_source, seed=seed)
    return _grids("linear_grid", base, LINEAR_FAMILIES, depths)


def fig8_runs(preset: Preset, seed: int) -> list[Run]:
    """A grid for each of three families and each depth."""
    sizes = SIZES[preset]
    networks, rates, depths = sizes.rectified
    source, samples = sizes.rectified_source, sizes.rectified_samples
    base = RectifiedGrid(exponents=rates, networks=networks, source=source, samples=samples, seed=seed)
    base = replace(base, gpu=sizes.rectified_gpu)
    return _grids("rectified_grid", base, RECTIFIED_FAMILIES, depths)


def _grids(measure: str, base: RateGrid, families: Iterable[FamilyName], depths: Iterable[int]) -> list[Run]:
    settings = [replace(base, family=family, depth=depth_of(family, depth)) for family in families for depth in depths]
    return [Run(f"{__name__}:{measure}", one, needs(base.gpu), _cost(one)) for one in settings]


def _cost(settings: RateGrid) -> float:
    """Proportional to the matrix products; those with samples are as many times larger."""
    products = settings.depth * settings.networks * len(settings.exponents) * settings.epochs
    return products * (20 if isinstance(settings, RectifiedGrid) else 1)


def linear_grid(settings: LinearGrid) -> dict[str, Tensor]:
    """Losses above the lowest one a linear network can have, (rates, networks), and the losses at the start."""
    moments, units = digit_moments(settings.source, settings.samples), _units(FAMILIES[settings.family])
    runs = train_linear_networks(*_starts(settings), moments, _plan(settings), units)
    excess = torch.stack([moments.excess_loss(network) for network in network_maps(runs.weights, units)])
    return {
        "excess": _square(excess.nan_to_num(torch.inf), settings),
        "losses": _square(runs.losses, settings),
        "first_losses": _square(runs.loss_history[0], settings)[0],
    }


def rectified_grid(settings: RectifiedGrid) -> dict[str, Tensor]:
    """Losses in float32, (rates, networks)."""
    starts, rates = _starts(settings)
    data = whitened_digits(settings.source, settings.samples)
    shortcut = FAMILIES[settings.family].shortcut
    starts = starts.to("cuda" if settings.gpu else "cpu", torch.float32)
    runs = train_rectified_networks(starts, rates, (data.inputs, data.targets), _plan(settings), shortcut)
    return {"losses": _square(runs.losses.double().cpu(), settings)}


def _starts(settings: RateGrid) -> tuple[Float[Tensor, "nets matrices width width"], Float[Tensor, " nets"]]:
    """Every start with every learning rate, the starts of one rate side by side."""
    starts = drawn_starts(FAMILIES[settings.family].law, settings.depth, WIDTH, settings.streams())
    rates = 10 ** torch.tensor(settings.exponents, dtype=torch.float64)
    return starts.repeat(len(rates), 1, 1, 1), rates.repeat_interleave(len(starts))


def _plan(settings: RateGrid) -> BatchedPlan:
    return BatchedPlan(settings.epochs, record_at=(0,), checkpoint=unfinished_work())


def _units(family: Family) -> Units:
    """Plain networks in pairs too: that changes rounding only, and is faster."""
    return Units(family.branch_depth) if family.shortcut else Units(2, shortcut=False)


def _square(by_network: Float[Tensor, " nets"], settings: RateGrid) -> Float[Tensor, "rates networks"]:
    return by_network.reshape(len(settings.exponents), settings.networks)


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


_BAND = "Lines are means over starts, bands one standard deviation."


class Words(NamedTuple):
    """What stands around a figure."""

    name: str
    title: str
    y_label: str
    caption: str


FIG7_LOSSES = Words(
    "losses",
    "Figure 7, left: optimal final losses of linear networks",
    "log10(final loss − optimal loss)",
    "Only 2-shortcut networks stay close to the optimal loss at any depth; the mean over the starts chooses the "
    "learning rate, and nearer than 10^-8 counts as 10^-8.",
)

FIG7_RATES = Words(
    "rates",
    "Figure 7, right: optimal learning rates of linear networks",
    "log10(learning rate)",
    "2-shortcut networks bear higher rates the deeper they are, orthogonal and 1-shortcut ones lower rates. Each start "
    "has a best rate of its own. Xavier at depth 96 is left out, as in the paper.",
)

FIG7_GRID = Words(
    "grid",
    "Figure 7: final losses against the learning rate, depth",
    "log10(final loss − optimal loss)",
    "The lower losses of 2-shortcut networks come from larger learning rates: at small ones they are behind.",
)

FIG8_LOSSES = Words(
    "losses",
    "Figure 8, left: optimal final losses with mid-ReLU",
    "log10(final loss)",
    "2-shortcut networks end lower the deeper they are; plain networks are best at depth 8 and give nothing but zero "
    "at depth 64.",
)

FIG8_RATES = Words(
    "rates",
    "Figure 8, right: optimal learning rates with mid-ReLU",
    "log10(learning rate)",
    "Each start has a best rate of its own. Plain networks at depth 64 are left out, as in the paper.",
)

FIG8_GRID = Words(
    "grid",
    "Figure 8: final losses against the learning rate, depth",
    "log10(final loss)",
    "A rate at which a start diverges has no mean.",
)


def draw_fig7(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """Losses above the optimum, best rates, and the losses against the rate at the largest depth."""
    return (
        _against_depth(readings, best_losses, FIG7_LOSSES),
        _against_depth(_without_xavier(readings, 96), best_rates, FIG7_RATES),
        _against_rate(readings, FIG7_GRID),
    )


def draw_fig8(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """Losses, best rates, and the losses against the rate at the largest depth."""
    return (
        _against_depth(readings, best_losses, FIG8_LOSSES),
        _against_depth(_without_plain(readings, 64), best_rates, FIG8_RATES),
        _against_rate(readings, FIG8_GRID),
    )


def _against_depth(readings: Sequence[Measurement], take: Callable[[Measurement], Tensor], words: Words) -> Figure:
    marks: list[Mark] = []
    for number, family in enumerate(_families(readings)):
        values = torch.stack(each(readings, family, take), dim=1)
        marks += curve(depths_of(readings, family), values, family, number)
    return Figure(words.name, words.title, f"{words.caption} {_BAND}", "depth", words.y_label, tuple(marks), x_log=True)


def _against_rate(readings: Sequence[Measurement], words: Words) -> Figure:
    marks: list[Mark] = []
    for number, family in enumerate(_families(readings)):
        grid = grid_of(readings, family, depths_of(readings, family)[-1])
        marks += curve(rates_of(grid), _finite_logs(grid), family, number)
    title = f"{words.title} {max(depths_of(readings, '2-shortcut'))}"
    caption = f"{words.caption} {_BAND}"
    return Figure(words.name, title, caption, "log10(learning rate)", words.y_label, tuple(marks))


def _finite_logs(grid: Measurement) -> Float[Tensor, "networks rates"]:
    """log10 of the losses; NaN at rates at which a network diverged."""
    losses = final_losses(grid)
    return torch.where(torch.isfinite(losses).all(1, keepdim=True), losses, math.nan).log10().T


def _families(readings: Sequence[Measurement]) -> list[str]:
    return list(dict.fromkeys(reading.setting("family") for reading in readings))


def _without_xavier(readings: Sequence[Measurement], depth: int) -> list[Measurement]:
    return [r for r in readings if (r.setting("family"), r.setting("depth")) != ("xavier", depth)]


def _without_plain(readings: Sequence[Measurement], depth: int) -> list[Measurement]:
    return [r for r in readings if r.setting("family") == "2-shortcut" or r.setting("depth") != depth]
