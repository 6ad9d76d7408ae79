"""Many curves over the same places as one line and the area between the outermost of them."""

import torch
from torch import Tensor

from skiplens.figures.figure import Band, Line, numbers
from skiplens.figures.style import colour


def bundle(x: Tensor, curves: Tensor, name: str, index: int, logarithmic: bool = False) -> tuple[Line | Band, ...]:
    """The mean of the rows of `curves` as a line and their range as an area, both in the index-th colour.

    Args:
        x: Places.
        curves: One row each; the bundle is drawn where all rows are finite.
        name: Of the line.
        index: Of the colour.
        logarithmic: Whether the mean is that of logarithms.
    """
    seen = curves.isfinite().all(0) & ((curves > 0).all(0) | (not logarithmic))
    places, rows = numbers(x[seen]), curves[:, seen].double()
    mean = rows.log().mean(0).exp() if logarithmic else rows.mean(0)
    line = Line(places, numbers(mean), name, colour=colour(index))
    if len(rows) < 2 or not bool(seen.any()):
        return (line,)
    low, high = torch.aminmax(rows, dim=0)
    return Band(places, numbers(low), numbers(high), colour=colour(index)), line
