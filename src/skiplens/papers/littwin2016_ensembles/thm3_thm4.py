"""Theorems 3 and 4: what one gradient step on a spin-glass loss does to the scales."""

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from skiplens.kernels.finite_width.simulation import estimate
from skiplens.papers.littwin2016_ensembles.fig1d_fig1e import judge_always
from skiplens.papers.littwin2016_ensembles.two_paths import opposed_share
from skiplens.papers.statistics import Band, chosen, curve, decide, decide_correction, over_seeds, stacked
from skiplens.papers.study import Claim, Judgement
from skiplens.plots.figure import Band as figure_Band
from skiplens.plots.figure import Figure, Line, Points, Reference, numbers
from skiplens.readings.reading import Measurement

LEADING_ORDER = 4e-4
"""How far the ratio of a step to its leading order may be from 1 at the smallest learning rate."""


def ratio(measured: Tensor, predicted: Tensor) -> Tensor:
    """The factor that fits measured to predicted numbers best."""
    return (measured * predicted).sum() / predicted.square().sum()


def judge_layer_growth(readings: Sequence[Measurement], layer: str) -> Judgement:
    """How often |λ| grows under the theorem's hypotheses."""
    shares, losses = [], 0
    for reading in chosen(readings, "layer_steps"):
        grown = reading[layer][:, -1] > 0
        if layer == "skipped":
            grown = grown[reading["skipped_long_over_short"] > 1]
        losses += len(grown)
        shares.append(grown.double().mean())
    sentence = f"Share of {losses} random losses with ∂L/∂λ = 0 on which |λ| is larger after a step of 1e-5."
    return judge_always([share for share in shares if not share.isnan()], sentence)


def judge_layer_formula(readings: Sequence[Measurement], layer: str, formula: str) -> Judgement:
    """The size of the growth."""
    found = [ratio(reading[layer][:, -1], reading[f"{layer}_predicted"]) for reading in chosen(readings, "layer_steps")]
    sentence = f"Growth of |λ| in a step of 1e-5 over {formula}, fitted over the losses of a replicate."
    return decide(over_seeds(found), Band.around(1.0, LEADING_ORDER), sentence)


def judge_equation_41(readings: Sequence[Measurement]) -> Judgement:
    """The line that lost the gradient."""
    printed, right = [], []
    for reading in chosen(readings, "layer_steps"):
        grown, predicted = reading["unskipped"][:, -1], reading["unskipped_predicted"]
        printed.append(ratio(grown, predicted / reading["unskipped_squared_gradient"]))
        right.append(ratio(grown, predicted))
    band = Band.around(1.0, LEADING_ORDER)
    return decide_correction(
        (over_seeds(printed), band),
        (over_seeds(right), band),
        "Growth of |λ| over the corrected μ²‖g_m + g_p‖²/|λ|. The middle of equation 41 prints μ²/|λ|, without the "
        f"gradient: the growth is {float(torch.stack(printed).mean()):.1f} times that.",
    )


def judge_equation_25(readings: Sequence[Measurement]) -> Judgement:
    """Theorem 4."""
    found = [ratio(reading["slope"][:, -1], reading["predicted"]) for reading in chosen(readings, "scale_steps")]
    sentence = "∂L/∂C after a step of 1e-5, from points where it was 0, over equation 25; fitted over the losses."
    return decide(over_seeds(found), Band.around(1.0, LEADING_ORDER), sentence)


def judge_equation_45(readings: Sequence[Measurement]) -> Judgement:
    """The line with ‖g_p‖² twice."""
    steps = chosen(readings, "scale_steps")
    printed = [ratio(reading["slope"][:, -1], reading["printed_as_45"]) for reading in steps]
    right = [ratio(reading["slope"][:, -1], reading["predicted"]) for reading in steps]
    band = Band.around(1.0, LEADING_ORDER)
    return decide_correction(
        (over_seeds(printed), band),
        (over_seeds(right), band),
        "∂L/∂C after a step over the corrected line, whose first square is ‖g_m‖² (as in equation 25). With ‖g_p‖² "
        f"twice, as equation 45 prints, the ratio is {float(torch.stack(printed).mean()):.2f}.",
    )


def judge_dominant(readings: Sequence[Measurement]) -> Judgement:
    """The sign where long paths dominate the gradient."""
    shares, losses = [], 0
    for reading in chosen(readings, "scale_steps"):
        up = reading["slope"][:, -1][reading["long_over_short"] > 1] < 0
        losses += len(up)
        shares.append(up.double().mean())
    sentence = f"Share of {losses} random losses with ∂L/∂C = 0 and ‖g_p‖ > ‖g_m‖ on which the next step increases C."
    return judge_always([share for share in shares if not share.isnan()], sentence)


