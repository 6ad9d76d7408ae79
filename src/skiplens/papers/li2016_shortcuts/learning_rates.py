"""The runs of figures 7 and 8: networks of one family and depth, each start trained with every rate of a grid."""

from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor

from skiplens.base import Float, Randomness, Settings, option
from skiplens.papers.images import needs
from skiplens.papers.li2016_shortcuts import common
from skiplens.papers.li2016_shortcuts.common import FamilyName, Source
from skiplens.papers.statistics import Measure, import_name
from skiplens.papers.study import Preset
from skiplens.sweeps.run import Run, unfinished_work
from skiplens.training.batched.chains import Units, network_maps, train_linear_networks, train_rectified_networks
from skiplens.training.batched.plan import BatchedPlan, drawn_starts


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


class LinearGrid(RateGrid):
    """Linear networks (figure 7)."""


class RectifiedGrid(RateGrid):
    """Networks with a ReLU in the middle of every pair of matrices (figure 8)."""


def exponents(low: float, high: float, step: float) -> tuple[float, ...]:
    """Equally spaced powers of ten."""
    return tuple(low + step * place for place in range(round((high - low) / step) + 1))


_LINEAR_RATES, _LINEAR_DEPTHS = exponents(-4.0, 1.0, 0.25), (4, 8, 16, 32, 64, 96)
_RATES, _DEPTHS = exponents(-3.0, 1.0, 0.5), (4, 8, 16, 32, 64)

# Networks, log10 of the learning rates and depths of each preset; then the digits, or how many are taken (none: all).
LINEAR_SIZES: dict[Preset, tuple[int, tuple[float, ...], tuple[int, ...], Source]] = {
    "smoke": (12, (-3.0, *exponents(-2.0, 0.75, 0.25)), (4, 16), "sample"),
    "laptop": (20, _LINEAR_RATES, _LINEAR_DEPTHS, "mnist"),
    "paper": (40, _LINEAR_RATES, _LINEAR_DEPTHS, "mnist"),
}
RECTIFIED_SIZES: dict[Preset, tuple[int, tuple[float, ...], tuple[int, ...], int | None]] = {
    "smoke": (8, exponents(-1.0, 0.0, 0.5), (4, 8), 250),
    "laptop": (8, _RATES, _DEPTHS, 1000),
    "paper": (10, _RATES, _DEPTHS, None),
}


def fig7_runs(preset: Preset, seed: int) -> list[Run]:
    """A grid for each of five families and each depth."""
    networks, rates, depths, source = LINEAR_SIZES[preset]
    base = LinearGrid(exponents=rates, networks=networks, source=source, seed=seed)
    return _grids(linear_grid, base, common.FAMILIES, depths)


def fig8_runs(preset: Preset, seed: int) -> list[Run]:
    """A grid for each of three families, which have as many ReLUs as each other, and each depth."""
    networks, rates, depths, samples = RECTIFIED_SIZES[preset]
    source: Source = "mnist" if samples is None else "sample"  # the embedded digits are the first of MNIST
    base = RectifiedGrid(exponents=rates, networks=networks, source=source, samples=samples, seed=seed)
    return _grids(rectified_grid, replace(base, gpu=preset == "paper"), ("xavier", "orthogonal", "2-shortcut"), depths)


def _grids(measure: Measure, base: RateGrid, families: Iterable[FamilyName], depths: Iterable[int]) -> list[Run]:
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
    starts = starts.to("cuda" if settings.gpu else "cpu", torch.float32)
    plan = BatchedPlan(settings.epochs, record_at=(0,), checkpoint=unfinished_work())
    runs = train_rectified_networks(starts, rates, data, plan, common.FAMILIES[settings.family].shortcut)
    return {"losses": _square(runs.losses.double().cpu(), settings)}


def _starts(settings: RateGrid) -> tuple[Float[Tensor, "nets matrices width width"], Float[Tensor, " nets"]]:
    """Every start with every learning rate, the starts of one rate side by side."""
    starts = drawn_starts(common.FAMILIES[settings.family].law, settings.depth, common.WIDTH, settings.streams())
    rates = 10 ** torch.tensor(settings.exponents, dtype=torch.float64)
    return starts.repeat(len(rates), 1, 1, 1), rates.repeat_interleave(len(starts))


def _square(by_network: Float[Tensor, " nets"], settings: RateGrid) -> Float[Tensor, "rates networks"]:
    return by_network.reshape(len(settings.exponents), settings.networks)
