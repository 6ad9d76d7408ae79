"""A series of a figure: the mean over replicates with a band of one standard deviation."""

from collections.abc import Sequence

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.figures import Band, Line
from skiplens.figures.figure import numbers
from skiplens.figures.style import colour


def curve(
    x: Sequence[float] | Tensor,
    values: Float[Tensor, "replicates places"],
    name: str,
    number: int,
    dashed: bool = False,
) -> tuple[Band, Line]:
    """The marks of the number-th series; a place that a replicate did not reach (NaN) counts for the others.

    Args:
        x: The places.
        values: One row a replicate.
        name: In the legend.
        number: Chooses the colour.
        dashed: How the line is drawn.
    """
    mean = values.nanmean(0)
    reached = torch.isfinite(values).sum(0)
    spread = ((values - mean).square().nansum(0) / (reached - 1).clamp(min=1)).sqrt()
    shade = colour(number)
    band = Band(numbers(x), numbers(mean - spread), numbers(mean + spread), colour=shade)
    return band, Line(numbers(x), numbers(mean), name, dashed=dashed, colour=shade)
