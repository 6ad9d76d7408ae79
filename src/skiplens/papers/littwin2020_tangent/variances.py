"""Figure 5, theorems 5 and 6 and corollaries 1 and 2: the variance of the kernel's diagonal."""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from skiplens.base.axes import Float
from skiplens.kernels.finite_width.moments import kernel_moments
from skiplens.kernels.finite_width.networks import DenseNet, ResNet, exact_gain
from skiplens.kernels.finite_width.reduced_moments import minkowski_bound
from skiplens.papers import statistics
from skiplens.papers.littwin2020_tangent import common
from skiplens.papers.littwin2020_tangent.common import DRAWN, NAMES, SCALING_WIDTHS, SIZES, diagonal_runs, tables
from skiplens.papers.littwin2020_tangent.errata import log_theorem5_appendix, log_theorem5_main_text
from skiplens.papers.statistics import Band, Readings, decide, figure, mean_points, over_seeds, slope, stacked, values
from skiplens.papers.study import Item, Judgement, Preset, claim, claims
from skiplens.plots.figure import Figure, Line, Points, colour, numbers
from skiplens.sweeps.run import Run

GROWTH_DEPTHS = (10, 20, 40, 60)  # at which theorem 5's growth with depth is measured, at a fixed branch scale
GROWING = tuple(ResNet(depth, 50, 2, 0.3) for depth in GROWTH_DEPTHS)
COROLLARY_WIDTH = 100  # at which corollary 1 compares depths
FLAT = 0.25  # a log-log slope within this of 0 counts as constant, within it of -1 as 1/n


def proportional_runs(preset: Preset, seed: int, architectures: Iterable[str]) -> list[Run]:
    """Networks ten times as wide as deep (figure 5, corollary 2)."""
    return [
        run
        for architecture in architectures
        for depth in SIZES[preset].depths
        for run in diagonal_runs(preset, seed, {}, **_proportional(architecture, depth))
    ]


def thm5_runs(preset: Preset, seed: int) -> list[Run]:
    """Residual networks of several widths, and of several depths at a fixed branch scale."""
    by_width = diagonal_runs(preset, seed, {"width": SCALING_WIDTHS}, depth=10)
    return by_width + diagonal_runs(preset, seed, {"depth": GROWTH_DEPTHS})


def thm6_runs(preset: Preset, seed: int) -> list[Run]:
    """Dense networks of several widths and of several depths."""
    by_width = diagonal_runs(preset, seed, {"width": SCALING_WIDTHS}, architecture="densenet", depth=10)
    return by_width + diagonal_runs(preset, seed, {"depth": SIZES[preset].depths}, architecture="densenet", width=100)


def cor1_runs(preset: Preset, seed: int) -> list[Run]:
    """Residual networks of several depths, with the printed branch scale and with the right one."""
    return [
        run
        for depth in SIZES[preset].depths
        for scale in branch_scales(depth)
        for run in diagonal_runs(preset, seed, {}, depth=depth, branch_scale=scale, width=COROLLARY_WIDTH)
    ]


def branch_scales(depth: int) -> tuple[float, float]:
    """α as corollary 1 prints it, 1/L^m, and as it should be, 1/L^{1/m}; m = 2."""
    return 1 / depth**2, 1 / math.sqrt(depth)


def _proportional(architecture: str, depth: int) -> dict[str, Any]:
    """Settings of a network ten times as wide as deep."""
    scale = 0.3 / math.sqrt(depth) if architecture == "resnet" else common.Diagonal().branch_scale
    return {"architecture": architecture, "depth": depth, "width": 10 * depth, "branch_scale": scale}


def variances(readings: Readings, **settings: Any) -> Float[Tensor, " replicates"]:
    """Variance of the diagonal in each replicate."""
    return stacked(readings, "kernel", "diagonal", **settings).var(1)


def relative_variances(readings: Readings, **settings: Any) -> Float[Tensor, " replicates"]:
    """Variance over squared mean of the diagonal in each replicate."""
    drawn = stacked(readings, "kernel", "diagonal", **settings)
    return drawn.var(1) / drawn.mean(1).square()


def harmonic(depth: int) -> float:
    """H_L."""
    return math.fsum(1 / layer for layer in range(1, depth + 1))


def judge_decline(readings: Readings, architecture: str) -> Judgement:
    """Figure 5: the variance of residual and dense networks falls as both sizes grow."""
    found = over_seeds(_depth_slope(readings, architecture, variances))
    sentence = "Slope of log variance over log depth at n = 10 L; convergence means that it is negative."
    return decide(found, Band(-math.inf, 0.0), sentence)


