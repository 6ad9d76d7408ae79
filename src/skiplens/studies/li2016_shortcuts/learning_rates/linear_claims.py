"""What figure 7 says about linear networks, and what the grids show.

Thresholds are ours where the paper only draws a curve: chosen from the plotted curves and from reference values.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch

from skiplens.core.axes import Tensor
from skiplens.readings import Measurement
from skiplens.studies.claim import Claim, Judgement
from skiplens.studies.li2016_shortcuts.learning_rates.optima import (
    best_losses,
    best_rates,
    depths_of,
    each,
    final_losses,
    grid_of,
    judge_columns,
    rates_of,
)
from skiplens.studies.li2016_shortcuts.learning_rates.settings import depth_of
from skiplens.studies.statistics import Band, decide_correction, over_seeds

OTHERS = ("xavier", "orthogonal", "1-shortcut", "3-shortcut")
STEP = 0.25
"""Between two learning rates of the grid, in decades."""

SMALL_RATE = -1.5
"""At which families are compared at equal rates: the best one of 1-shortcut networks at depth 96."""

_AT_BEST = "at the learning rate with the lowest mean loss"


def judge_close_to_optimal(readings: Sequence[Measurement]) -> Judgement:
    """2-shortcut networks at every depth from 8 on."""
    sentence = f"log10(final loss − optimal loss) of 2-shortcut networks {_AT_BEST}, worst depth of 8 and more."
    return judge_columns(each(readings, "2-shortcut", best_losses, 8), Band(-math.inf, -4.0), sentence)


def judge_lowest(readings: Sequence[Measurement]) -> Judgement:
    """The lowest of all other families minus 2-shortcut at the same depth."""
    columns = [
        _nearest_other(readings, depth) - best_losses(grid_of(readings, "2-shortcut", depth))
        for depth in depths_of(readings, "2-shortcut", 8)
    ]
    sentence = "Decades by which the nearest other family ends above 2-shortcut, worst depth of 8 and more."
    return judge_columns(columns, Band(0.7, math.inf), sentence)


def judge_xavier(readings: Sequence[Measurement]) -> Judgement:
    """Xavier from depth 16 on, against what it is known to reach."""
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


def judge_flat_in_rate(readings: Sequence[Measurement]) -> Judgement:
    """Xavier at depth 96: how far the highest and the lowest learning rate are from each other."""
    columns = [_spread(grid_of(readings, "xavier", depth)) for depth in depths_of(readings, "xavier", 96)]
    sentence = "Decades between Xavier's final losses at the worst and at the best rate without divergence, depth 96."
    return judge_columns(columns, Band(-math.inf, 0.15), sentence)


def judge_high_rate(readings: Sequence[Measurement]) -> Judgement:
    """The best learning rate of 2-shortcut networks."""
    sentence = (
        "log10 of the best learning rate of each 2-shortcut network, worst depth of 8 and more. We ask for a rate of "
        "at least 1."
    )
    return judge_columns(each(readings, "2-shortcut", best_rates, 8), Band(0.0, math.inf), sentence)


def judge_rate_ratio(readings: Sequence[Measurement]) -> Judgement:
    """Best rates of 2-shortcut over those of orthogonal networks."""
    columns = [
        best_rates(grid_of(readings, "2-shortcut", depth)) - best_rates(grid_of(readings, "orthogonal", depth))
        for depth in depths_of(readings, "2-shortcut", 16)
    ]
    sentence = (
        "Decades between the best learning rates of 2-shortcut and orthogonal, worst depth of 16 and more. We ask for "
        "10 times the rate, one decade."
    )
    return judge_columns(columns, Band(1.0, math.inf), sentence)


def judge_falling_rate(readings: Sequence[Measurement]) -> Judgement:
    """Best rates of orthogonal and 1-shortcut networks from one depth to the next."""
    columns: list[Tensor] = []
    for family in ("orthogonal", "1-shortcut"):
        rates = each(readings, family, best_rates)
        columns += [after - before for before, after in pairwise(rates)]
    sentence = "Decades by which the best learning rate rises from one depth to the next, largest of both families."
    return judge_columns(columns, Band(-math.inf, STEP, STEP), sentence)


def judge_three_stay(readings: Sequence[Measurement]) -> Judgement:
    """3-shortcut networks at the rate 0.01: how far the loss gets."""
    columns = []
    for depth in depths_of(readings, "3-shortcut"):
        grid = grid_of(readings, "3-shortcut", depth)
        columns.append(grid["losses"][_row(grid, -2.0)] - grid["first_losses"])
    sentence = "Change of the loss of 3-shortcut networks in 1000 epochs at the learning rate 0.01, worst depth."
    return judge_columns(columns, Band.around(0.0, 1e-3), sentence)


def judge_equal_rate(readings: Sequence[Measurement]) -> Judgement:
    """2-shortcut against 1-shortcut at one small learning rate."""
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


def _nearest_other(readings: Sequence[Measurement], depth: int) -> Tensor:
    """The losses of the family that ends lowest in the mean, 2-shortcut apart."""
    others = [best_losses(grid_of(readings, family, depth_of(family, depth))) for family in OTHERS]
    return min(others, key=lambda losses: float(losses.mean()))


def _spread(grid: Measurement) -> Tensor:
    """log10 of the losses at the rate with the highest mean, over those at the one with the lowest."""
    losses = final_losses(grid)
    logs = losses[torch.isfinite(losses).all(1)].log10()
    return logs[logs.mean(1).argmax()] - logs[logs.mean(1).argmin()]


def _row(grid: Measurement, exponent: float) -> int:
    """The row of a learning rate."""
    return int((rates_of(grid) - exponent).abs().argmin())


_TEXT = "Figure 7 and the text under it"

FIG7 = (
    Claim(
        "close_to_optimal",
        "The final losses of 2-shortcut networks stay close to optimal as the networks become deeper.",
        f"{_TEXT}, left",
        "log10(final − optimal) at most -4",
        judge_close_to_optimal,
    ),
    Claim(
        "lowest",
        "2-shortcut networks end lower than all others.",
        f"{_TEXT}, left",
        "by at least 0.7 decades",
        judge_lowest,
    ),
    Claim("xavier", "Deep Xavier networks stay far from optimal.", "Figure 7, left", "> 0 decades", judge_xavier),
    Claim(
        "xavier_flat",
        "At depth 96, the final losses of Xavier with different learning rates are basically the same.",
        "Caption of figure 7",
        "within 0.15 decades of each other",
        judge_flat_in_rate,
    ),
    Claim(
        "high_rate",
        "2-shortcut networks bear high learning rates.",
        f"{_TEXT}, right",
        "log10 rate ≥ 0",
        judge_high_rate,
    ),
    Claim(
        "rate_ratio",
        "Higher learning rates can be applied to 2-shortcut networks than to orthogonal ones.",
        f"{_TEXT}, right",
        "log10 ratio > 0; we ask for ≥ 1",
        judge_rate_ratio,
    ),
    Claim(
        "falling_rate",
        "The best learning rate of orthogonal and 1-shortcut networks falls with depth.",
        "Figure 7, right",
        "no rise beyond one step of the grid",
        judge_falling_rate,
    ),
    Claim(
        "three_stay",
        "3-shortcut networks start at a flat point and do not leave it at small learning rates.",
        "Theorem 2 and figure 7",
        "change below 0.001",
        judge_three_stay,
    ),
    Claim(
        "equal_rate",
        "Shortcuts of length 2 give lower final losses.",
        f"{_TEXT}, left",
        "below 1-shortcut",
        judge_equal_rate,
    ),
)
