"""What figure 5 says about condition numbers along training."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from skiplens.base.axes import Float
from skiplens.papers.li2016_shortcuts.common import DEPTH, QUANTILE, SIGNS, SMOKE_IMAGES, WIDTH
from skiplens.papers.li2016_shortcuts.descents import (
    arrived,
    at_losses,
    at_paper_depth,
    by_loss,
    descents,
    over_losses,
    spectra,
)
from skiplens.papers.statistics import (
    Band,
    chosen,
    curve,
    decide,
    decide_correction,
    exactly,
    over_seeds,
    raw_tables,
    stacked,
    values,
)
from skiplens.papers.study import Claim, Item, Judgement, Preset
from skiplens.plots.figure import Figure, Line, Mark, numbers
from skiplens.readings.reading import Measurement
from skiplens.sweeps.run import Run

LARGE, SMALL = 2.0, 0.4
"""Losses from which the paper's word "large" and the corrected "always" hold."""

NEARLY, END = 0.45, 0.345
"""A loss not far from the end, and the last loss looked at; the lowest loss of a linear network is 0.337."""

LEVEL = math.log10(2)
"""Change of log10 of a condition number that has come to its last value, between these losses."""

ALIKE = 0.1
"""Between log10 of two condition numbers that are called similar."""


def log_gaps(
    readings: Sequence[Measurement], least: float = 0.0, families: tuple[str, str] = ("orthogonal", "2-shortcut")
) -> dict[float, Tensor]:
    """log10 of the condition number of one family minus that of the other at each loss they share, run by run."""
    first, second = (by_loss(readings, family, "condition_number") for family in families)
    shared = [loss for loss in first if loss in second and loss >= least]
    return {loss: first[loss].log10() - second[loss].log10() for loss in shared}


def judge_smaller(readings: Sequence[Measurement]) -> Judgement:
    """Every 2-shortcut run against every orthogonal one, and their means from a loss of 0.4 on."""
    two, orthogonal = (by_loss(readings, family, "condition_number") for family in ("2-shortcut", "orthogonal"))
    worst = min(float((orthogonal[loss].amin() / two[loss].amax()).log10()) for loss in two)
    return decide_correction(
        (exactly(worst), Band(0.0, math.inf)),
        (over_losses(log_gaps(readings, SMALL)), Band(0.0, math.inf)),
        "log10 of the condition number with orthogonal initialisation minus that of 2-shortcut networks. Printed: "
        f"always positive; near the end some runs have it the other way round, by up to {-worst:.2f}. Right: positive "
        f"in the mean for losses of at least {SMALL:g} (the number: at the worst of these losses).",
    )


def judge_much_smaller(readings: Sequence[Measurement]) -> Judgement:
    """The gap while the loss is large."""
    sentence = (
        "log10 of the ratio of condition numbers, orthogonal over 2-shortcut, smallest for losses from 2 on. We ask "
        "for at least 10 times."
    )
    return decide(over_losses(log_gaps(readings, LARGE)), Band(1.0, math.inf), sentence)


def judge_xavier(readings: Sequence[Measurement]) -> Judgement:
    """Xavier networks against the largest condition number of 2-shortcut networks at losses they share."""
    losses, xavier = at_losses(readings, "xavier", "condition_number")
    two = by_loss(readings, "2-shortcut", "condition_number")
    largest = max(float(found.amax()) for loss, found in two.items() if loss >= min(losses))
    sentence = (
        "log10 of the condition number of Xavier networks, mean over the losses they come to, minus the largest of any "
        f"2-shortcut network at a loss of at least {min(losses):g}."
    )
    gaps = xavier.log10().nanmean(1) - math.log10(largest)
    return decide(over_seeds(arrived(gaps)), Band(0.0, math.inf), sentence)


def judge_end(readings: Sequence[Measurement]) -> Judgement:
    """Whether condition numbers come to a last value."""
    rises = []
    for family in ("2-shortcut", "orthogonal"):
        found = by_loss(readings, family, "condition_number")
        rises.append((found[END] / found[NEARLY]).log10())
    rise = over_seeds(arrived(torch.stack(rises).mean(0)))
    return decide_correction(
        (rise, Band.around(0.0, LEVEL)),
        (rise, Band(LEVEL, math.inf)),
        f"Rise of log10 of the condition number from the loss {NEARLY:g} to {END:g}, mean of both kinds of networks. "
        "Printed: it comes to the same value for both. Right: it comes to none; at a minimum only d² eigenvalues are "
        "not zero, whatever the depth.",
    )


