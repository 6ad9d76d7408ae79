"""Figures 7 and 8: optimal final losses on the left, the learning rates that give them on the right."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.figures import Figure
from skiplens.figures.figure import Mark
from skiplens.readings import Measurement
from skiplens.studies.curves import curve
from skiplens.studies.li2016_shortcuts.learning_rates.optima import (
    best_losses,
    best_rates,
    depths_of,
    each,
    final_losses,
    grid_of,
    rates_of,
)

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


def fig7(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """Losses above the optimum, best rates, and the losses against the rate at the largest depth."""
    return (
        _against_depth(readings, best_losses, FIG7_LOSSES),
        _against_depth(_without_xavier(readings, 96), best_rates, FIG7_RATES),
        _against_rate(readings, FIG7_GRID),
    )


def fig8(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
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
