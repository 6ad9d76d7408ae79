"""Theorem 1 as a picture: norms that fall with depth."""

from collections.abc import Sequence

import torch

from skiplens.figures import Figure, Line
from skiplens.figures.figure import numbers
from skiplens.figures.style import INK
from skiplens.readings import Measurement
from skiplens.studies.curves import curve
from skiplens.studies.li2016_shortcuts.small_weights.claims import by_units
from skiplens.studies.selection import values
from skiplens.theory.small_weights import norm_bound


def figures(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """The norms against the number of units."""
    counts, norms = by_units(readings, "largest_norm")
    _, constants = by_units(readings, "norm_constant")
    _, separations = by_units(readings, "separation")
    m = values(readings, "samples", "construction")[0]
    law = constants.mean() / torch.tensor(counts).sqrt()
    bound = [norm_bound(R, m, float(separations.mean())) for R in counts]
    figure = Figure(
        name="norms",
        title="Theorem 1: the explicit network's weights shrink with depth",
        caption=f"The largest Frobenius norm among all matrices of the network that maps {m} random unit vectors to "
        "their labels falls like one over the square root of the number of units, below the bound.",
        x_label="residual units R",
        y_label="largest ‖W‖_F",
        marks=(
            *curve(counts, norms, "constructed networks", 0),
            Line(numbers(counts), numbers(law), "limit of small steps, ∝ 1/√R", colour=INK, dashed=True),
            Line(numbers(counts), numbers(bound), "bound (6), corrected", dashed=True),
        ),
        x_log=True,
        y_log=True,
    )
    return (figure,)
