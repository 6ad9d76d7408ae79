"""Theorem 4: what one gradient step on a spin-glass loss does to the scale of the weights, and what descents do."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from skiplens.base.settings import option
from skiplens.papers.littwin2016_ensembles.common import NEGATIVE, RATIOS, REPLICATES, SIZES, judge_always, repeated
from skiplens.papers.littwin2016_ensembles.dynamics import branch_scale_slope, spin_glass_depth
from skiplens.papers.littwin2016_ensembles.spin_glass.complexity import Mixture
from skiplens.papers.littwin2016_ensembles.two_paths import (
    LEADING_ORDER,
    SPIN_GLASS,
    TwoPaths,
    against_rate,
    balanced_point,
    for_each_loss,
    judge_every_loss,
    ratios,
    two_orders,
    two_path_runs,
)
from skiplens.papers.statistics import (
    Band,
    Readings,
    ReplicateSettings,
    chosen,
    curve,
    decide,
    decide_correction,
    figure,
    over_seeds,
    raw_tables,
    stacked,
    values,
)
from skiplens.papers.study import Item, Judgement, Preset, claim
from skiplens.plots.figure import Figure, Mark, Reference
from skiplens.sweeps.run import Run


@dataclass(frozen=True)
class Descents(ReplicateSettings):
    """Gradient descent with free weights on a network's spin-glass loss (theorem 4)."""

    depth: int = option(5, "layers, the highest order of interactions")
    depth_ratio: float = option(0.5, "β")
    spins: int = option(10, "distinct weights, Λ")
    learning_rate: float = option(0.002, "size of a step")
    steps: int = option(60, "steps")
    every: int = option(5, "steps between two looks")


def thm4_runs(preset: Preset, seed: int) -> list[Run]:
    """Steps of the weight scale on losses of two pairs of orders, and descents."""
    by_ratio = repeated(descents, Descents(), SIZES[preset].replicates, seed, depth_ratio=RATIOS)
    return [*two_path_runs(scale_steps, preset, seed), *by_ratio]


def scale_steps(settings: TwoPaths) -> dict[str, Tensor]:
    """∂L/∂C after one step over μ, from points where it was 0; one row a loss, one column a learning rate.

    Beside it equation 25, the line printed as equation 45, ‖g_p‖/‖g_m‖ and the growth of ‖w‖² over μ²‖g‖².
    """
    return for_each_loss(settings, _scale_step)


def _scale_step(settings: TwoPaths, generator: torch.Generator) -> dict[str, Tensor]:
    m, p, mixture = settings.short, settings.long, two_orders(settings)
    size = (0.3 * torch.randn((), generator=generator, dtype=torch.float64)).exp()
    glass, point = balanced_point((mixture, settings.spins), _lengths(mixture), generator, float(size))
    leaf = point.clone().requires_grad_()
    energies = glass.energy_by_order(leaf[None])[0]
    short, long = (torch.autograd.grad(energies[order - 1], leaf, retain_graph=True)[0] for order in (m, p))
    g = short + long

    def scale_slope(point: Tensor) -> Tensor:
        """∂L/∂C = w·∂L/∂w / C with C = ‖w‖/√Λ."""
        return point @ glass.gradient(point[None])[0] / (point.norm() / math.sqrt(glass.dimension))

    moved = [(point - rate * g, rate) for rate in settings.rates]
    grown = [(after.square().sum() - point.square().sum()) / rate**2 for after, rate in moved]
    lengths = torch.tensor([m, p], dtype=torch.float64)
    return {
        "slope": torch.stack([scale_slope(after) / rate for after, rate in moved]),
        "predicted": branch_scale_slope(torch.stack([short, long]), lengths, float(size), 1.0),
        "printed_as_45": -((m + p) * long.square().sum() + (m + p) * long @ short) / size,
        "long_over_short": long.norm() / short.norm(),
        "norm_growth": torch.stack(grown) / g.square().sum(),
        "opposed": _opposed_step(settings, generator),
    }


