"""What figure 7 says about linear networks, and what the grids show.

Thresholds are ours where the paper only draws a curve: chosen from the plotted curves and from reference values.
"""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from skiplens.papers.li2016_shortcuts import learning_rates
from skiplens.papers.li2016_shortcuts.common import DEPTH, SIGNS, SMOKE_IMAGES
from skiplens.papers.li2016_shortcuts.learning_rates import (
    best_losses,
    best_rates,
    depth_of,
    depths_of,
    each,
    final_losses,
    grid_of,
    judge_columns,
    rates_of,
)
from skiplens.papers.statistics import Band, decide, decide_correction, over_seeds, raw_tables, slope
from skiplens.papers.study import Claim, Item, Judgement, Table
from skiplens.readings.reading import Measurement

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

PLAIN = ("xavier", "orthogonal")

BEST_DEPTH = 8
"""At which plain networks end lowest."""

NOTHING = 0.5
"""The loss of a network that gives nothing but zero."""


def judge_deeper(readings: Sequence[Measurement]) -> Judgement:
    """2-shortcut from one depth to the next."""
    losses = each(readings, "2-shortcut", best_losses)
    columns = [after - before for before, after in pairwise(losses)]
    sentence = "Decades by which the final loss of 2-shortcut networks changes from one depth to the next, least fall."
    return judge_columns(columns, Band(-math.inf, 0.0), sentence)


def judge_trend(readings: Sequence[Measurement]) -> Judgement:
    """2-shortcut over all depths: the power of the depth with which the loss falls."""
    losses = torch.stack(each(readings, "2-shortcut", best_losses), dim=1)
    power = slope([math.log10(depth) for depth in depths_of(readings, "2-shortcut")], losses)
    sentence = "Slope of log10(final loss) of 2-shortcut networks over log10(depth), all depths together."
    return decide(over_seeds(power), Band(-math.inf, 0.0), sentence)


def judge_low(readings: Sequence[Measurement]) -> Judgement:
    """2-shortcut at depths 32 and 64."""
    sentence = (
        "log10(final loss) of 2-shortcut networks, worse of the depths 32 and 64. We ask for a loss of at most 0.05."
    )
    return judge_columns(each(readings, "2-shortcut", best_losses, 32), Band(-math.inf, math.log10(0.05)), sentence)


def judge_plain(readings: Sequence[Measurement]) -> Judgement:
    """Plain networks of depths 32 and 64 against those of depth 8."""
    sentence = "Decades by which plain networks of depths 32 and 64 end above those of depth 8, least of all."
    return judge_columns(_above_best_depth(readings, 32), Band(0.0, math.inf), sentence)


def judge_turning_point(readings: Sequence[Measurement]) -> Judgement:
    """Plain networks of depth 16 and more against those of depth 8."""
    sentence = "Decades by which plain networks of depth 16 and more end above those of depth 8, least of all."
    return judge_columns(_above_best_depth(readings, 16), Band(0.0, math.inf), sentence)


def _above_best_depth(readings: Sequence[Measurement], at_least: int) -> list[Tensor]:
    return [
        best_losses(grid_of(readings, family, depth)) - best_losses(grid_of(readings, family, BEST_DEPTH))
        for family in PLAIN
        for depth in depths_of(readings, family, at_least)
    ]


def judge_dead(readings: Sequence[Measurement]) -> Judgement:
    """Plain networks at depth 64: every learning rate that does not diverge."""
    columns = []
    for family in PLAIN:
        for depth in depths_of(readings, family, 64):
            losses = final_losses(grid_of(readings, family, depth))
            columns += list(losses[torch.isfinite(losses).all(1)] - NOTHING)
    sentence = "Final loss of plain networks at depth 64 minus 1/2, that of an output of zero; worst learning rate."
    return judge_columns(columns, Band.around(0.0, 1e-3), sentence)


def judge_half(readings: Sequence[Measurement], at_least: int) -> Judgement:
    """2-shortcut against the plain networks at the same depth."""
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


FIG8 = (
    Claim(
        "deeper",
        "Deeper 2-shortcut networks find their lower optimal losses.",
        "Figure 8, left, and the text under it",
        "falls with every depth",
        judge_deeper,
    ),
    Claim(
        "trend",
        "The deeper a 2-shortcut network, the lower it ends.",
        "Figure 8, left, and the text under it",
        "negative slope",
        judge_trend,
    ),
    Claim("low", "Deep 2-shortcut networks end low.", "Figure 8, left", "log10 loss ≤ -1.3", judge_low),
    Claim(
        "plain",
        "Deep networks with Xavier or orthogonal initialisation have difficulties finding their optimal losses.",
        "Figure 8, left, and the text under it",
        "above those of depth 8",
        judge_plain,
    ),
    Claim(
        "turning_point",
        "Plain networks are best at depth 8 and worse from depth 16 on.",
        "Figure 8, left",
        "above those of depth 8",
        judge_turning_point,
    ),
    Claim(
        "dead",
        "At depth 64, the final losses of Xavier and orthogonal with different learning rates are basically the same.",
        "Caption of figure 8",
        "within 0.001 of an output of zero",
        judge_dead,
    ),
    Claim(
        "half",
        "2-shortcut networks of depths 32 and 64 end clearly lower than plain ones.",
        "Figure 8, left",
        "log10 ratio < 0; we ask for ≤ -0.3",
        partial(judge_half, at_least=32),
    ),
    Claim(
        "half_from_16",
        "2-shortcut networks end clearly lower than plain ones from depth 16 on.",
        "Figure 8, left",
        "log10 ratio < 0; we ask for ≤ -0.3",
        partial(judge_half, at_least=16),
    ),
)

_COMMON = (
    DEPTH,
    SIGNS,
    "The paper does not say which learning rates it tries nor how many runs it averages: here the rates are powers of "
    "ten in equal steps, and intervals are over independent starts.",
    "The learning rate is chosen by the mean loss over the starts, as in the paper, and its claims are judged by the "
    "logarithms there, 10^-8 being the least: means of losses depend on the worst start alone.",
)

_LINEAR = (
    *_COMMON,
    SMOKE_IMAGES,
    "Linear networks are trained on the second moments of the images, which gives exactly the same steps.",
    "Depths of 3-shortcut networks are the multiples of three beside the others' depths.",
)

_RECTIFIED = (
    *_COMMON,
    "The first 1,000 training images instead of 60,000, whitened by themselves, in float32; the paper preset takes "
    "all, the smoke preset 250.",
)


def tables(readings: Sequence[Measurement]) -> tuple[Table, ...]:
    """A row for each learning rate and start."""
    return raw_tables(readings, _rows)


def _rows(reading: Measurement) -> Iterator[dict[str, Any]]:
    for exponent, row in zip(reading.setting("exponents"), final_losses(reading), strict=True):
        for network, loss in enumerate(row.tolist()):
            yield {"exponents": exponent, "learning_rate": 10**exponent, "network": network, "final_loss": loss}


ITEMS = (
    Item(
        "fig7",
        "best final losses and learning rates, linear",
        learning_rates.fig7_runs,
        FIG7,
        learning_rates.draw_fig7,
        tables,
        _LINEAR,
    ),
    Item(
        "fig8",
        "best final losses and learning rates, ReLU",
        learning_rates.fig8_runs,
        FIG8,
        learning_rates.draw_fig8,
        tables,
        _RECTIFIED,
    ),
)
