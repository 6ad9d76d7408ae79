"""What figure 8 says about networks with ReLUs, and what the grids show."""

import math
from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import torch

from skiplens.core.axes import Tensor
from skiplens.readings import Measurement
from skiplens.studies.claim import Claim, Judgement
from skiplens.studies.li2016_shortcuts.learning_rates.optima import (
    best_losses,
    depths_of,
    each,
    final_losses,
    grid_of,
    judge_columns,
)
from skiplens.studies.statistics import Band, decide, over_seeds, slope

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