def _opposed_step(settings: TwoPaths, generator: torch.Generator) -> Tensor:
    """C ∂L/∂C over μ‖g_m‖² after one step at the smallest rate, from a point with g_p = −κ g_m.

    L_p = −κ (w·w₀/‖w₀‖²)^{p−1} g_m·w is homogeneous of degree p and has that gradient at w₀ if L_m(w₀) = 0.
    """
    m, p, rate, mixture = settings.short, settings.long, min(settings.rates), Mixture.pure(settings.short)
    glass, start = balanced_point((mixture, settings.spins), mixture.weights, generator)
    slope, kappa = glass.gradient(start[None])[0], opposed_share(m, p)

    def loss(point: Tensor) -> Tensor:
        along = point @ start / start.square().sum()
        return glass.energy(point[None])[0] - kappa * along ** (p - 1) * (slope @ point)

    moved = (start - rate * (1 - kappa) * slope).requires_grad_()
    return moved.detach() @ torch.autograd.grad(loss(moved), moved)[0] / (rate * slope.square().sum())


def opposed_share(short: int, long: int) -> float:
    """κ = ‖g_p‖/‖g_m‖ in the middle between m/p and 1, where opposed gradients drive C down."""
    return (1 + short / long) / 2


def descents(settings: Descents) -> dict[str, Tensor]:
    """Scale C, mean path length and loss at each step, from a point where ∂L/∂C = 0."""
    mixture = Mixture.of_network(settings.depth, settings.depth_ratio)
    glass, start = balanced_point((mixture, settings.spins), _lengths(mixture), settings.stream())
    history = spin_glass_depth(glass, start, settings.learning_rate, settings.steps, settings.every)
    return {
        "step": history.steps,
        "weight_scale": history.weight_scale,
        "mean_length": history.mean_depth,
        "loss": history.losses,
        "drive": history.scale_drive,
    }


def _lengths(mixture: Mixture) -> Tensor:
    """The factors r with which Σ r L_r = C ∂L/∂C."""
    return torch.arange(1, mixture.order + 1, dtype=torch.float64)


@claim("Theorem 4, Eq. 25", "ratio 1")
def _equation_25(readings: Readings) -> Judgement:
    """∂L/∂C becomes -(μ/C)(m‖g_m‖² + p‖g_p‖² + (m+p) g_m·g_p)."""
    found = ratios(readings, "scale_steps", "slope", "predicted")
    sentence = "∂L/∂C after a step of 1e-5, from points where it was 0, over equation 25; fitted over the losses."
    return decide(over_seeds(found), Band.around(1.0, LEADING_ORDER), sentence)


@claim("Proof of Theorem 4, Eq. 45", "ratio 1")
def _equation_45(readings: Readings) -> Judgement:
    """∂L/∂C becomes -(μ/C)(m‖g_p‖² + p‖g_p‖² + (m+p) g_m·g_p)."""
    printed, right = (ratios(readings, "scale_steps", "slope", name) for name in ("printed_as_45", "predicted"))
    band = Band.around(1.0, LEADING_ORDER)
    return decide_correction(
        (over_seeds(printed), band),
        (over_seeds(right), band),
        "∂L/∂C after a step over the corrected line, whose first square is ‖g_m‖² (as in equation 25). With ‖g_p‖² "
        f"twice, as equation 45 prints, the ratio is {float(torch.stack(printed).mean()):.2f}.",
    )


@claim("Section 4.2, after Theorem 4", "always")
def _dominant(readings: Readings) -> Judgement:
    """C increases when the gradients of deeper paths dominate."""
    steps = chosen(readings, "scale_steps")
    happened = [reading["slope"][:, -1][reading["long_over_short"] > 1] < 0 for reading in steps]
    sentence = "Share of {losses} random losses with ∂L/∂C = 0 and ‖g_p‖ > ‖g_m‖ on which the next step increases C."
    return judge_every_loss(happened, sentence)