@claim("Figure 5", "slope 0")
def _vanilla(readings: Readings) -> Judgement:
    """The variance of the vanilla network remains constant."""
    absolute, relative = (
        over_seeds(_depth_slope(readings, "vanilla", measured)) for measured in (variances, relative_variances)
    )
    sentence = (
        "Slope over log depth at n = 10 L of the log of variance over squared mean, which is what stays constant; the "
        f"variance itself has slope {float(absolute.value):.2f} ± {float(absolute.half_width):.2f}: it grows like L²."
    )
    band = Band.around(0.0, FLAT)
    return statistics.decide_correction((absolute, band), (relative, band), sentence)


def judge_width_order(readings: Readings, architecture: str, depth: int = 10) -> Judgement:
    """Theorems 5 and 6: the variance is of order 1/n."""
    drawn = [variances(readings, architecture=architecture, depth=depth, width=width) for width in SCALING_WIDTHS]
    sentence = f"Slope of log variance over log width, {depth} blocks or layers."
    return decide(over_seeds(_log_slope(SCALING_WIDTHS, drawn)), Band.around(-1.0, FLAT), sentence)


@claim("Theorem 5, Eq. 40", "at most α^m ρ a block")
def _exponent(readings: Readings) -> Judgement:
    """The variance grows no faster than (mL)² exp(L α^m ρ)."""
    drawn = [variances(readings, architecture="resnet", depth=depth, width=50) for depth in GROWTH_DEPTHS]
    exact = torch.tensor([[float(kernel_moments(network).variance) for network in GROWING]], dtype=torch.float64)
    found, right = over_seeds(_growth(torch.stack(drawn, dim=1))), float(_growth(exact))
    rate = float(exact_gain(GROWING[0])) * (1 + 5 / 50)
    sentence = (
        f"Growth of log(V/L²) per block, α = 0.3, n = 50. The main text allows α^m ρ = {rate:.3f}; the exact variance "
        f"grows by {right:.3f}, and the appendix, with twice the exponent, allows {2 * rate:.3f}."
    )
    return statistics.decide_correction(
        (found, Band(-math.inf, rate)), (found, Band.around(right, 0.15 * right)), sentence
    )


@claim("Eq. 39", "ratio at most 1")
def _minkowski(readings: Readings) -> Judgement:
    """V(‖J‖²) ≤ (Σ_k √V(‖J^k‖²))²."""
    columns = [
        variances(readings, architecture="resnet", depth=network.depth, width=50) / minkowski_bound(network).variance
        for network in GROWING
    ]
    sentence = "Variance over the bound (Σ_k √V(‖J^k‖²))² with exact terms, worst depth."
    return decide(over_seeds(torch.stack(columns, dim=1)), Band(-math.inf, 1.0), sentence)


@claim("Corollary 1 and the text before it", "slope 0")
def _mean(readings: Readings) -> Judgement:
    """With α = a/L^m the mean is constant at any depth."""
    depths = values(readings, "depth", "diagonal")
    wrong, right = (over_seeds(_log_slope(depths, _means(readings, depths, which))) for which in (0, 1))
    sentence = (
        "Slope of log mean over log depth with α = a/L^(1/m), which keeps the mean; with the printed α = a/L^m it is "
        f"{float(wrong.value):.2f} ± {float(wrong.half_width):.2f}: the kernel vanishes."
    )
    return statistics.decide_correction((wrong, Band.around(0.0, FLAT)), (right, Band.around(0.0, FLAT)), sentence)


@claim("Corollary 1, Eq. 41", "slope 0 over depth")
def _variance(readings: Readings) -> Judgement:
    """The variance is of order 1/n at any depth."""
    depths = values(readings, "depth", "diagonal")
    drawn = [relative_variances(readings, branch_scale=branch_scales(depth)[1]) for depth in depths]
    sentence = f"Slope of log(V/(E𝒢)²) over log depth with α = a/L^(1/m), width {COROLLARY_WIDTH}."
    return decide(over_seeds(_log_slope(depths, drawn)), Band.around(0.0, FLAT), sentence)


@claim("Theorem 6, Eq. 42", "slope 2 over log log L")
def _depth(readings: Readings) -> Judgement:
    """The variance grows like log(L)²."""
    depths = values(readings, "depth", "diagonal", width=100)
    drawn = [variances(readings, architecture="densenet", depth=depth, width=100) for depth in depths]
    sentence = "Slope of log variance over log H_L (H_L ~ log L is the mean), width 100; the square gives 2."
    found = over_seeds(_log_slope([harmonic(depth) for depth in depths], drawn))
    return decide(found, Band.around(2.0, 2 * FLAT), sentence)


