"""Figure 7: final losses and learning rates of linear networks, each at its best learning rate.

Thresholds are ours where the paper only draws a curve: chosen from the plotted curves and from reference values.
"""

import math
from itertools import pairwise

import torch
from torch import Tensor

from skiplens.papers.li2016_shortcuts.common import SMOKE_IMAGES, FamilyName, Source
from skiplens.papers.li2016_shortcuts.learning_rates import (
    DEVIATIONS,
    LinearGrid,
    Words,
    against_depth,
    against_rate,
    best_losses,
    best_rates,
    depth_of,
    depths_of,
    each,
    exponents,
    final_losses,
    grid_of,
    grids,
    judge_columns,
    linear_grid,
    rates_of,
    tables,
)
from skiplens.papers.statistics import Band, Readings, decide_correction, over_seeds
from skiplens.papers.study import Item, Judgement, Preset, claim
from skiplens.plots.figure import Figure
from skiplens.readings.reading import Measurement
from skiplens.sweeps.run import Run

FAMILIES: tuple[FamilyName, ...] = ("xavier", "orthogonal", "1-shortcut", "2-shortcut", "3-shortcut")

_RATES, _DEPTHS = exponents(-4.0, 1.0, 0.25), (4, 8, 16, 32, 64, 96)

SIZES: dict[Preset, tuple[int, tuple[float, ...], tuple[int, ...], Source]] = {
    "smoke": (12, (-3.0, *exponents(-2.0, 0.75, 0.25)), (4, 16), "sample"),
    "laptop": (20, _RATES, _DEPTHS, "mnist"),
    "paper": (40, _RATES, _DEPTHS, "mnist"),
}
"""Networks, log10 of the learning rates, depths, and digits of each preset."""


def runs(preset: Preset, seed: int) -> list[Run]:
    """A grid for each of five families and each depth."""
    networks, rates, depths, source = SIZES[preset]
    base = LinearGrid(exponents=rates, networks=networks, source=source, seed=seed)
    return grids(linear_grid, base, FAMILIES, depths)


SMALL_RATE = -1.5
"""At which families are compared at equal rates: the best one of 1-shortcut networks at depth 96."""

_TEXT = "Figure 7 and the text under it"


@claim(f"{_TEXT}, left", "log10(final − optimal) at most -4")
def _close_to_optimal(readings: Readings) -> Judgement:
    """The final losses of 2-shortcut networks stay close to optimal as the networks become deeper."""
    sentence = (
        "log10(final loss − optimal loss) of 2-shortcut networks at the learning rate with the lowest mean loss, worst "
        "depth of 8 and more."
    )
    return judge_columns(each(readings, "2-shortcut", best_losses, 8), Band(-math.inf, -4.0), sentence)


@claim(f"{_TEXT}, left", "by at least 0.7 decades")
def _lowest(readings: Readings) -> Judgement:
    """2-shortcut networks end lower than all others."""
    columns, others = [], [family for family in FAMILIES if family != "2-shortcut"]
    for depth in depths_of(readings, "2-shortcut", 8):
        ends = [best_losses(grid_of(readings, other, depth_of(other, depth))) for other in others]
        nearest = min(ends, key=lambda losses: float(losses.mean()))
        columns.append(nearest - best_losses(grid_of(readings, "2-shortcut", depth)))
    sentence = "Decades by which the nearest other family ends above 2-shortcut, worst depth of 8 and more."
    return judge_columns(columns, Band(0.7, math.inf), sentence)


@claim("Figure 7, left", "> 0 decades")
def _xavier(readings: Readings) -> Judgement:
    """Deep Xavier networks stay far from optimal."""
    columns = [
        best_losses(grid_of(readings, "xavier", depth)) + (1.1 if depth >= 64 else 1.6)
        for depth in depths_of(readings, "xavier", 16)
    ]
    sentence = (
        "Decades by which log10(final loss − optimal loss) of Xavier lies above what we ask for, -1.6 (depths 16 and "
        "32) or -1.1 (64 and 96), worst depth; the loss of a network that gives nothing but zero lies 10^-0.79 above "
        "the optimum."
    )
    return judge_columns(columns, Band(0.0, math.inf), sentence)


@claim("Caption of figure 7", "within 0.15 decades of each other")
def _xavier_flat(readings: Readings) -> Judgement:
    """At depth 96, the final losses of Xavier with different learning rates are basically the same."""
    columns = []
    for losses in each(readings, "xavier", final_losses, 96):
        logs = losses[torch.isfinite(losses).all(1)].log10()
        columns.append(logs[logs.mean(1).argmax()] - logs[logs.mean(1).argmin()])
    sentence = "Decades between Xavier's final losses at the worst and at the best rate without divergence, depth 96."
    return judge_columns(columns, Band(-math.inf, 0.15), sentence)


@claim(f"{_TEXT}, right", "log10 rate ≥ 0")
def _high_rate(readings: Readings) -> Judgement:
    """2-shortcut networks bear high learning rates."""
    sentence = (
        "log10 of the best learning rate of each 2-shortcut network, worst depth of 8 and more. We ask for a rate of "
        "at least 1."
    )
    return judge_columns(each(readings, "2-shortcut", best_rates, 8), Band(0.0, math.inf), sentence)


