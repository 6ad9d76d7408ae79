"""Figure 5, theorems 5 and 6 and their corollaries: the variance of the kernel's diagonal."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from skiplens.kernels.finite_width.moments import kernel_moments
from skiplens.kernels.finite_width.networks import DenseNet, Network, ResNet, Vanilla, exact_gain
from skiplens.kernels.finite_width.reduced_moments import minkowski_bound
from skiplens.kernels.finite_width.simulation import estimate
from skiplens.papers.littwin2020_tangent.errata import log_theorem5_appendix, log_theorem5_main_text
from skiplens.papers.littwin2020_tangent.kernels import NAMES
from skiplens.papers.littwin2020_tangent.runs import COROLLARY_WIDTH, GROWTH_DEPTHS, SCALING_WIDTHS, branch_scales
from skiplens.papers.statistics import Band, decide, decide_correction, over_seeds, slope, stacked, values
from skiplens.papers.study import Claim, Judgement
from skiplens.plots.figure import Figure, Line, Points, colour, numbers
from skiplens.readings.reading import Measurement

FLAT = 0.25
"""A log-log slope within this of 0 counts as constant, within it of -1 as 1/n."""


def variances(readings: Sequence[Measurement], **settings: Any) -> Tensor:
    """Variance of the diagonal in each replicate."""
    return stacked(readings, "kernel", "diagonal", **settings).var(1)


def relative_variances(readings: Sequence[Measurement], **settings: Any) -> Tensor:
    """Variance over squared mean of the diagonal in each replicate."""
    drawn = stacked(readings, "kernel", "diagonal", **settings)
    return drawn.var(1) / drawn.mean(1).square()


def harmonic(depth: int) -> float:
    """H_L."""
    return math.fsum(1 / layer for layer in range(1, depth + 1))


def judge_decline(readings: Sequence[Measurement], architecture: str) -> Judgement:
    """Figure 5: the variance of residual and dense networks falls as both sizes grow."""
    found = over_seeds(_depth_slope(readings, architecture))
    sentence = "Slope of log variance over log depth at n = 10 L; convergence means that it is negative."
    return decide(found, Band(-math.inf, 0.0), sentence)


def judge_vanilla(readings: Sequence[Measurement]) -> Judgement:
    """Figure 5: the vanilla network's variance."""
    absolute = over_seeds(_depth_slope(readings, "vanilla"))
    relative = over_seeds(_depth_slope(readings, "vanilla", relative=True))
    sentence = (
        "Slope over log depth at n = 10 L of the log of variance over squared mean, which is what stays constant; the "
        f"variance itself has slope {float(absolute.value):.2f} ± {float(absolute.half_width):.2f}: it grows like L²."
    )
    return decide_correction((absolute, Band.around(0.0, FLAT)), (relative, Band.around(0.0, FLAT)), sentence)


def judge_width_order(readings: Sequence[Measurement], architecture: str, depth: int) -> Judgement:
    """Theorems 5 and 6: the variance is of order 1/n."""
    columns = [
        variances(readings, architecture=architecture, depth=depth, width=width).log() for width in SCALING_WIDTHS
    ]
    found = over_seeds(slope([math.log(width) for width in SCALING_WIDTHS], torch.stack(columns, dim=1)))
    sentence = f"Slope of log variance over log width, {depth} blocks or layers."
    return decide(found, Band.around(-1.0, FLAT), sentence)


def judge_exponent(readings: Sequence[Measurement]) -> Judgement:
    """Theorem 5: how fast the variance grows with depth at a fixed branch scale."""
    drawn = [variances(readings, architecture="resnet", depth=depth, width=50) for depth in GROWTH_DEPTHS]
    exact = [kernel_moments(network).variance for network in _growing()]
    found = over_seeds(_growth(torch.stack(drawn, dim=1)))
    right = float(_growth(torch.tensor([[float(value) for value in exact]], dtype=torch.float64)))
    rate = float(exact_gain(_growing()[0])) * (1 + 5 / 50)
    sentence = (
        f"Growth of log(V/L²) per block, α = 0.3, n = 50. The main text allows α^m ρ = {rate:.3f}; the exact variance "
        f"grows by {right:.3f}, and the appendix, with twice the exponent, allows {2 * rate:.3f}."
    )
    return decide_correction((found, Band(-math.inf, rate)), (found, Band.around(right, 0.15 * right)), sentence)


def judge_minkowski(readings: Sequence[Measurement]) -> Judgement:
    """Equation (39) with the exact variance of every Jacobian."""
    columns = [
        variances(readings, architecture="resnet", depth=network.depth, width=50) / minkowski_bound(network).variance
        for network in _growing()
    ]
    sentence = "Variance over the bound (Σ_k √V(‖J^k‖²))² with exact terms, worst depth."
    return decide(over_seeds(torch.stack(columns, dim=1)), Band(-math.inf, 1.0), sentence)


def judge_mean_scaling(readings: Sequence[Measurement]) -> Judgement:
    """Corollary 1: with which branch scale the mean stays constant."""
    depths = values(readings, "depth", "diagonal")
    slopes = [over_seeds(_scaling_slope(readings, depths, which)) for which in (0, 1)]
    sentence = (
        "Slope of log mean over log depth with α = a/L^(1/m), which keeps the mean; with the printed α = a/L^m it is "
        f"{float(slopes[0].value):.2f} ± {float(slopes[0].half_width):.2f}: the kernel vanishes."
    )
    band = Band.around(0.0, FLAT)
    return decide_correction((slopes[0], band), (slopes[1], band), sentence)