def judge_alike(readings: Sequence[Measurement]) -> Judgement:
    """1-shortcut networks against orthogonal ones while the loss is at least 1."""
    gaps = log_gaps(readings, 1.0, ("1-shortcut", "orthogonal"))
    sentence = "log10 of the 1-shortcut networks' condition number minus orthogonal ones', worst loss from 1 on."
    return decide(over_losses(gaps), Band.around(0.0, ALIKE), sentence)


FIG5 = (
    Claim(
        "always_smaller",
        "The condition numbers of 2-shortcut networks at different losses are always smaller.",
        "Figure 5, Section 5.2",
        "> 0 at every loss",
        at_paper_depth(judge_smaller),
    ),
    Claim(
        "much_smaller_when_large",
        "They are smaller especially when the loss is large.",
        "Figure 5, Section 5.2",
        "log10 ratio > 0; we ask for ≥ 1",
        at_paper_depth(judge_much_smaller),
    ),
    Claim(
        "smaller_than_xavier",
        "They are smaller than those of networks with Xavier initialisation.",
        "Figure 5",
        "> 0",
        at_paper_depth(judge_xavier),
    ),
    Claim(
        "same_value_at_the_end",
        "The condition numbers roughly evolve to the same value for orthogonal and 2-shortcut networks.",
        "Figure 5, Section 5.2",
        "a last value",
        at_paper_depth(judge_end),
    ),
    Claim(
        "one_shortcut_like_orthogonal",
        "The training dynamics of 1-shortcut networks are similar to those with orthogonal initialisation.",
        "Section 5",
        "difference 0",
        at_paper_depth(judge_alike),
    ),
)

LEAST = 0.4
"""The smallest loss at which indices are compared: below it eigenvalues near zero have no sure sign."""

DROP = WIDTH * (WIDTH + 1) // 2
"""Negative eigenvalues that a 2-shortcut network loses at the beginning."""

DROP_LOSS = 1.5
"""Where they are gone."""

DROP_TOLERANCE = 1.6
"""In eigenvalues: 0.001 of the index of a network with 16 matrices."""

BEGUN, ENDED = 0.8, 48.0
"""Eigenvalues lost when the drop has begun (index 0.4995 at 16 matrices) and when it has nearly ended (0.47)."""


def lost(readings: Sequence[Measurement], index: Tensor) -> Tensor:
    """How many negative eigenvalues fewer than half of all there are."""
    params = values(readings, "depth")[0] * WIDTH**2
    return (0.5 - index) * params


def judge_smaller_index(readings: Sequence[Measurement]) -> Judgement:
    """2-shortcut networks against orthogonal ones at every loss."""
    two, orthogonal = (by_loss(readings, family, "index") for family in ("2-shortcut", "orthogonal"))
    gaps = {loss: orthogonal[loss] - two[loss] for loss in two if loss >= LEAST}
    sentence = (
        "Index with orthogonal initialisation minus that of 2-shortcut networks; smallest over losses of at least "
        f"{LEAST:g}."
    )
    return decide(over_losses(gaps), Band(0.0, math.inf), sentence)


def judge_drop(readings: Sequence[Measurement]) -> Judgement:
    """How many negative eigenvalues are gone at a loss of 1.5."""
    found = lost(readings, by_loss(readings, "2-shortcut", "index")[DROP_LOSS])
    share = 0.5 - DROP / (values(readings, "depth")[0] * WIDTH**2)
    sentence = (
        f"Negative eigenvalues lost from the start to a loss of {DROP_LOSS}; d(d + 1)/2 = {DROP} make the index fall "
        f"from 0.5 to {share:.4f}."
    )
    return decide(over_seeds(found), Band.around(float(DROP), DROP_TOLERANCE), sentence)


def judge_peak(readings: Sequence[Measurement]) -> Judgement:
    """When the gradient is largest, between beginning and end of the drop."""
    sentence = (
        "Epoch of the largest gradient, as a share of the way from the epoch at which the index begins to drop to the "
        "one at which it has dropped."
    )
    return decide(over_seeds(peak_places(readings)), Band(0.0, 1.0), sentence)


def peak_places(readings: Sequence[Measurement]) -> Float[Tensor, " replicates"]:
    """The peak of the gradient of each run: 0 is the beginning of the drop, 1 its end."""
    epochs = stacked(readings, "epoch", "descent").double()
    gone = lost(readings, stacked(readings, "index", "descent"))
    peak = stacked(readings, "gradient_norm", "descent").argmax(1)
    begun, ended = (_first(gone > count) for count in (BEGUN, ENDED))
    at = [epochs.gather(1, place[:, None])[:, 0] for place in (begun, peak, ended)]
    return (at[1] - at[0]) / (at[2] - at[0])


def _first(reached: Tensor) -> Tensor:
    """The first place of each row that is true; the last one if none is."""
    places = torch.arange(reached.shape[1]).expand(reached.shape)
    return torch.where(reached, places, reached.shape[1] - 1).amin(1)


