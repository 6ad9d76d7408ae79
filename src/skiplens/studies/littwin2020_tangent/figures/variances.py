"""Figure 5, theorems 5 and 6 and their corollaries: variances against depth."""

import math
from collections.abc import Callable, Sequence

import torch

from skiplens.core.axes import Tensor
from skiplens.figures import Figure, Line, Points
from skiplens.figures.figure import numbers
from skiplens.figures.style import colour
from skiplens.readings import Measurement
from skiplens.studies.littwin2020_tangent.claims.variances import harmonic, relative_variances, variances
from skiplens.studies.littwin2020_tangent.figures.kernels import NAMES
from skiplens.studies.littwin2020_tangent.runs import branch_scales
from skiplens.studies.littwin2020_tangent.settings import COROLLARY_WIDTH, GROWTH_DEPTHS
from skiplens.studies.selection import stacked, values
from skiplens.theory.finite_width import DenseNet, ResNet, Vanilla, estimate, kernel_moments
from skiplens.theory.finite_width.errata import log_theorem5_appendix, log_theorem5_main_text
from skiplens.theory.finite_width.networks import Network

ARCHITECTURES = ("resnet", "densenet", "vanilla")


def fig5(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """The variance, and the variance over the squared mean."""
    return (
        _against_depth(
            readings,
            ("variance", "variance of ‖J‖²"),
            "The variance itself grows like L² for the vanilla network, and falls for the two others.",
        ),
        _against_depth(
            readings,
            ("relative_variance", "variance of ‖J‖² over squared mean"),
            "Over the squared mean, the vanilla network stays constant as in the paper's figure; ResNet and DenseNet "
            "converge to their kernels.",
        ),
    )


def thm5(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """The variance against depth at a fixed branch scale, with both printed orders."""
    networks = [ResNet(depth, 50, 2, 0.3) for depth in GROWTH_DEPTHS]
    exact = [float(kernel_moments(network).variance) for network in networks]
    lines = [
        Line(numbers(GROWTH_DEPTHS), numbers(exact), "exact"),
        _order(networks, log_theorem5_main_text, "Eq. 40, exponent L α^m ρ"),
        _order(networks, log_theorem5_appendix, "Eq. 168, exponent 2 (L-1) α^m ρ"),
    ]
    measured = [variances(readings, architecture="resnet", depth=depth, width=50) for depth in GROWTH_DEPTHS]
    return (
        Figure(
            name="growth",
            title="Theorem 5: variance, ResNet, α = 0.3, n = 50",
            caption="The variance outgrows the order of the main text, whose exponent lacks a factor 2; that of the "
            "appendix is the right one.",
            x_label="depth L",
            y_label="variance of G(x, x)",
            marks=(_points(GROWTH_DEPTHS, measured, "random networks"), *lines),
            y_log=True,
        ),
    )


def thm6(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """A DenseNet's variance against depth."""
    depths = values(readings, "depth", "diagonal", width=100)
    measured = [variances(readings, architecture="densenet", depth=depth, width=100) for depth in depths]
    exact = [float(kernel_moments(DenseNet(depth, 100)).variance) for depth in depths]
    squared = [9.9 * harmonic(depth) ** 2 / 100 for depth in depths]
    return (
        Figure(
            name="dense_growth",
            title="Theorem 6: variance, DenseNet, n = 100",
            caption="The variance grows like the squared harmonic number, so like the squared logarithm of the depth.",
            x_label="depth L",
            y_label="variance of G(x, x)",
            marks=(
                _points(depths, measured, "random networks"),
                Line(numbers(depths), numbers(exact), "exact"),
                Line(numbers(depths), numbers(squared), "9.9 H_L²/n", dashed=True),
            ),
            x_log=True,
        ),
    )


def cor1(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """The mean against depth with both branch scales."""
    depths = values(readings, "depth", "diagonal")
    marks = [
        _points(depths, [_means(readings, depth, which) for depth in depths], name)
        for which, name in ((1, "α = 1/L^(1/m), corrected"), (0, "α = 1/L^m, as printed"))
    ]
    return (
        Figure(
            name="mean",
            title=f"Corollary 1: mean kernel, ResNet, m = 2, n = {COROLLARY_WIDTH}",
            caption="With the printed scale the kernel vanishes with depth; with the corrected one it stays.",
            x_label="depth L",
            y_label="mean of G(x, x)",
            marks=tuple(marks),
            x_log=True,
            y_log=True,
        ),
    )


def cor2(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """A DenseNet's variance over its order."""
    depths = values(readings, "depth", "diagonal")
    scaled = [
        variances(readings, architecture="densenet", depth=depth) * depth / harmonic(depth) ** 2 for depth in depths
    ]
    exact = [float(kernel_moments(DenseNet(L, 10 * L)).variance) * L / harmonic(L) ** 2 for L in depths]
    return (
        Figure(
            name="dense_order",
            title="Corollary 2: variance over its order, DenseNet, n = 10 L",
            caption="The variance is of the order log(L)²/L: over it, it stays constant.",
            x_label="depth L",
            y_label="V·L/H_L²",
            marks=(_points(depths, scaled, "random networks"), Line(numbers(depths), numbers(exact), "exact")),
            x_log=True,
        ),
    )


def _against_depth(readings: Sequence[Measurement], quantity: tuple[str, str], caption: str) -> Figure:
    name, label = quantity
    points: list[Points] = []
    lines: list[Line] = []
    for index, architecture in enumerate(ARCHITECTURES):
        depths = values(readings, "depth", "diagonal", architecture=architecture)
        measure = variances if name == "variance" else relative_variances
        measured = [measure(readings, architecture=architecture, depth=depth) for depth in depths]
        exact = [float(getattr(kernel_moments(_proportional(architecture, depth)), name)) for depth in depths]
        points.append(_points(depths, measured, NAMES[architecture]))
        lines.append(Line(numbers(depths), numbers(exact), f"{NAMES[architecture]}, exact", True, colour(index)))
    return Figure(
        name=name,
        title=f"Figure 5: {label}, n = 10 L",
        caption=f"{caption} Points are random networks with standard errors over seeds, dashed lines are exact.",
        x_label="depth L",
        y_label=label,
        marks=(*points, *lines),
        y_log=True,
    )


def _proportional(architecture: str, depth: int) -> Network:
    if architecture == "resnet":
        return ResNet(depth, 10 * depth, 2, 0.3 / math.sqrt(depth))
    return DenseNet(depth, 10 * depth) if architecture == "densenet" else Vanilla(depth, 10 * depth)


def _order(networks: Sequence[ResNet], log_order: Callable[[ResNet], float], name: str) -> Line:
    depths = [network.depth for network in networks]
    return Line(numbers(depths), numbers([math.exp(log_order(network)) for network in networks]), name, dashed=True)


def _means(readings: Sequence[Measurement], depth: int, which: int) -> Tensor:
    scale = branch_scales(depth)[which]
    return stacked(readings, "kernel", "diagonal", depth=depth, branch_scale=scale).mean(1)


def _points(places: Sequence[int], measured: Sequence[Tensor], name: str) -> Points:
    """Means over the replicates with their standard errors."""
    found = estimate(torch.stack(list(measured), dim=1))
    return Points(numbers(places), numbers(found.value), name, numbers(found.standard_error))