@claim("Corollary 2, Eq. 43", "slope 0 of V·L/log(L)²")
def _order(readings: Readings) -> Judgement:
    """At n = aL the variance is of order log(L)²/L."""
    depths = values(readings, "depth", "diagonal", architecture="densenet")
    sentence = "Slope of log(V·L/H_L²) over log depth at n = 10 L (H_L ~ log L)."
    return decide(over_seeds(_log_slope(depths, _over_order(readings, depths))), Band.around(0.0, FLAT), sentence)


def _log_slope(sizes: Sequence[float | int], columns: Sequence[Tensor]) -> Float[Tensor, " replicates"]:
    """Slope of the log of each row over the log of the sizes."""
    return statistics.exponent(sizes, torch.stack(list(columns), dim=1))


def _depth_slope(readings: Readings, architecture: str, measured: Callable[..., Tensor]) -> Tensor:
    """Log-log slope over depth of the measured variance at n = 10 L, in each replicate."""
    depths = values(readings, "depth", "diagonal", architecture=architecture)
    drawn = [measured(readings, architecture=architecture, depth=depth, width=10 * depth) for depth in depths]
    return _log_slope(depths, drawn)


def _growth(variance: Tensor) -> Tensor:
    """Slope of log(V/L²) over the depth."""
    return slope(GROWTH_DEPTHS, (variance / torch.tensor(GROWTH_DEPTHS) ** 2).log())


def _means(readings: Readings, depths: Sequence[int], which: int) -> list[Tensor]:
    """Mean of the diagonal at each depth with one of the two branch scales."""
    places = [{"depth": depth, "branch_scale": branch_scales(depth)[which]} for depth in depths]
    return [stacked(readings, "kernel", "diagonal", **place).mean(1) for place in places]


def _over_order(readings: Readings, depths: Sequence[int]) -> list[Tensor]:
    """V·L/H_L² of dense networks with n = 10 L."""
    return [
        variances(readings, architecture="densenet", depth=depth, width=10 * depth) * depth / harmonic(depth) ** 2
        for depth in depths
    ]


_FALLS = "The variance of the {} falls: it converges to its kernel."
_DECLINE = claims(
    judge_decline,
    *((kind, _FALLS.format(NAMES[kind]), "Figure 5", "slope < 0", kind) for kind in ("resnet", "densenet")),
)
_WIDTH5, _WIDTH6 = claims(
    judge_width_order,
    ("width", "The variance is of order 1/n (through ρ² - 1).", "Theorem 5, Eq. 40", "slope -1", "resnet"),
    ("width", "The variance is of order exp(5/n) - 1 ≈ 5/n.", "Theorem 6, Eq. 42", "slope -1", "densenet"),
)
FIG5, COR1, COR2 = (*_DECLINE, _vanilla), (_mean, _variance), (_order,)
THM5, THM6 = (_WIDTH5, _exponent, _minkowski), (_WIDTH6, _depth)


def draw_fig5(readings: Readings) -> tuple[Figure, ...]:
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


def draw_thm5(readings: Readings) -> tuple[Figure, ...]:
    """The variance against depth at a fixed branch scale, with both printed orders."""
    exact = [float(kernel_moments(network).variance) for network in GROWING]
    printed = [
        Line(numbers(GROWTH_DEPTHS), numbers([math.exp(log_order(network)) for network in GROWING]), name, dashed=True)
        for log_order, name in (
            (log_theorem5_main_text, "Eq. 40, exponent L α^m ρ"),
            (log_theorem5_appendix, "Eq. 168, exponent 2 (L-1) α^m ρ"),
        )
    ]
    measured = [variances(readings, architecture="resnet", depth=depth, width=50) for depth in GROWTH_DEPTHS]
    words = ("growth", "Theorem 5: variance, ResNet, α = 0.3, n = 50")
    caption = (
        "The variance outgrows the order of the main text, whose exponent lacks a factor 2; that of the "
        "appendix is the right one."
    )
    points, labels = _points(GROWTH_DEPTHS, measured, "random networks"), ("depth L", "variance of G(x, x)")
    lines = (Line(numbers(GROWTH_DEPTHS), numbers(exact), "exact"), *printed)
    return (figure(words, caption, labels, (points, *lines), log="y"),)


