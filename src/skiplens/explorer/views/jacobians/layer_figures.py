"""Pictures of one random layer with and without a skip."""

import math

import torch
from torch import Tensor

from skiplens.explorer.views.jacobians.layer import NAMES, RandomLayer, log_typical
from skiplens.figures import Band, Figure, Line, Reference
from skiplens.figures.figure import Mark, numbers
from skiplens.figures.style import colour
from skiplens.theory.random_singular_values import SingularValueLaw

FEWEST_BINS, MOST_BINS = 8, 30
SCALES = torch.linspace(0.05, 2, 40, dtype=torch.float64).tolist()
DEPTHS = tuple(range(1, 101))


def singular_value_densities(layer: RandomLayer) -> Figure:
    """How the singular values are spread: a histogram of those drawn, and the law at infinite width."""
    highest = 1.05 * layer.law(True).support[1]
    places = torch.linspace(0, highest, 161, dtype=torch.float64)
    marks: list[Mark] = []
    for has_skip, name in NAMES.items():
        heights = layer.law(has_skip).density(places)
        marks.append(Line(numbers(places), numbers(heights), f"{name}, theory", colour=colour(int(has_skip))))
        steps, shares = histogram(layer.singular_values[has_skip], highest)
        floor = numbers(torch.zeros_like(shares))
        marks.append(Band(numbers(steps), floor, numbers(shares), f"{name}, drawn", colour=colour(int(has_skip))))
    return Figure(
        name="singular_values",
        title=f"Singular values of W and of I + W, weight scale {layer.scale:g}",
        caption="A singular value is the factor by which a layer stretches one direction: areas are those drawn, "
        "lines the limit of infinite width. Without the skip many are "
        "near zero: those directions of the gradient die. With it they gather around one.",
        x_label="singular value",
        y_label="density",
        marks=tuple(marks),
    )


def histogram(values: Tensor, highest: float) -> tuple[Tensor, Tensor]:
    """The outline of a histogram: both edges of each bin from 0 to `highest`, and its share over its width twice."""
    bins = min(MOST_BINS, max(FEWEST_BINS, len(values) // 6))
    shares = torch.histc(values, bins, 0, highest) * (bins / (len(values) * highest))
    edges = torch.linspace(0, highest, bins + 1, dtype=torch.float64)
    return edges.repeat_interleave(2)[1:-1], shares.repeat_interleave(2)


def range_against_scale(layer: RandomLayer) -> Figure:
    """Smallest, typical and largest singular value of a wide layer against the scale of its weights."""
    marks: list[Mark] = []
    for has_skip, name in NAMES.items():
        ends = [SingularValueLaw(scale, has_skip).support for scale in SCALES]
        low, high = (numbers(side) for side in zip(*ends, strict=True))
        typical = numbers([math.exp(log_typical(scale, has_skip)) for scale in SCALES])
        shade = colour(int(has_skip))
        marks.append(Band(numbers(SCALES), low, high, f"{name}, range", colour=shade))
        marks.append(Line(numbers(SCALES), typical, f"{name}, typical", colour=shade))
    return Figure(
        name="range_against_scale",
        title="Range of singular values against weight scale",
        caption="From the smallest to the largest singular value of a wide layer; typical is the geometric mean. With "
        "a skip it is exactly one and nothing reaches zero as long as the scale is below one; without a skip it is far "
        "below one unless weights are large.",
        x_label="weight scale s (entries have variance s²/width)",
        y_label="singular value",
        marks=(*marks, Reference(layer.scale, f"s = {layer.scale:g}", axis="x")),
    )


def typical_against_depth(layer: RandomLayer) -> Figure:
    """What is left of a typical direction after many such layers."""
    lines = [
        Line(numbers(DEPTHS), numbers([through(layer.scale, has_skip, depth) for depth in DEPTHS]), name)
        for has_skip, name in NAMES.items()
    ]
    return Figure(
        name="typical_against_depth",
        title="What is left of a typical direction after many layers",
        caption="The geometric mean of the singular values of a product of independent layers: without skips a "
        "gradient fades (or explodes) exponentially, with skips it keeps its size as long as the scale is below one.",
        x_label="layers",
        y_label="geometric mean of singular values",
        marks=(*lines, Reference(float(layer.depth), f"{layer.depth} layers", axis="x")),
        y_log=True,
    )


def through(scale: float, has_skip: bool, depth: int) -> float:
    """The geometric mean of the singular values of so many layers one after the other."""
    return math.exp(depth * log_typical(scale, has_skip))
