"""Figures 1(d) and 1(e): batch-norm scales and weight norms of networks that learn to tell Gaussians apart."""

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from skiplens.base.axes import Float
from skiplens.papers.statistics import UNDECIDED, Band, curve, decide, decide_correction, over_seeds, stacked
from skiplens.papers.study import Claim, Judgement
from skiplens.plots.figure import Band as figure_Band
from skiplens.plots.figure import Figure, Line, Reference, numbers
from skiplens.readings.reading import Measurement

POSITIVE = Band(0.0, math.inf)

NEGATIVE = Band(-math.inf, 0.0)


def scales(readings: Sequence[Measurement], setting: str) -> Float[Tensor, "replicates looks layers"]:
    """λ_l at each look."""
    return stacked(readings, "scale", "gaussians", setting=setting)


def norms(readings: Sequence[Measurement], setting: str) -> Float[Tensor, "replicates looks"]:
    """The Frobenius norm of all weights but the head's at each look."""
    return stacked(readings, "weight_norm", "gaussians", setting=setting)


def lengths(readings: Sequence[Measurement], setting: str) -> Float[Tensor, "replicates looks"]:
    """The mean path length at each look."""
    return stacked(readings, "mean_length", "gaussians", setting=setting)


def judge_growth(readings: Sequence[Measurement], setting: str) -> Judgement:
    """Whether the mean scale grows from look to look."""
    means = scales(readings, setting).mean(2)
    sentence = (
        "Smallest growth of the mean of all λ from one look to the next, in each run; it ends at "
        f"{float(means[:, -1].mean()):.3f}, from 1."
    )
    return decide(over_seeds(means.diff(dim=1).min(1).values), POSITIVE, sentence)


def judge_every_layer(readings: Sequence[Measurement], setting: str) -> Judgement:
    """Whether every scale ends above its start."""
    last = scales(readings, setting)[:, -1]
    lowest = f"{float(last.min(1).values.mean()):.2f}"
    sentence = (
        f"Share of the layers whose λ ends above its start, in each run; the lowest λ ends at {lowest} on average."
    )
    return judge_always((last > 1).double().mean(1), sentence)


def judge_first_layer(readings: Sequence[Measurement], setting: str) -> Judgement:
    """Whether the first scale ends elsewhere than the others: it grows more."""
    last = scales(readings, setting)[:, -1]
    first, others = last[:, 0], last[:, 1:].mean(1)
    sentence = (
        "λ_1 at the end minus the mean of the other layers' scales: they end at "
        f"{float(first.mean()):.2f} and {float(others.mean()):.2f}. The paper says that they differ; we ask for "
        "more growth of the first."
    )
    return decide(over_seeds(first - others), POSITIVE, sentence)


def judge_learned(readings: Sequence[Measurement], setting: str, least: float) -> Judgement:
    """Whether the classes are told apart."""
    accuracy = stacked(readings, "accuracy", "gaussians", setting=setting)
    lowest = float(accuracy.min())
    sentence = f"Share of runs with an accuracy above {least:g} on fresh samples; the lowest is {lowest:.2f}."
    return judge_always((accuracy > least).double(), sentence)


def judge_deeper_with_scales(readings: Sequence[Measurement], setting: str) -> Judgement:
    """Whether growing scales make the ensemble deeper."""
    change = lengths(readings, setting)[:, -1] - lengths(readings, setting)[:, 0]
    grown = scales(readings, setting).mean(2)[:, -1] - 1
    return decide_correction(
        (over_seeds(change), POSITIVE),
        (over_seeds(change), NEGATIVE),
        f"Change of the mean path length (of 10 layers) while the mean scale grows by {float(grown.mean()):.0%}. The "
        "statement tested in place of a printed one that fails: it falls, since only ratios of scales count and λ_1 "
        "shortens paths.",
    )


