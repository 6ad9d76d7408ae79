"""Figure 8: final losses and learning rates of networks with a ReLU in every pair of matrices."""

import math
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor

from skiplens.papers.li2016_shortcuts.common import FamilyName, Source
from skiplens.papers.li2016_shortcuts.learning_rates import (
    DEVIATIONS,
    RectifiedGrid,
    Words,
    against_depth,
    against_rate,
    best_losses,
    best_rates,
    depths_of,
    each,
    exponents,
    final_losses,
    grid_of,
    grids,
    judge_columns,
    rectified_grid,
    tables,
)
from skiplens.papers.statistics import Band, Readings, decide, over_seeds, slope
from skiplens.papers.study import Item, Judgement, Preset, claim
from skiplens.plots.figure import Figure
from skiplens.sweeps.run import Run

PLAIN: tuple[FamilyName, ...] = ("xavier", "orthogonal")

_RATES, _DEPTHS = exponents(-3.0, 1.0, 0.5), (4, 8, 16, 32, 64)

SIZES: dict[Preset, tuple[int, tuple[float, ...], tuple[int, ...], int | None]] = {
    "smoke": (8, exponents(-1.0, 0.0, 0.5), (4, 8), 250),
    "laptop": (8, _RATES, _DEPTHS, 1000),
    "paper": (10, _RATES, _DEPTHS, None),
}
"""Networks, log10 of the learning rates, depths, and first images (none: all) of each preset."""


def runs(preset: Preset, seed: int) -> list[Run]:
    """A grid for each of three families, which have as many ReLUs as each other, and each depth."""
    networks, rates, depths, samples = SIZES[preset]
    source: Source = "mnist" if samples is None else "sample"  # the embedded digits are the first of MNIST
    base = RectifiedGrid(exponents=rates, networks=networks, source=source, samples=samples, seed=seed)
    return grids(rectified_grid, replace(base, gpu=preset == "paper"), (*PLAIN, "2-shortcut"), depths)


@claim("Figure 8, left, and the text under it", "falls with every depth")
def _deeper(readings: Readings) -> Judgement:
    """Deeper 2-shortcut networks find their lower optimal losses."""
    columns = [after - before for before, after in pairwise(each(readings, "2-shortcut", best_losses))]
    sentence = "Decades by which the final loss of 2-shortcut networks changes from one depth to the next, least fall."
    return judge_columns(columns, Band(-math.inf, 0.0), sentence)


@claim("Figure 8, left, and the text under it", "negative slope")
def _trend(readings: Readings) -> Judgement:
    """The deeper a 2-shortcut network, the lower it ends."""
    losses = torch.stack(each(readings, "2-shortcut", best_losses), dim=1)
    power = slope([math.log10(depth) for depth in depths_of(readings, "2-shortcut")], losses)
    sentence = "Slope of log10(final loss) of 2-shortcut networks over log10(depth), all depths together."
    return decide(over_seeds(power), Band(-math.inf, 0.0), sentence)


@claim("Figure 8, left", "log10 loss ≤ -1.3")
def _low(readings: Readings) -> Judgement:
    """Deep 2-shortcut networks end low."""
    sentence = (
        "log10(final loss) of 2-shortcut networks, worse of the depths 32 and 64. We ask for a loss of at most 0.05."
    )
    return judge_columns(each(readings, "2-shortcut", best_losses, 32), Band(-math.inf, math.log10(0.05)), sentence)


@claim("Figure 8, left, and the text under it", "above those of depth 8")
def _plain(readings: Readings) -> Judgement:
    """Deep networks with Xavier or orthogonal initialisation have difficulties finding their optimal losses."""
    sentence = "Decades by which plain networks of depths 32 and 64 end above those of depth 8, least of all."
    return judge_columns(_above_best_depth(readings, 32), Band(0.0, math.inf), sentence)


@claim("Figure 8, left", "above those of depth 8")
def _turning_point(readings: Readings) -> Judgement:
    """Plain networks are best at depth 8 and worse from depth 16 on."""
    sentence = "Decades by which plain networks of depth 16 and more end above those of depth 8, least of all."
    return judge_columns(_above_best_depth(readings, 16), Band(0.0, math.inf), sentence)


def _above_best_depth(readings: Readings, at_least: int) -> list[Tensor]:
    return [
        best_losses(grid_of(readings, family, depth)) - best_losses(grid_of(readings, family, 8))
        for family in PLAIN
        for depth in depths_of(readings, family, at_least)
    ]


@claim("Caption of figure 8", "within 0.001 of an output of zero")
def _dead(readings: Readings) -> Judgement:
    """At depth 64, the final losses of Xavier and orthogonal with different learning rates are basically the same."""
    columns = []
    for family in PLAIN:
        for losses in each(readings, family, final_losses, 64):
            columns += list(losses[torch.isfinite(losses).all(1)] - 0.5)
    sentence = "Final loss of plain networks at depth 64 minus 1/2, that of an output of zero; worst learning rate."
    return judge_columns(columns, Band.around(0.0, 1e-3), sentence)


@claim("Figure 8, left", "log10 ratio < 0; we ask for ≤ -0.3")
def _half(readings: Readings) -> Judgement:
    """2-shortcut networks of depths 32 and 64 end clearly lower than plain ones."""
    return _half_the_loss(readings, 32)


@claim("Figure 8, left", "log10 ratio < 0; we ask for ≤ -0.3")
def _half_from_16(readings: Readings) -> Judgement:
    """2-shortcut networks end clearly lower than plain ones from depth 16 on."""
    return _half_the_loss(readings, 16)


def _half_the_loss(readings: Readings, at_least: int) -> Judgement:
    columns = [
        best_losses(grid_of(readings, "2-shortcut", depth)) - best_losses(grid_of(readings, family, depth))
        for depth in depths_of(readings, "2-shortcut", at_least)
        for family in PLAIN
    ]
    sentence = (
        f"log10 of the final loss of 2-shortcut over that of plain networks, worst depth of {at_least} and more. We "
        "ask for at most half the loss."
    )
    return judge_columns(columns, Band(-math.inf, math.log10(0.5)), sentence)


CLAIMS = (_deeper, _trend, _low, _plain, _turning_point, _dead, _half, _half_from_16)


def figures(readings: Readings) -> tuple[Figure, ...]:
    """Losses, best rates, and the losses against the rate at the largest depth."""
    losses = Words(
        "losses",
        "Figure 8, left: optimal final losses with mid-ReLU",
        "log10(final loss)",
        "2-shortcut networks end lower the deeper they are; plain networks are best at depth 8 and give nothing but "
        "zero at depth 64.",
    )
    rates = Words(
        "rates",
        "Figure 8, right: optimal learning rates with mid-ReLU",
        "log10(learning rate)",
        "Each start has a best rate of its own. Plain networks at depth 64 are left out, as in the paper.",
    )
    grid = Words(
        "grid",
        "Figure 8: final losses against the learning rate, depth",
        "log10(final loss)",
        "A rate at which a start diverges has no mean.",
    )
    with_rates = [r for r in readings if r.setting("family") == "2-shortcut" or r.setting("depth") != 64]
    return (
        against_depth(readings, best_losses, losses),
        against_depth(with_rates, best_rates, rates),
        against_rate(readings, grid),
    )


_DEVIATIONS = (
    *DEVIATIONS,
    "The first 1,000 training images instead of 60,000, whitened by themselves, in float32; the paper preset takes "
    "all, the smoke preset 250.",
)

ITEMS = (Item("fig8", "best final losses and learning rates, ReLU", runs, CLAIMS, figures, tables, _DEVIATIONS),)