def judge_opposed(readings: Sequence[Measurement]) -> Judgement:
    """The sign where gradients are opposed and long paths do not dominate."""
    found = [
        reading["opposed"].mean() / _opposed_prediction(reading.setting("short"), reading.setting("long"))
        for reading in chosen(readings, "scale_steps")
    ]
    interval = over_seeds(found)
    return decide_correction(
        (interval, Band(-math.inf, 0.0)),
        (interval, Band.around(1.0, LEADING_ORDER)),
        "C ∂L/∂C after a step over (1-κ)(pκ-m)μ‖g_m‖² > 0, on losses made such that g_p = -κ g_m with κ in the middle "
        "of m/p and 1. There C is driven down: it is driven up for certain only if κ > 1 or κ < m/p.",
    )


def judge_norm_step(readings: Sequence[Measurement]) -> Judgement:
    """The norm itself always grows to second order."""
    found = [reading["norm_growth"][:, 0].mean() for reading in chosen(readings, "scale_steps")]
    sentence = "Growth of ‖w‖² in a step from a point with ∂L/∂C = 0, over μ²‖g‖²; it is exact for every loss."
    return decide(over_seeds(found), Band.around(1.0, LEADING_ORDER), sentence)


def judge_descent(readings: Sequence[Measurement], name: str) -> Judgement:
    """Whether scale or mean length is larger after a descent."""
    columns = [stacked(readings, name, "descents", depth_ratio=beta) for beta in depth_ratios(readings)]
    higher = torch.stack([history[:, -1] > history[:, 0] for history in columns], dim=1).double()
    sentence = (
        f"Share of {higher.numel()} descents from points with ∂L/∂C = 0, for three β, after which it is larger; "
        f"the median change is {float(torch.cat([plain_change(history) for history in columns]).median()):.2g}."
    )
    return judge_always(higher.mean(1), sentence)


def depth_ratios(readings: Sequence[Measurement]) -> list[float]:
    """β of the descents."""
    return sorted({reading.setting("depth_ratio") for reading in chosen(readings, "descents")})


def plain_change(history: Tensor) -> Tensor:
    """End minus start."""
    return history[:, -1] - history[:, 0]


def _opposed_prediction(short: int, long: int) -> float:
    kappa = opposed_share(short, long)
    return (1 - kappa) * (long * kappa - short)


THM3 = (
    Claim(
        "unskipped",
        "|λ| of a layer that no path skips grows.",
        "Theorem 3, Eq. 22",
        "always",
        partial(judge_layer_growth, layer="unskipped"),
    ),
    Claim(
        "skipped",
        "|λ| of a layer with a skip grows if ‖g_p‖ > ‖g_m‖.",
        "Theorem 3, Eq. 23",
        "always",
        partial(judge_layer_growth, layer="skipped"),
    ),
    Claim(
        "unskipped_size",
        "It grows by μ²‖g_m + g_p‖²/|λ|.",
        "Eq. 40",
        "ratio 1",
        partial(judge_layer_formula, layer="unskipped", formula="μ²‖g_m + g_p‖²/|λ|"),
    ),
    Claim(
        "skipped_size",
        "It grows by μ²(g_m·g_p + ‖g_p‖²)/|λ|.",
        "Eq. 42",
        "ratio 1",
        partial(judge_layer_formula, layer="skipped", formula="μ²(g_m·g_p + ‖g_p‖²)/|λ|"),
    ),
    Claim("equation_41", "It grows by μ²/|λ|.", "Eq. 41, middle", "ratio 1", judge_equation_41),
)