@claim(f"{_TEXT}, right", "log10 ratio > 0; we ask for ≥ 1")
def _rate_ratio(readings: Readings) -> Judgement:
    """Higher learning rates can be applied to 2-shortcut networks than to orthogonal ones."""
    two, orthogonal = (each(readings, family, best_rates, 16) for family in ("2-shortcut", "orthogonal"))
    columns = [rate - other for rate, other in zip(two, orthogonal, strict=True)]
    sentence = (
        "Decades between the best learning rates of 2-shortcut and orthogonal, worst depth of 16 and more. We ask for "
        "10 times the rate, one decade."
    )
    return judge_columns(columns, Band(1.0, math.inf), sentence)


@claim("Figure 7, right", "no rise beyond one step of the grid")
def _falling_rate(readings: Readings) -> Judgement:
    """The best learning rate of orthogonal and 1-shortcut networks falls with depth."""
    columns: list[Tensor] = []
    for family in ("orthogonal", "1-shortcut"):
        columns += [after - before for before, after in pairwise(each(readings, family, best_rates))]
    sentence = "Decades by which the best learning rate rises from one depth to the next, largest of both families."
    return judge_columns(columns, Band(-math.inf, 0.25, 0.25), sentence)  # one step of the grid


@claim("Theorem 2 and figure 7", "change below 0.001")
def _three_stay(readings: Readings) -> Judgement:
    """3-shortcut networks start at a flat point and do not leave it at small learning rates."""
    columns = []
    for depth in depths_of(readings, "3-shortcut"):
        grid = grid_of(readings, "3-shortcut", depth)
        columns.append(grid["losses"][_row(grid, -2.0)] - grid["first_losses"])
    sentence = "Change of the loss of 3-shortcut networks in 1000 epochs at the learning rate 0.01, worst depth."
    return judge_columns(columns, Band.around(0.0, 1e-3), sentence)


@claim(f"{_TEXT}, left", "below 1-shortcut")
def _equal_rate(readings: Readings) -> Judgement:
    """Shortcuts of length 2 give lower final losses."""
    if not depths_of(readings, "2-shortcut", 96):
        return judge_columns([], Band(-math.inf, 0.0), "2-shortcut against 1-shortcut at equal rates at depth 96.")
    two, one = (
        final_losses(grid)[_row(grid, SMALL_RATE)].log10()
        for grid in (grid_of(readings, family, 96) for family in ("2-shortcut", "1-shortcut"))
    )
    found = over_seeds(two - one)
    sentence = (
        f"Decades between 2-shortcut and 1-shortcut at depth 96 with the same learning rate 10^{SMALL_RATE}. Lower "
        "losses of 2-shortcut are true of each family's best rate only: at equal small rates 2-shortcut is behind, and "
        "gains by bearing much larger ones."
    )
    return decide_correction((found, Band(-math.inf, 0.0)), (found, Band(0.0, math.inf)), sentence)


def _row(grid: Measurement, exponent: float) -> int:
    """The row of a learning rate."""
    return int((rates_of(grid) - exponent).abs().argmin())


CLAIMS = (
    _close_to_optimal,
    _lowest,
    _xavier,
    _xavier_flat,
    _high_rate,
    _rate_ratio,
    _falling_rate,
    _three_stay,
    _equal_rate,
)


def figures(readings: Readings) -> tuple[Figure, ...]:
    """Losses above the optimum, best rates, and the losses against the rate at the largest depth."""
    losses = Words(
        "losses",
        "Figure 7, left: optimal final losses of linear networks",
        "log10(final loss − optimal loss)",
        "Only 2-shortcut networks stay close to the optimal loss at any depth; the mean over the starts chooses the "
        "learning rate, and nearer than 10^-8 counts as 10^-8.",
    )
    rates = Words(
        "rates",
        "Figure 7, right: optimal learning rates of linear networks",
        "log10(learning rate)",
        "2-shortcut networks bear higher rates the deeper they are, orthogonal and 1-shortcut ones lower rates. Each "
        "start has a best rate of its own. Xavier at depth 96 is left out, as in the paper.",
    )
    grid = Words(
        "grid",
        "Figure 7: final losses against the learning rate, depth",
        "log10(final loss − optimal loss)",
        "The lower losses of 2-shortcut networks come from larger learning rates: at small ones they are behind.",
    )
    with_rates = [r for r in readings if (r.setting("family"), r.setting("depth")) != ("xavier", 96)]
    return (
        against_depth(readings, best_losses, losses),
        against_depth(with_rates, best_rates, rates),
        against_rate(readings, grid),
    )


_DEVIATIONS = (
    *DEVIATIONS,
    SMOKE_IMAGES,
    "Linear networks are trained on the second moments of the images, which gives exactly the same steps.",
    "Depths of 3-shortcut networks are the multiples of three beside the others' depths.",
)

ITEMS = (Item("fig7", "best final losses and learning rates, linear", runs, CLAIMS, figures, tables, _DEVIATIONS),)