FIG6 = (
    Claim(
        "smaller",
        "The index of a 2-shortcut network is always smaller.",
        "Figure 6 left",
        "> 0 at every loss",
        at_paper_depth(judge_smaller_index),
    ),
    Claim(
        "drop",
        "It drops dramatically at the beginning.",
        "Figure 6 left",
        "a sudden drop",
        at_paper_depth(judge_drop),
    ),
    Claim(
        "gradient",
        "The gradient reaches its maximum while the index drops.",
        "Figure 6 right",
        "between 0 and 1",
        at_paper_depth(judge_peak),
    ),
)

FAMILIES = ("xavier", "orthogonal", "1-shortcut", "2-shortcut")


def draw_fig5(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """Maxima and 10th percentiles of the |eigenvalues|, and their ratio."""
    return _eigenvalues(readings), _conditions(readings)


def draw_fig6(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """The index against the loss, and a single run's gradient and index."""
    return _indices(readings), _single_run(readings)


def _eigenvalues(readings: Sequence[Measurement]) -> Figure:
    marks: list[Mark] = []
    for number, family in enumerate(FAMILIES):
        for quantity, word, dashed in (("largest", "maximum", False), ("tenth", "10th percentile", True)):
            losses, found = at_losses(readings, family, quantity)
            marks += curve(losses, found.log10(), f"{family}, {word}", number, dashed)
    caption = (
        "Whole lines are maxima, dashed ones 10th percentiles; their distance is the condition number. It is smallest "
        "for 2-shortcut networks, most of all while the loss is large."
    )
    return _against_loss("eigenvalues_at_losses", "Figure 5: |eigenvalues|", caption, "log10 |λ|", marks)


def _conditions(readings: Sequence[Measurement]) -> Figure:
    marks: list[Mark] = []
    for number, family in enumerate(FAMILIES):
        losses, found = at_losses(readings, family, "condition_number")
        marks += curve(losses, found.log10(), family, number)
    caption = "The ratio of the two curves of each kind of network. Near the lowest loss all rise without bound."
    title, label = "Figure 5: condition numbers", "log10(|λ|max / |λ|(0.1))"
    return _against_loss("condition_numbers_at_losses", title, caption, label, marks)


def _indices(readings: Sequence[Measurement]) -> Figure:
    marks: list[Mark] = []
    for number, family in enumerate(FAMILIES):
        marks += curve(*at_losses(readings, family, "index"), family, number)
    caption = "The index of 2-shortcut networks is below that of orthogonal ones, and drops at the beginning."
    return _against_loss("index_at_losses", "Figure 6 left: share of negative eigenvalues", caption, "index", marks)


def _against_loss(name: str, title: str, caption: str, y_label: str, marks: Sequence[Mark]) -> Figure:
    return Figure(
        name=name,
        title=f"{title} at different losses",
        caption=f"{caption} Training goes from right to left. Bands are one standard deviation over runs.",
        x_label="loss",
        y_label=y_label,
        marks=tuple(marks),
        x_log=True,
    )


def _single_run(readings: Sequence[Measurement]) -> Figure:
    run = chosen(readings, "descent")[0]
    epochs, gradient = numbers(run["epoch"]), run["gradient_norm"]
    return Figure(
        name="gradient_and_index",
        title="Figure 6 right: gradient and index of a 2-shortcut network, one run",
        caption="The gradient is largest while the index drops: the network leaves the saddle along directions of "
        "negative curvature.",
        x_label="epoch",
        y_label="gradient over its maximum, 2 × index",
        marks=(
            Line(epochs, numbers(gradient / gradient.max()), f"gradient (maximum {float(gradient.max()):.3f})"),
            Line(epochs, numbers(2 * run["index"]), "2 × index"),
        ),
    )


_DEVIATIONS = (
    "The paper gives no learning rates and no number of runs: here 0.1 with shortcuts of length 2, 0.01 for orthogonal "
    "and 1-shortcut networks, 10^-1.75 for Xavier's; curves against the loss hardly depend on them.",
    "The smoke preset has depth 6 instead of 16, and decides nothing about training.",
    DEPTH,
    QUANTILE,
    SIGNS,
    SMOKE_IMAGES,
)


def _fig6_runs(preset: Preset, seed: int) -> list[Run]:
    return [*spectra(preset, seed), *descents(preset, seed)]


ITEMS = (
    Item("fig5", "eigenvalues along training", spectra, FIG5, draw_fig5, raw_tables, _DEVIATIONS),
    Item("fig6", "index and gradient along training", _fig6_runs, FIG6, draw_fig6, raw_tables, _DEVIATIONS),
)
