"""Figures 7 and 8: final losses and learning rates of networks, each at its best rate, linear and with ReLU.

Thresholds are ours where the paper only draws a curve: chosen from the plotted curves and from reference values.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from skiplens.base.axes import Float
from skiplens.papers import statistics
from skiplens.papers.li2016_shortcuts import common
from skiplens.papers.li2016_shortcuts.learning_rates import depth_of, fig7_runs, fig8_runs
from skiplens.papers.statistics import Band, Readings, chosen, curve, decide, decide_correction, over_seeds, slope
from skiplens.papers.study import Item, Judgement, claim, claims
from skiplens.plots.figure import Figure, Mark
from skiplens.readings.reading import Measurement
from skiplens.training.batched.plan import best_rate

SMALL_RATE = -1.5  # at which families are compared at equal rates: the best one of 1-shortcut networks at depth 96
_TEXT = "Figure 7 and the text under it"
_PLAIN = ("xavier", "orthogonal")


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
    columns, others = [], [family for family in common.FAMILIES if family != "2-shortcut"]
    for depth in depths_of(readings, "2-shortcut", 8):
        ends = [best_losses(grid_of(readings, other, depth_of(other, depth))) for other in others]
        nearest = min(ends, key=lambda losses: float(losses.mean()))
        columns.append(nearest - best_losses(grid_of(readings, "2-shortcut", depth)))
    sentence = "Decades by which the nearest other family ends above 2-shortcut, worst depth of 8 and more."
    return judge_columns(columns, Band(0.7, math.inf), sentence)


@claim("Figure 7, left", "> 0 decades")
def _xavier(readings: Readings) -> Judgement:
    """Deep Xavier networks stay far from optimal."""
    deep = depths_of(readings, "xavier", 16)
    columns = [best_losses(grid_of(readings, "xavier", depth)) + (1.1 if depth >= 64 else 1.6) for depth in deep]
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
    grids = [grid_of(readings, family, 96) for family in ("2-shortcut", "1-shortcut")]
    two, one = (final_losses(grid)[_row(grid, SMALL_RATE)].log10() for grid in grids)
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


FIG7 = (
    *(_close_to_optimal, _lowest, _xavier, _xavier_flat, _high_rate),
    *(_rate_ratio, _falling_rate, _three_stay, _equal_rate),
)


@claim("Figure 8, left, and the text under it", "falls with every depth")
def _deeper(readings: Readings) -> Judgement:
    """Deeper 2-shortcut networks find their lower optimal losses."""
    columns = [difference(after, before) for before, after in pairwise(each(readings, "2-shortcut", best_losses))]
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


def _above_best_depth(readings: Readings, at_least: int, depths: str) -> Judgement:
    columns = [
        difference(best_losses(grid_of(readings, family, depth)), best_losses(grid_of(readings, family, 8)))
        for family in _PLAIN
        for depth in depths_of(readings, family, at_least)
    ]
    sentence = f"Decades by which plain networks of {depths} end above those of depth 8, least of all."
    return judge_columns(columns, Band(0.0, math.inf), sentence)


@claim("Caption of figure 8", "within 0.001 of an output of zero")
def _dead(readings: Readings) -> Judgement:
    """At depth 64, the final losses of Xavier and orthogonal with different learning rates are basically the same."""
    columns = []
    for family in _PLAIN:
        for losses in each(readings, family, final_losses, 64):
            columns += list(losses[torch.isfinite(losses).all(1)] - 0.5)
    sentence = "Final loss of plain networks at depth 64 minus 1/2, that of an output of zero; worst learning rate."
    return judge_columns(columns, Band.around(0.0, 1e-3), sentence)


def _half_the_loss(readings: Readings, at_least: int) -> Judgement:
    columns = [
        difference(*(best_losses(grid_of(readings, name, depth)) for name in ("2-shortcut", family)))
        for depth in depths_of(readings, "2-shortcut", at_least)
        for family in _PLAIN
    ]
    sentence = (
        f"log10 of the final loss of 2-shortcut over that of plain networks, worst depth of {at_least} and more. We "
        "ask for at most half the loss."
    )
    return judge_columns(columns, Band(-math.inf, math.log10(0.5)), sentence)


_DIFFICULT = "Deep networks with Xavier or orthogonal initialisation have difficulties finding their optimal losses."
_BEST_AT_8 = "Plain networks are best at depth 8 and worse from depth 16 on."
_UNDER_IT = "Figure 8, left, and the text under it"
_ABOVE = claims(
    _above_best_depth,
    ("plain", _DIFFICULT, _UNDER_IT, "above those of depth 8", 32, "depths 32 and 64"),
    ("turning_point", _BEST_AT_8, "Figure 8, left", "above those of depth 8", 16, "depth 16 and more"),
)
_LOWER = "2-shortcut networks of depths 32 and 64 end clearly lower than plain ones."
_FROM_16 = "2-shortcut networks end clearly lower than plain ones from depth 16 on."
_HALVES = claims(
    _half_the_loss,
    ("half", _LOWER, "Figure 8, left", "log10 ratio < 0; we ask for ≤ -0.3", 32),
    ("half_from_16", _FROM_16, "Figure 8, left", "log10 ratio < 0; we ask for ≤ -0.3", 16),
)
FIG8 = (_deeper, _trend, _low, *_ABOVE, _dead, *_HALVES)


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
    found = [over_seeds(column, len(columns)) for column in columns]  # each over the starts that it has
    values, widths = ([getattr(one, name) for one in found] for name in ("value", "half_width"))
    return decide(statistics.Interval(torch.stack(values), torch.stack(widths)), band, sentence)


def difference(one: Float[Tensor, " networks"], other: Float[Tensor, " others"]) -> Float[Tensor, " both"]:
    """Start by start, as far as both have starts."""
    both = min(len(one), len(other))
    return one[:both] - other[:both]


def each(readings: Readings, family: str, take: Callable[[Measurement], Tensor], at_least: int = 0) -> list[Tensor]:
    """What `take` gives for each depth of a family from a given one on."""
    return [take(grid_of(readings, family, depth)) for depth in depths_of(readings, family, at_least)]


def draw_fig7(readings: Readings) -> tuple[Figure, ...]:
    """Losses above the optimum, best rates, and the losses against the rate at the largest depth."""
    loss = "log10(final loss − optimal loss)"
    losses = (
        "Only 2-shortcut networks stay close to the optimal loss at any depth; the mean over the starts chooses the "
        "learning rate, and nearer than 10^-8 counts as 10^-8."
    )
    rates = (
        "2-shortcut networks bear higher rates the deeper they are, orthogonal and 1-shortcut ones lower rates. Each "
        "start has a best rate of its own. Xavier at depth 96 is left out, as in the paper."
    )
    grid = "The lower losses of 2-shortcut networks come from larger learning rates: at small ones they are behind."
    with_rates = [r for r in readings if (r.setting("family"), r.setting("depth")) != ("xavier", 96)]
    return _three_figures(readings, with_rates, ("Figure 7", " of linear networks"), loss, (losses, rates, grid))


def draw_fig8(readings: Readings) -> tuple[Figure, ...]:
    """Losses, best rates, and the losses against the rate at the largest depth."""
    losses = (
        "2-shortcut networks end lower the deeper they are; plain networks are best at depth 8 and give nothing but "
        "zero at depth 64."
    )
    rates = "Each start has a best rate of its own. Plain networks at depth 64 are left out, as in the paper."
    grid = "A rate at which a start diverges has no mean."
    with_rates = [r for r in readings if r.setting("family") == "2-shortcut" or r.setting("depth") != 64]
    return _three_figures(
        readings, with_rates, ("Figure 8", " with mid-ReLU"), "log10(final loss)", (losses, rates, grid)
    )


def _three_figures(
    readings: Readings, with_rates: Readings, words: tuple[str, str], loss: str, captions: tuple[str, str, str]
) -> tuple[Figure, ...]:
    """The best losses and the best rates against depth, and all losses at the largest depth against the rate.

    There are no losses at rates at which a network diverged. `words` begin and end the titles.
    """
    (number, networks), rate = words, "log10(learning rate)"
    best, fastest, all_rates = list[Mark](), list[Mark](), list[Mark]()
    for place, family in enumerate(dict.fromkeys(reading.setting("family") for reading in readings)):
        for panel, kept, take in ((best, readings, best_losses), (fastest, with_rates, best_rates)):
            columns = pad_sequence(each(kept, family, take), padding_value=math.nan)  # those of fewer starts
            panel += curve(depths_of(kept, family), columns, family, place)
        deepest = grid_of(readings, family, depths_of(readings, family)[-1])
        losses = final_losses(deepest)
        finite = torch.where(torch.isfinite(losses).all(1, keepdim=True), losses, math.nan)
        all_rates += curve(rates_of(deepest), finite.log10().T, family, place)
    left, right = f"{number}, left: optimal final losses", f"{number}, right: optimal learning rates"
    grid = f"{number}: final losses against the learning rate, depth {max(depths_of(readings, '2-shortcut'))}"
    band = "Lines are means over starts, bands one standard deviation."
    first, second, third = (f"{caption} {band}" for caption in captions)
    return (
        statistics.figure(("losses", left + networks), first, ("depth", loss), best, log="x"),
        statistics.figure(("rates", right + networks), second, ("depth", rate), fastest, log="x"),
        statistics.figure(("grid", grid), third, (rate, loss), all_rates),
    )


def _rows(reading: Measurement) -> Iterator[dict[str, Any]]:
    """A row of the table for each learning rate and start."""
    for exponent, row in zip(reading.setting("exponents"), final_losses(reading), strict=True):
        for network, loss in enumerate(row.tolist()):
            yield {"exponents": exponent, "learning_rate": 10**exponent, "network": network, "final_loss": loss}


_DEVIATIONS = (
    common.DEPTH,
    common.SIGNS,
    "The paper does not say which learning rates it tries nor how many runs it averages: here the rates are powers of "
    "ten in equal steps, and intervals are over independent starts.",
    "The learning rate is chosen by the mean loss over the starts, as in the paper, and its claims are judged by the "
    "logarithms there, 10^-8 being the least: means of losses depend on the worst start alone.",
)

_LINEAR_DEVIATIONS = (
    *_DEVIATIONS,
    common.SMOKE_IMAGES,
    "Linear networks are trained on the second moments of the images, which gives exactly the same steps.",
    "Depths of 3-shortcut networks are the multiples of three beside the others' depths.",
)

_RECTIFIED_DEVIATIONS = (
    *_DEVIATIONS,
    "The first 1,000 training images instead of 60,000, whitened by themselves, in float32; the paper preset takes "
    "all, the smoke preset 250.",
)

_TITLE, tables = "best final losses and learning rates", partial(statistics.raw_tables, rows=_rows)

ITEMS = (
    Item("fig7", f"{_TITLE}, linear", fig7_runs, FIG7, draw_fig7, tables, _LINEAR_DEVIATIONS),
    Item("fig8", f"{_TITLE}, ReLU", fig8_runs, FIG8, draw_fig8, tables, _RECTIFIED_DEVIATIONS),
)