def judge_depth_free(readings: Sequence[Measurement]) -> Judgement:
    """Corollary 1: with the right branch scale depth does not change n·V/(E𝒢)²."""
    depths = values(readings, "depth", "diagonal")
    columns = [relative_variances(readings, branch_scale=branch_scales(depth)[1]).log() for depth in depths]
    found = over_seeds(slope([math.log(depth) for depth in depths], torch.stack(columns, dim=1)))
    sentence = f"Slope of log(V/(E𝒢)²) over log depth with α = a/L^(1/m), width {COROLLARY_WIDTH}."
    return decide(found, Band.around(0.0, FLAT), sentence)


def judge_dense_depth(readings: Sequence[Measurement]) -> Judgement:
    """Theorem 6: the variance grows like the squared logarithm of the depth."""
    depths = values(readings, "depth", "diagonal", width=100)
    columns = [variances(readings, architecture="densenet", depth=depth, width=100).log() for depth in depths]
    found = over_seeds(slope([math.log(harmonic(depth)) for depth in depths], torch.stack(columns, dim=1)))
    sentence = "Slope of log variance over log H_L (H_L ~ log L is the mean), width 100; the square gives 2."
    return decide(found, Band.around(2.0, 2 * FLAT), sentence)


def judge_dense_proportional(readings: Sequence[Measurement]) -> Judgement:
    """Corollary 2: V is of order log(L)²/L when the width is proportional to the depth."""
    depths = values(readings, "depth", "diagonal", architecture="densenet")
    columns = [
        (
            variances(readings, architecture="densenet", depth=depth, width=10 * depth) * depth / harmonic(depth) ** 2
        ).log()
        for depth in depths
    ]
    found = over_seeds(slope([math.log(depth) for depth in depths], torch.stack(columns, dim=1)))
    sentence = "Slope of log(V·L/H_L²) over log depth at n = 10 L (H_L ~ log L)."
    return decide(found, Band.around(0.0, FLAT), sentence)


def _growing() -> list[ResNet]:
    return [ResNet(depth, 50, 2, 0.3) for depth in GROWTH_DEPTHS]


def _growth(variance: Tensor) -> Tensor:
    """Slope of log(V/L²) over the depth."""
    return slope(GROWTH_DEPTHS, (variance / torch.tensor(GROWTH_DEPTHS) ** 2).log())


def _depth_slope(readings: Sequence[Measurement], architecture: str, relative: bool = False) -> Tensor:
    """Log-log slope over depth of the variance at n = 10 L, in each replicate."""
    depths = values(readings, "depth", "diagonal", architecture=architecture)
    measured = relative_variances if relative else variances
    columns = [measured(readings, architecture=architecture, depth=depth, width=10 * depth).log() for depth in depths]
    return slope([math.log(depth) for depth in depths], torch.stack(columns, dim=1))


def _scaling_slope(readings: Sequence[Measurement], depths: list[int], which: int) -> Tensor:
    """Log-log slope over depth of the mean with one of the two branch scales."""
    columns = [
        stacked(readings, "kernel", "diagonal", depth=depth, branch_scale=branch_scales(depth)[which]).mean(1).log()
        for depth in depths
    ]
    return slope([math.log(depth) for depth in depths], torch.stack(columns, dim=1))


FIG5 = (
    Claim(
        "resnet",
        "The variance of the ResNet falls: it converges to its kernel.",
        "Figure 5",
        "slope < 0",
        partial(judge_decline, architecture="resnet"),
    ),
    Claim(
        "densenet",
        "The variance of the DenseNet falls: it converges to its kernel.",
        "Figure 5",
        "slope < 0",
        partial(judge_decline, architecture="densenet"),
    ),
    Claim("vanilla", "The variance of the vanilla network remains constant.", "Figure 5", "slope 0", judge_vanilla),
)

THM5 = (
    Claim(
        "width",
        "The variance is of order 1/n (through ρ² - 1).",
        "Theorem 5, Eq. 40",
        "slope -1",
        partial(judge_width_order, architecture="resnet", depth=10),
    ),
    Claim(
        "exponent",
        "The variance grows no faster than (mL)² exp(L α^m ρ).",
        "Theorem 5, Eq. 40",
        "at most α^m ρ a block",
        judge_exponent,
    ),
    Claim("minkowski", "V(‖J‖²) ≤ (Σ_k √V(‖J^k‖²))².", "Eq. 39", "ratio at most 1", judge_minkowski),
)

COR1 = (
    Claim(
        "mean",
        "With α = a/L^m the mean is constant at any depth.",
        "Corollary 1 and the text before it",
        "slope 0",
        judge_mean_scaling,
    ),
    Claim(
        "variance",
        "The variance is of order 1/n at any depth.",
        "Corollary 1, Eq. 41",
        "slope 0 over depth",
        judge_depth_free,
    ),
)

THM6 = (
    Claim(
        "width",
        "The variance is of order exp(5/n) - 1 ≈ 5/n.",
        "Theorem 6, Eq. 42",
        "slope -1",
        partial(judge_width_order, architecture="densenet", depth=10),
    ),
    Claim(
        "depth", "The variance grows like log(L)².", "Theorem 6, Eq. 42", "slope 2 over log log L", judge_dense_depth
    ),
)

COR2 = (
    Claim(
        "order",
        "At n = aL the variance is of order log(L)²/L.",
        "Corollary 2, Eq. 43",
        "slope 0 of V·L/log(L)²",
        judge_dense_proportional,
    ),
)

ARCHITECTURES = ("resnet", "densenet", "vanilla")


def draw_fig5(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
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


def draw_thm5(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
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


def draw_thm6(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
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


def draw_cor1(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
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


def draw_cor2(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
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
