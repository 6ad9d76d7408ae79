"""Figure 2 and theorems 1 and 2: kernels against the angle, variances against the width."""

import math
from collections.abc import Sequence

import torch

from skiplens.figures import Figure, Line, Points
from skiplens.figures.figure import numbers
from skiplens.figures.style import INK
from skiplens.readings import Measurement
from skiplens.studies.littwin2020_tangent.claims.kernels import DEPTH, limit, printed
from skiplens.studies.littwin2020_tangent.settings import SCALING_WIDTHS, WIDTHS
from skiplens.studies.selection import chosen, stacked
from skiplens.theory.finite_width import DenseNet, ResNet, estimate, kernel_moments
from skiplens.theory.finite_width.networks import Network

NAMES = {"resnet": "ResNet", "densenet": "DenseNet", "vanilla": "vanilla"}
COLOURS = dict(zip(WIDTHS, ("#d62728", "#2ca02c"), strict=True))
"""The paper's: narrow networks red, wide ones green, theory black."""

MOST_CURVES = 50


def fig2(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """Panels (a) and (b)."""
    return tuple(_bundle(readings, architecture, panel) for architecture, panel in (("resnet", "a"), ("densenet", "b")))


def thm1(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """The printed kernel beside the right one, and the variance against the width."""
    return _printed_and_right(readings, "resnet"), _variance_against_width(readings, "resnet")


def thm2(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """The printed kernel beside the right one, and the variance against the width."""
    return _printed_and_right(readings, "densenet"), _variance_against_width(readings, "densenet")


def _bundle(readings: Sequence[Measurement], architecture: str, panel: str) -> Figure:
    name = NAMES[architecture]
    curves = [_curves(readings, architecture, width) for width in WIDTHS]
    theta = _angles(readings)
    theory = Line(theta, numbers(limit(architecture, len(theta))), "infinite width", colour=INK)
    return Figure(
        name=f"bundle_{architecture}",
        title=f"Figure 2{panel}: sampled kernels of a {name}, {DEPTH} {_layers(architecture)}",
        caption=f"Each thin line is one random {name}: red {WIDTHS[0]} units wide, green {WIDTHS[1]}. The thick line "
        "is the limiting kernel (corrected): it runs through the middle of both bundles, and the wide one is narrower.",
        x_label="angle between the inputs θ (radians)",
        y_label="tangent kernel G(x, x′)",
        marks=(*curves, theory),
    )


def _curves(readings: Sequence[Measurement], architecture: str, width: int) -> Line:
    """The networks of the first replicate as one line with gaps, so that they have one name."""
    kernels = stacked(readings, "kernel", "bundle", architecture=architecture, width=width)[0][:MOST_CURVES]
    gap = torch.full((len(kernels), 1), math.nan, dtype=torch.float64)
    theta = torch.tensor(_angles(readings), dtype=torch.float64).expand(len(kernels), -1)
    x, y = (torch.cat([values, gap], dim=1).flatten() for values in (theta, kernels))
    return Line(numbers(x), numbers(y), f"width {width}", colour=COLOURS[width], faint=True)


def _printed_and_right(readings: Sequence[Measurement], architecture: str) -> Figure:
    theta = _angles(readings)
    means = stacked(readings, "kernel", "bundle", architecture=architecture, width=max(WIDTHS)).mean(1)
    found = estimate(means)
    theorem = "Theorem 1" if architecture == "resnet" else "Theorem 2"
    return Figure(
        name=f"kernel_{architecture}",
        title=f"{theorem}: mean kernel, printed and corrected recursion",
        caption=f"Points are means over random networks {max(WIDTHS)} units wide with their standard "
        "errors over seeds. They lie on the corrected recursion; the recursion as printed misses them.",
        x_label="angle between the inputs θ (radians)",
        y_label="tangent kernel",
        marks=(
            Line(theta, numbers(limit(architecture, len(theta))), "corrected", colour=INK),
            Line(theta, numbers(printed(architecture, len(theta))), "as printed", dashed=True),
            Points(theta, numbers(found.value), "mean of random networks", numbers(found.standard_error)),
        ),
    )


def _variance_against_width(readings: Sequence[Measurement], architecture: str) -> Figure:
    scale = {"branch_scale": 0.5} if architecture == "resnet" else {}
    drawn = [
        stacked(readings, "kernel", "diagonal", architecture=architecture, depth=DEPTH, width=width, **scale).var(1)
        for width in SCALING_WIDTHS
    ]
    found = estimate(torch.stack(drawn, dim=1))
    exact = [kernel_moments(_network(architecture, width)).variance for width in SCALING_WIDTHS]
    return Figure(
        name=f"variance_{architecture}",
        title=f"Kernel at equal inputs, {NAMES[architecture]}, {DEPTH} {_layers(architecture)}",
        caption="The kernel of a random network converges to the limit: its variance falls like one over the width. "
        "The line is exact.",
        x_label="width n",
        y_label="variance of G(x, x)",
        marks=(
            Line(numbers(SCALING_WIDTHS), numbers([float(value) for value in exact]), "exact"),
            Points(numbers(SCALING_WIDTHS), numbers(found.value), "random networks", numbers(found.standard_error)),
        ),
        x_log=True,
        y_log=True,
    )


def _network(architecture: str, width: int) -> Network:
    return ResNet(DEPTH, width, 2, 0.5) if architecture == "resnet" else DenseNet(DEPTH, width)


def _layers(architecture: str) -> str:
    return "blocks" if architecture == "resnet" else "layers"


def _angles(readings: Sequence[Measurement]) -> tuple[float, ...]:
    count = chosen(readings, "bundle")[0].setting("angles")
    return numbers(torch.linspace(0, math.pi, count, dtype=torch.float64))