def draw_thm6(readings: Readings) -> tuple[Figure, ...]:
    """A DenseNet's variance against depth."""
    depths = values(readings, "depth", "diagonal", width=100)
    measured = [variances(readings, architecture="densenet", depth=depth, width=100) for depth in depths]
    exact = [float(kernel_moments(DenseNet(depth, 100)).variance) for depth in depths]
    squared = [9.9 * harmonic(depth) ** 2 / 100 for depth in depths]
    words = ("dense_growth", "Theorem 6: variance, DenseNet, n = 100")
    caption = "The variance grows like the squared harmonic number, so like the squared logarithm of the depth."
    marks = (
        _points(depths, measured, "random networks"),
        Line(numbers(depths), numbers(exact), "exact"),
        Line(numbers(depths), numbers(squared), "9.9 H_L²/n", dashed=True),
    )
    return (figure(words, caption, ("depth L", "variance of G(x, x)"), marks, log="x"),)


def draw_cor1(readings: Readings) -> tuple[Figure, ...]:
    """The mean against depth with both branch scales."""
    depths = values(readings, "depth", "diagonal")
    words = ("mean", f"Corollary 1: mean kernel, ResNet, m = 2, n = {COROLLARY_WIDTH}")
    caption = "With the printed scale the kernel vanishes with depth; with the corrected one it stays."
    marks = (
        _points(depths, _means(readings, depths, 1), "α = 1/L^(1/m), corrected"),
        _points(depths, _means(readings, depths, 0), "α = 1/L^m, as printed"),
    )
    return (figure(words, caption, ("depth L", "mean of G(x, x)"), marks, log="xy"),)


def draw_cor2(readings: Readings) -> tuple[Figure, ...]:
    """A DenseNet's variance over its order."""
    depths = values(readings, "depth", "diagonal")
    exact = [float(kernel_moments(DenseNet(L, 10 * L)).variance) * L / harmonic(L) ** 2 for L in depths]
    words, labels = ("dense_order", "Corollary 2: variance over its order, DenseNet, n = 10 L"), ("depth L", "V·L/H_L²")
    marks = (
        _points(depths, _over_order(readings, depths), "random networks"),
        Line(numbers(depths), numbers(exact), "exact"),
    )
    return (
        figure(words, "The variance is of the order log(L)²/L: over it, it stays constant.", labels, marks, log="x"),
    )


def _against_depth(readings: Readings, quantity: tuple[str, str], caption: str) -> Figure:
    name, label = quantity
    measure = variances if name == "variance" else relative_variances
    points: list[Points] = []
    lines: list[Line] = []
    for index, architecture in enumerate(NAMES):
        depths = values(readings, "depth", "diagonal", architecture=architecture)
        measured = [measure(readings, architecture=architecture, depth=depth) for depth in depths]
        networks = [common.Diagonal.from_json(_proportional(architecture, depth)).network() for depth in depths]
        exact = [float(getattr(kernel_moments(network), name)) for network in networks]
        points.append(_points(depths, measured, NAMES[architecture]))
        lines.append(Line(numbers(depths), numbers(exact), f"{NAMES[architecture]}, exact", True, colour(index)))
    return figure(
        (name, f"Figure 5: {label}, n = 10 L"),
        f"{caption} Points are random networks with standard errors over seeds, dashed lines are exact.",
        ("depth L", label),
        (*points, *lines),
        log="y",
    )


def _points(places: Sequence[int], measured: Sequence[Tensor], name: str) -> Points:
    return mean_points(places, torch.stack(list(measured), dim=1), name)


_FIG5 = (*DRAWN, "The paper gives no depths for figure 5: here L = 5 to 80.")

_FIG5_RUNS, _COR2_RUNS = (partial(proportional_runs, architectures=kinds) for kinds in (NAMES, ["densenet"]))

ITEMS = (
    Item("fig5", "variance against depth for three architectures", _FIG5_RUNS, FIG5, draw_fig5, tables, _FIG5),
    Item("thm5", "variance of a ResNet's kernel", thm5_runs, THM5, draw_thm5, tables, DRAWN),
    Item("thm6", "variance of a DenseNet's kernel", thm6_runs, THM6, draw_thm6, tables, DRAWN),
    Item("cor1", "a branch scale for any depth", cor1_runs, COR1, draw_cor1, tables, DRAWN),
    Item("cor2", "a DenseNet as wide as deep", _COR2_RUNS, COR2, draw_cor2, tables, DRAWN),
)