def judge_recursion(readings: Sequence[Measurement]) -> Judgement:
    """How the mean square grows from layer to layer."""
    literal, centred = (
        (squares[:, -1] - squares[:, 0]) / (squares.shape[1] - 1)
        for squares in (stacked(readings, "mean_square", "moments", scaling=name) for name in ("uncentred", "centred"))
    )
    band = Band.around(1.0, 0.3)
    return decide_correction(
        (over_seeds(literal), band),
        (over_seeds(centred), band),
        "Mean growth of E N² from a layer to the next, random networks of 10 layers, centred branches. Without "
        f"centring, as equation 20 is printed, branch and shortcut are correlated: {float(literal.mean()):.0f}.",
    )


def judge_norm(readings: Sequence[Measurement], setting: str) -> Judgement:
    """Whether the norm of the weights grows from look to look."""
    found = norms(readings, setting)
    grows = (found.diff(dim=1) > 0).all(1).double()
    sentence = (
        "Share of runs in which ‖W‖ grows from every look to the next; it ends at "
        f"{float((found[:, -1] / found[:, 0]).mean()):.3f} times its start."
    )
    return judge_always(grows, sentence)


def judge_deeper_without(readings: Sequence[Measurement]) -> Judgement:
    """Whether networks without batch norm get deeper from small weights."""
    found = lengths(readings, "plain")
    sentence = (
        f"Change of the mean path length (10 layers) from start to end; it starts at {float(found[:, 0].mean()):.2f} "
        f"and ends at {float(found[:, -1].mean()):.2f}."
    )
    return decide(over_seeds(found[:, -1] - found[:, 0]), POSITIVE, sentence)


def judge_deeper_from_large(readings: Sequence[Measurement]) -> Judgement:
    """Whether they do from large weights."""
    found = lengths(readings, "plain_large")
    change = over_seeds(found[:, -1] - found[:, 0])
    return decide_correction(
        (change, POSITIVE),
        (change, NEGATIVE),
        f"Change of the mean path length from weights of variance 1/inputs: {float(found[:, 0].mean()):.2f} at the "
        f"start, {float(found[:, -1].mean()):.2f} at the end. Tested in place of a printed statement that "
        "fails: from large branches it falls.",
    )


_GROWTH = "The scales λ grow steadily as training goes on"

_DEEPER = "Growing scales shift the ensemble to bigger depths"

FEWEST = 5
"""Replicates below which agreement decides nothing: shares that are all equal have an interval without width."""


def judge_always(shares: Sequence[Tensor] | Tensor, explanation: str) -> Judgement:
    """Reproduced if the share of cases in which a statement holds is 1 in each of at least five replicates."""
    stacked = torch.stack(list(shares))
    if len(stacked) < FEWEST:
        return Judgement("not attempted", float(stacked.mean()), explanation=f"{explanation} {UNDECIDED}")
    return decide(over_seeds(stacked), Band.around(1.0, 0.0), explanation)


FIG1D = (
    Claim("growth", f"{_GROWTH} (Eq. 20 as printed).", "Figure 1d", "> 0", partial(judge_growth, setting="literal")),
    Claim("growth_centred", f"{_GROWTH} (centred).", "Figure 1d", "> 0", partial(judge_growth, setting="centred")),
    Claim(
        "growth_large_head",
        f"{_GROWTH} (centred, logits that start large).",
        "Figure 1d",
        "> 0",
        partial(judge_growth, setting="large_head"),
    ),
    Claim(
        "every_layer",
        "Later lines lie higher at every layer (Eq. 20 as printed).",
        "Figure 1d, caption",
        "all layers",
        partial(judge_every_layer, setting="literal"),
    ),
    Claim(
        "first_layer",
        "The first layer, which cannot be skipped, behaves differently (Eq. 20 as printed).",
        "Section 4.2, after Theorem 3",
        "differs; we ask for > 0",
        partial(judge_first_layer, setting="literal"),
    ),
    Claim(
        "first_layer_centred",
        "The first layer, which cannot be skipped, behaves differently (centred).",
        "Section 4.2, after Theorem 3",
        "differs; we ask for > 0",
        partial(judge_first_layer, setting="centred"),
    ),
    Claim(
        "recursion",
        "At λ = 1 the mean square grows by 1 from layer to layer: E N²(l+1) = 1 + E N²(l).",
        "Section 4.1, after Eq. 20",
        "1",
        judge_recursion,
    ),
    Claim(
        "learned",
        "The network learns to discriminate between 50 Gaussians.",
        "Figure 1d, caption",
        "trained",
        partial(judge_learned, setting="literal", least=0.7),
    ),
    Claim(
        "deeper",
        f"{_DEEPER} (Eq. 20 as printed).",
        "Section 1; Section 4, claim 2",
        "> 0",
        partial(judge_deeper_with_scales, setting="literal"),
    ),
    Claim(
        "deeper_centred",
        f"{_DEEPER} (centred).",
        "Section 1; Section 4, claim 2",
        "> 0",
        partial(judge_deeper_with_scales, setting="centred"),
    ),
)

