"""Theorems 3 and 4: steps against their leading order, and descents."""

from collections.abc import Sequence

import torch

from skiplens.figures import Band, Figure, Line, Points, Reference
from skiplens.figures.figure import numbers
from skiplens.readings import Measurement
from skiplens.studies.curves import curve
from skiplens.studies.littwin2016_ensembles.claims.dynamics import depth_ratios, ratio
from skiplens.studies.selection import chosen, stacked
from skiplens.theory.finite_width import estimate


def thm3(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
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


def thm4(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
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
    marks: list[Band | Line] = []
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
