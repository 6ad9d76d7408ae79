"""Theorem 4.7: λ(DF) against the size of the parameters."""

from collections.abc import Sequence

import torch

from skiplens.figures import Figure
from skiplens.figures.bundle import bundle
from skiplens.readings import Measurement
from skiplens.studies.macdonald2023_regularity.networks import SCALES
from skiplens.studies.selection import stacked

NAMES = {
    "true": "λ(DF)",
    "from_layers": "Eq. 12, from the layers",
    "from_skips": "Theorem 4.7, from the skips",
    "chain": "λ(DF) without skips",
}


def thm4_7(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """λ(DF), both bounds, and the network without skips."""
    scales = torch.tensor(SCALES, dtype=torch.float64)
    marks = [
        mark
        for index, (array, name) in enumerate(NAMES.items())
        for mark in bundle(
            scales, stacked(readings, array, "regular_points").log().mean(2).exp(), name, index, logarithmic=True
        )
    ]
    return (
        Figure(
            name="regularity",
            title="Theorem 4.7: regularity over parameter space",
            caption="The smallest eigenvalue of DF DFᵀ (mean and range over draws) lies above both bounds at every "
            "size of the parameters, and is positive, but not uniformly so. Without skips it is much smaller.",
            x_label="size of the parameters",
            y_label="smallest eigenvalue",
            marks=tuple(marks),
            x_log=True,
            y_log=True,
        ),
    )