FIG1E = (
    Claim(
        "growth",
        "The norm of the weights increases steadily (small start).",
        "Figure 1e",
        "always",
        partial(judge_norm, setting="plain"),
    ),
    Claim(
        "large_start",
        "The norm of the weights increases steadily (weights of variance 1/inputs).",
        "Figure 1e",
        "always",
        partial(judge_norm, setting="plain_large"),
    ),
    Claim(
        "deeper",
        "Without batch normalisation, too, the ensemble gets deeper (small start).",
        "Section 4.2, before Eq. 24",
        "> 0",
        judge_deeper_without,
    ),
    Claim(
        "deeper_large_start",
        "Without batch normalisation, too, the ensemble gets deeper (weights of variance 1/inputs).",
        "Section 4.2, before Eq. 24",
        "> 0",
        judge_deeper_from_large,
    ),
)

SCALED = {
    "literal": "Eq. 20 as printed",
    "centred": "centred branches",
    "large_head": "centred, logits start large",
}

PLAIN = {"plain": "small start, 0.3/√inputs", "plain_large": "usual start, 1/√inputs"}


def draw_fig1d(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """The scales by layer at several stages of training, for each setting, and the depth."""
    return (*(_by_layer(readings, setting) for setting in SCALED), _depth(readings, SCALED))


def draw_fig1e(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """The norm of the weights against the iteration, and the depth."""
    relative = {setting: norms(readings, setting) / norms(readings, setting)[:, :1] for setting in PLAIN}
    start = float(norms(readings, "plain")[:, 0].mean())
    norm = Figure(
        name="weight_norm",
        title="Figure 1e: norm of the weights without batch normalisation",
        caption=f"Means over seeds with standard deviations, relative to the start ({start:.2f} for the small one).",
        x_label="iteration",
        y_label="‖W‖ over its start",
        marks=(
            *(mark for i, s in enumerate(PLAIN) for mark in curve(_steps(readings, s), relative[s], PLAIN[s], i)),
            Reference(1.0),
        ),
    )
    return norm, _depth(readings, PLAIN)


def _by_layer(readings: Sequence[Measurement], setting: str) -> Figure:
    found = scales(readings, setting)
    layers = numbers(range(1, found.shape[2] + 1))
    marks: list[figure_Band | Line] = []
    for look, step in enumerate(_steps(readings, setting)):
        marks += curve(layers, found[:, look], f"step {step:.0f}", look)
    return Figure(
        name=f"scales_{setting}",
        title=f"Figure 1d: batch-norm scales, {SCALED[setting]}",
        caption="λ of each layer at stages of training, means over seeds with standard deviations.",
        x_label="layer l",
        y_label="λ_l",
        marks=tuple(marks),
    )


def _depth(readings: Sequence[Measurement], names: dict[str, str]) -> Figure:
    marks: list[figure_Band | Line] = []
    for index, (setting, name) in enumerate(names.items()):
        marks += curve(_steps(readings, setting), lengths(readings, setting), name, index)
    return Figure(
        name="depth",
        title="Mean path length of the same networks, 10 layers",
        caption="Energy-weighted mean length of the paths to the last layer, means and deviations over seeds.",
        x_label="iteration",
        y_label="mean path length",
        marks=tuple(marks),
    )


def _steps(readings: Sequence[Measurement], setting: str) -> tuple[float, ...]:
    return numbers(stacked(readings, "step", "gaussians", setting=setting)[0])
