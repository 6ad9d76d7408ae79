"""Theorem 4.5: curvature against the size of the parameters, batch norm, and two derivatives."""

from collections.abc import Sequence

import torch

from skiplens.figures import Figure, Line, Points
from skiplens.figures.bundle import bundle
from skiplens.figures.figure import Reference, numbers
from skiplens.figures.style import colour
from skiplens.readings import Measurement
from skiplens.studies.macdonald2023_regularity.networks import SCALES
from skiplens.studies.macdonald2023_regularity.smoothness.measure import GAPS, ROW_NORMS
from skiplens.studies.selection import chosen, stacked


def thm4_5(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """Hessians, batch norm behind an affine map, slopes near 0, the second derivative of an entry."""
    return _hessians(readings), _batch_norm(readings), _slopes(readings), _entries(readings)


def _hessians(readings: Sequence[Measurement]) -> Figure:
    scales = torch.tensor(SCALES, dtype=torch.float64)
    names = {"normalised": "normalised layers", "plain": "the same without normalisation"}
    bundles = [
        mark
        for index, (array, name) in enumerate(names.items())
        for mark in bundle(scales, stacked(readings, array, "smooth_hessians"), name, index, logarithmic=True)
    ]
    certified = float(stacked(readings, "certified", "smooth_hessians").log().mean().exp())
    return Figure(
        name="hessians",
        title="Theorem 4.5: curvature of the loss over parameter space",
        caption="With normalised layers the Hessian's norm (mean and range over draws) stays below the certified "
        "constant however large the parameters are; without them it grows without end.",
        x_label="size of the parameters",
        y_label="norm of the Hessian",
        marks=(*bundles, Reference(certified, "certified β (mean over draws)")),
        x_log=True,
        y_log=True,
    )


def _batch_norm(readings: Sequence[Measurement]) -> Figure:
    norms = torch.tensor(ROW_NORMS, dtype=torch.float64)
    names = {
        "few": "as many samples as features",
        "many": "ten times as many samples as features",
        "normalised": "few samples, normalised affine map",
    }
    bundles = [
        mark
        for index, (array, name) in enumerate(names.items())
        for mark in bundle(norms, stacked(readings, array, "batch_norm_gains"), name, index, logarithmic=True)
    ]
    return Figure(
        name="batch_norm",
        title="Batch norm after an affine map",
        caption="The norm of the Jacobian along the data's narrowest direction. With as many samples as features the "
        "covariance is singular for any data, and the norm grows with the affine map; the paper calls that "
        "not generic. It stays bounded with more samples, or behind a normalised map.",
        x_label="norm of the affine map",
        y_label="norm of J(bn ∘ aff)",
        marks=tuple(bundles),
        x_log=True,
        y_log=True,
    )


def _slopes(readings: Sequence[Measurement]) -> Figure:
    reading = chosen(readings, "slope_quotients")[0]
    names = {"root": "φ(x) = (2/3)·abs(x)^(3/2)", "softplus": "softplus"}
    lines = (Line(numbers(GAPS), numbers(reading[array]), name) for array, name in names.items())
    return Figure(
        name="slopes",
        title="Continuously differentiable is not enough",
        caption="Difference quotients of two slopes at 0. Those of the first function grow without end as the gap "
        "shrinks: its derivative is continuous and not Lipschitz.",
        x_label="gap h",
        y_label="(φ′(h) − φ′(0))/h, absolute",
        marks=tuple(lines),
        x_log=True,
        y_log=True,
    )


def _entries(readings: Sequence[Measurement]) -> Figure:
    reading = chosen(readings, "entry_curvatures")[0]
    epsilon = reading.setting("epsilon")
    w = torch.linspace(-2.5, 2.5, 501, dtype=torch.float64)
    return Figure(
        name="entry_curvature",
        title=f"Equation (33): second derivative of entry normalisation, ε = {epsilon}",
        caption="Points are differentiated automatically. They lie on the formula with the exponent −5/2; the printed "
        "one has −3/2.",
        x_label="entry w",
        y_label="second derivative of w/√(ε + w²)",
        marks=(
            Line(numbers(w), numbers(-3 * epsilon * w * (epsilon + w * w) ** -2.5), "corrected", colour=colour(0)),
            Line(numbers(w), numbers(-3 * epsilon * w * (epsilon + w * w) ** -1.5), "as printed", True, colour(1)),
            Points(numbers(reading["entry"]), numbers(reading["differentiated"]), "automatic differentiation"),
        ),
    )
