"""Histograms over several draws: a stair through the means, and the standard errors around it."""

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.figures import Line
from skiplens.figures.figure import Band, numbers


def histogram(
    values: Float[Tensor, "draws values"], edges: Float[Tensor, " edges"], name: str, colour: str
) -> tuple[Band | Line, ...]:
    """The density in each bin, mean over the draws, with an area of one standard error to both sides."""
    width = edges.diff()
    density = torch.stack([torch.histogram(row.double(), edges.double()).hist for row in values])
    density = density / (values.shape[1] * width)
    mean, x = density.mean(0), edges.repeat_interleave(2)[1:-1]
    line = Line(numbers(x), numbers(mean.repeat_interleave(2)), name, colour=colour)
    if len(values) < 2:
        return (line,)
    error = density.std(0) / len(values) ** 0.5
    low, high = ((mean + sign * error).repeat_interleave(2) for sign in (-1, 1))
    return Band(numbers(x), numbers(low), numbers(high), colour=colour), line
