"""The kernel of two inputs against the angle between them, relative to equal inputs."""

import math
from functools import lru_cache

import torch
from torch import Tensor

from skiplens.explorer.views.tangent.architectures import TITLES, Architecture, Setting
from skiplens.explorer.views.tangent.sampling import Sampled
from skiplens.figures import Band, Figure, Line, Points
from skiplens.figures.figure import Mark, numbers
from skiplens.figures.style import colour
from skiplens.kernels.infinite_width import InfiniteWidthKernel
from skiplens.theory.infinite_width import Correlation

ANGLES = 65


@lru_cache(maxsize=256)
def relative_kernel(kernel: InfiniteWidthKernel) -> Tensor:
    """The tangent kernel at equal steps of the angle from 0 to π, divided by that of equal inputs.

    Straight from the recursion and from exact angles: a table is worth its time only for many more pairs.
    """
    half = torch.linspace(0, math.pi / 2, ANGLES, dtype=torch.float64)
    with torch.no_grad():
        limit = kernel.limit()
        at_angles = limit.recursion(Correlation(2 * half.sin().square(), 2 * half.cos().square()))
        return at_angles.ntk / limit.at_equal_inputs().ntk


def kernel_against_angle(setting: Setting, curves: dict[Architecture, Tensor], sampled: Sampled | None) -> Figure:
    """The curve of each architecture, with sampled networks around the chosen one."""
    degrees = torch.linspace(0, 180, ANGLES, dtype=torch.float64)
    lines = [
        Line(numbers(degrees), numbers(curve), TITLES[architecture], colour=_colour(architecture))
        for architecture, curve in curves.items()
    ]
    cosine = torch.deg2rad(degrees).cos()
    return Figure(
        name="kernel_against_angle",
        title=f"Tangent kernel against angle at depth {setting.depth}",
        caption="How alike two inputs look to each network while it trains, relative to equal inputs. A curve that "
        "drops at once to a plateau tells hardly any two inputs from any other two; the dashed cosine is a linear "
        "model.",
        x_label="angle between the inputs (degrees)",
        y_label="kernel relative to equal inputs",
        marks=(
            *(_bundle(setting, sampled) if sampled else ()),
            *lines,
            Line(numbers(degrees), numbers(cosine), "linear model", dashed=True, colour="ink"),
        ),
    )


def _bundle(setting: Setting, sampled: Sampled) -> tuple[Mark, ...]:
    """One faint line for each network, the area they fill, and their mean with its standard error."""
    shade = _colour(setting.architecture)
    degrees = numbers(torch.linspace(0, 180, sampled.kernels.shape[1], dtype=torch.float64))
    rows = [Line(degrees, numbers(row), colour=shade, faint=True) for row in sampled.kernels]
    error = sampled.kernels.std(0) / math.sqrt(len(sampled.kernels))
    name = f"mean of {len(rows)} drawn"
    low, high = torch.aminmax(sampled.kernels, dim=0)
    area = Band(degrees, numbers(low), numbers(high), colour=shade)
    return (area, *rows, Points(degrees, numbers(sampled.kernels.mean(0)), name, error=numbers(error)))


def _colour(architecture: Architecture) -> str:
    return colour(list(TITLES).index(architecture))
