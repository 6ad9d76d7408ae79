"""Figures of the tangent kernel."""

import torch

from skiplens.figures.figure import Figure, Heat, Line, Points, Reference, numbers
from skiplens.readings import TangentReading


def kernel_by_class(reading: TangentReading) -> Figure:
    """The kernel's correlations as a matrix, samples sorted by class where there are classes."""
    order = torch.argsort(reading.targets, stable=True) if len(reading.targets) else torch.arange(len(reading.kernel))
    correlations = reading.correlations[order][:, order]
    classes = "; samples are sorted by class, and a block along the diagonal is a class that is learned together"
    return Figure(
        name="kernel",
        title="Tangent kernel between samples",
        caption=f"Correlation of the parameter gradients of two samples{classes * bool(len(reading.targets))}.",
        x_label="sample",
        y_label="sample",
        marks=(Heat(tuple(numbers(row) for row in correlations), "correlation"),),
    )


def kernel_eigenvalues(reading: TangentReading) -> Figure:
    """The kernel's eigenvalues, largest first."""
    values = reading.eigenvalues
    positive = values.clamp_min(values[0] * torch.finfo(values.dtype).eps)
    return Figure(
        name="eigenvalues",
        title="Eigenvalues of the tangent kernel",
        caption="Gradient descent with a small step learns direction i at a speed proportional to eigenvalue i: a "
        "steep fall means that some directions take very much longer than others.",
        x_label="rank",
        y_label="eigenvalue",
        marks=(Points(numbers(range(1, len(values) + 1)), numbers(positive)),),
        y_log=True,
    )


def kernel_against_angle(reading: TangentReading) -> Figure | None:
    """The kernel's correlation of each pair of samples against the angle between the inputs."""
    if not reading.angles.numel():
        return None
    pairs = torch.triu_indices(len(reading.kernel), len(reading.kernel), offset=1)
    angles, correlations = reading.angles[pairs[0], pairs[1]], reading.correlations[pairs[0], pairs[1]]
    grid = torch.linspace(0, float(angles.max()), 100, dtype=torch.float64)
    return Figure(
        name="kernel_against_angle",
        title="Tangent kernel against the angle between inputs",
        caption="Each point is a pair of samples. Points above the dashed cosine: the network sees the two inputs as "
        "more alike than they are; all points near one: it hardly tells inputs apart.",
        x_label="angle between the inputs (radians)",
        y_label="correlation of the gradients",
        marks=(
            Points(numbers(angles), numbers(correlations), "pairs of samples"),
            Line(numbers(grid), numbers(grid.cos()), "cosine: a linear model", dashed=True),
            Reference(0.0),
        ),
    )