@claim("Section 4, claim 2; after Theorem 4", "∂L/∂C < 0")
def _always(readings: Readings) -> Judgement:
    """C increases."""
    found = []
    for reading in chosen(readings, "scale_steps"):
        m, p = reading.setting("short"), reading.setting("long")
        kappa = opposed_share(m, p)
        found.append(reading["opposed"].mean() / ((1 - kappa) * (p * kappa - m)))
    interval = over_seeds(found)
    return decide_correction(
        (interval, NEGATIVE),
        (interval, Band.around(1.0, LEADING_ORDER)),
        "C ∂L/∂C after a step over (1-κ)(pκ-m)μ‖g_m‖² > 0, on losses made such that g_p = -κ g_m with κ in the middle "
        "of m/p and 1. There C is driven down: it is driven up for certain only if κ > 1 or κ < m/p.",
    )


@claim("Proof of Theorem 4", "ratio 1")
def _norm(readings: Readings) -> Judgement:
    """The gradient is orthogonal to the weights."""
    found = [reading["norm_growth"][:, 0].mean() for reading in chosen(readings, "scale_steps")]
    sentence = "Growth of ‖w‖² in a step from a point with ∂L/∂C = 0, over μ²‖g‖²; it is exact for every loss."
    return decide(over_seeds(found), Band.around(1.0, LEADING_ORDER), sentence)


@claim("Section 4, claim 2", "always")
def _scale_in_descent(readings: Readings) -> Judgement:
    """During training C increases."""
    return _judge_descent(readings, "weight_scale")


@claim("Section 4.2, after Theorem 4", "always")
def _deeper_in_descent(readings: Readings) -> Judgement:
    """The expansion emphasises deeper paths."""
    return _judge_descent(readings, "mean_length")


def _judge_descent(readings: Readings, name: str) -> Judgement:
    """Whether scale or mean length is larger after a descent."""
    depth_ratios = values(readings, "depth_ratio", "descents")
    histories = [stacked(readings, name, "descents", depth_ratio=beta) for beta in depth_ratios]
    changes = [history[:, -1] - history[:, 0] for history in histories]
    higher = torch.stack([change > 0 for change in changes], dim=1).double()
    sentence = (
        f"Share of {higher.numel()} descents from points with ∂L/∂C = 0, for three β, after which it is larger; "
        f"the median change is {float(torch.cat(changes).median()):.2g}."
    )
    return judge_always(higher.mean(1), sentence)


THM4 = (_equation_25, _equation_45, _dominant, _always, _norm, _scale_in_descent, _deeper_in_descent)


def draw_thm4(readings: Readings) -> tuple[Figure, ...]:
    """∂L/∂C over equations 25 and 45 against the learning rate; scale and length in descents."""
    return (
        figure(
            ("leading_order", "Theorem 4: ∂L/∂C after a step over its prediction"),
            "Means over random spin-glass losses with standard errors over replicates. Equation 25 is the "
            "leading order; the line printed as equation 45 is not.",
            ("learning rate μ", "measured over predicted"),
            (
                against_rate(readings, "scale_steps", ("slope", "predicted"), "Eq. 25"),
                against_rate(readings, "scale_steps", ("slope", "printed_as_45"), "Eq. 45 as printed"),
                Reference(1.0),
            ),
            log="x",
        ),
        _descent(readings, "weight_scale", "change of the weight scale C"),
        _descent(readings, "mean_length", "change of the mean path length"),
    )


def _descent(readings: Readings, array: str, label: str) -> Figure:
    marks: list[Mark] = []
    for index, beta in enumerate(values(readings, "depth_ratio", "descents")):
        history = stacked(readings, array, "descents", depth_ratio=beta)
        marks += curve(stacked(readings, "step", "descents")[0], history - history[:, :1], f"β = {beta:g}", index)
    return figure(
        (array, f"Theorem 4: {label} in descents on spin-glass losses"),
        "From points where ∂L/∂C = 0; means and deviations over losses. The weights are free to grow.",
        ("steps", label),
        marks,
    )


ITEMS = (
    Item("thm4", "what drives the weight scale", thm4_runs, THM4, draw_thm4, raw_tables, (SPIN_GLASS, REPLICATES)),
)