THM4 = (
    Claim(
        "equation_25",
        "∂L/∂C becomes -(μ/C)(m‖g_m‖² + p‖g_p‖² + (m+p) g_m·g_p).",
        "Theorem 4, Eq. 25",
        "ratio 1",
        judge_equation_25,
    ),
    Claim(
        "equation_45",
        "∂L/∂C becomes -(μ/C)(m‖g_p‖² + p‖g_p‖² + (m+p) g_m·g_p).",
        "Proof of Theorem 4, Eq. 45",
        "ratio 1",
        judge_equation_45,
    ),
    Claim(
        "dominant",
        "C increases when the gradients of deeper paths dominate.",
        "Section 4.2, after Theorem 4",
        "always",
        judge_dominant,
    ),
    Claim("always", "C increases.", "Section 4, claim 2; after Theorem 4", "∂L/∂C < 0", judge_opposed),
    Claim("norm", "The gradient is orthogonal to the weights.", "Proof of Theorem 4", "ratio 1", judge_norm_step),
    Claim(
        "scale_in_descent",
        "During training C increases.",
        "Section 4, claim 2",
        "always",
        partial(judge_descent, name="weight_scale"),
    ),
    Claim(
        "deeper_in_descent",
        "The expansion emphasises deeper paths.",
        "Section 4.2, after Theorem 4",
        "always",
        partial(judge_descent, name="mean_length"),
    ),
)


def draw_thm3(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """The growth of |λ| over its leading order against the learning rate."""
    return (
        Figure(
            name="leading_order",
            title="Theorem 3: growth of |λ| in a step over its leading order",
            caption="Means over random spin-glass losses with standard errors over replicates; orders (m, p) = (2, 4) "
            "and (3, 5). The smaller the step, the closer to 1.",
            x_label="learning rate μ",
            y_label="measured over predicted",
            marks=(
                _against_rate(readings, "layer_steps", ("unskipped", "unskipped_predicted"), "layer without skip"),
                _against_rate(readings, "layer_steps", ("skipped", "skipped_predicted"), "layer with skip"),
                Reference(1.0),
            ),
            x_log=True,
        ),
        _growth(readings),
    )


def draw_thm4(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """∂L/∂C over equations 25 and 45 against the learning rate; scale and length in descents."""
    return (
        Figure(
            name="leading_order",
            title="Theorem 4: ∂L/∂C after a step over its prediction",
            caption="Means over random spin-glass losses with standard errors over replicates. Equation 25 is the "
            "leading order; the line printed as equation 45 is not.",
            x_label="learning rate μ",
            y_label="measured over predicted",
            marks=(
                _against_rate(readings, "scale_steps", ("slope", "predicted"), "Eq. 25"),
                _against_rate(readings, "scale_steps", ("slope", "printed_as_45"), "Eq. 45 as printed"),
                Reference(1.0),
            ),
            x_log=True,
        ),
        _descent(readings, "weight_scale", "change of the weight scale C"),
        _descent(readings, "mean_length", "change of the mean path length"),
    )


def _against_rate(readings: Sequence[Measurement], measure: str, arrays: tuple[str, str], name: str) -> Points:
    found = chosen(readings, measure)
    rates = found[0].setting("rates")
    measured, predicted = arrays
    rows = [torch.stack([ratio(column, one[predicted]) for column in one[measured].T]) for one in found]
    value = estimate(torch.stack(rows))
    return Points(numbers(rates), numbers(value.value), name, numbers(value.standard_error))


def _growth(readings: Sequence[Measurement]) -> Figure:
    marks = []
    for layer, name in (("unskipped", "layer without skip"), ("skipped", "layer with skip")):
        found = chosen(readings, "layer_steps")
        x = torch.cat([reading[f"{layer}_long_over_short"] for reading in found])
        y = torch.cat([reading[layer][:, -1] for reading in found])
        marks.append(Points(numbers(x), numbers(y), name))
    return Figure(
        name="growth",
        title="Theorem 3: which scales grow",
        caption="One point a random loss. Scales of layers that no path skips always grow; those of skipped layers "
        "always do right of the line, where long paths dominate the gradient, and may shrink left of it.",
        x_label="‖g_p‖ / ‖g_m‖",
        y_label="(|λ_new| - |λ|) / μ²",
        marks=(*marks, Reference(1.0, "‖g_p‖ = ‖g_m‖", axis="x"), Reference(0.0)),
    )


def _descent(readings: Sequence[Measurement], array: str, label: str) -> Figure:
    marks: list[figure_Band | Line] = []
    for index, beta in enumerate(depth_ratios(readings)):
        history = stacked(readings, array, "descents", depth_ratio=beta)
        history = history - history[:, :1]
        marks += curve(stacked(readings, "step", "descents")[0], history, f"β = {beta:g}", index)
    return Figure(
        name=array,
        title=f"Theorem 4: {label} in descents on spin-glass losses",
        caption="From points where ∂L/∂C = 0; means and deviations over losses. The weights are free to grow.",
        x_label="steps",
        y_label=label,
        marks=tuple(marks),
    )
