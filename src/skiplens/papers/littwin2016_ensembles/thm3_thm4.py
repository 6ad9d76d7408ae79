"""Theorems 3 and 4: what one gradient step on a spin-glass loss does to batch-norm scales and to the scale of weights.

Theorem 4 has descents of many steps too.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from scipy.optimize import brentq
from torch import Generator, Tensor

from skiplens.base import Float, Randomness, option
from skiplens.papers import statistics
from skiplens.papers.littwin2016_ensembles.common import NEGATIVE, RATIOS, REPLICATES, SIZES, judge_always
from skiplens.papers.littwin2016_ensembles.dynamics import branch_scale_slope, layer_scale_increment, spin_glass_depth
from skiplens.papers.littwin2016_ensembles.spin_glass import Mixture, SpinGlass, random_points
from skiplens.papers.statistics import Band, Readings, chosen, curve, decide, over_seeds, raw_tables, stacked, values
from skiplens.papers.study import Item, Judgement, Preset, claim, claims
from skiplens.plots.figure import Figure, Mark, Points, Reference, numbers
from skiplens.sweeps.run import Run

LAYERS = {"unskipped": "layer without skip", "skipped": "layer with skip"}
LEADING_ORDER = 4e-4  # how far the ratio of a step to its leading order may be from 1 at the smallest learning rate
LOSSES: dict[Preset, int] = {"smoke": 4, "laptop": 20, "paper": 50}  # of a replicate

SPIN_GLASS = (
    "The paper has no example. Here losses are random spin glasses of orders (2, 4) with 8 weights and (3, 5) with 6, "
    "scales around ±1, σ = 1; each point lies on a random great circle where the hypothesis holds to rounding: "
    "L_m + L_p = 0 for a layer without skip, L_p = 0 for one with it (one hypothesis in the paper)."
)

_ANGLES = 64  # of a great circle, among which a change of sign is looked for
_CIRCLES = 10  # looked at before another spin glass is drawn


class TwoPaths(statistics.ReplicateSettings):
    """Gradient steps on spin-glass losses of two orders (theorems 3 and 4)."""

    short: int = option(2, "order of the short paths, m")
    long: int = option(4, "order of the long paths, p")
    spins: int = option(8, "distinct weights, Λ")
    losses: int = option(20, "losses drawn")
    rates: tuple[float, ...] = option((1e-2, 1e-3, 1e-4, 1e-5), "learning rates, μ")


def two_path_runs(measure: Callable[[TwoPaths], Any], preset: Preset, seed: int) -> list[Run]:
    """Runs of a measure on losses of two pairs of orders."""
    pairs = (TwoPaths(losses=LOSSES[preset]), TwoPaths(short=3, long=5, spins=6, losses=LOSSES[preset]))
    return [run for pair in pairs for run in statistics.replicated(measure, pair, SIZES[preset].replicates, seed)]


def for_each_loss(settings: TwoPaths, measure: Callable[[TwoPaths, Generator], dict[str, Tensor]]) -> dict[str, Tensor]:
    """What is measured on each of the losses, one row a loss; every loss has a stream of its own."""
    randomness = Randomness(settings.seed).child(settings.key())
    rows = [measure(settings, randomness.child(number).torch()) for number in range(settings.losses)]
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


def two_orders(settings: TwoPaths) -> Mixture:
    """Equal parts of the orders m and p."""
    weights = torch.zeros(settings.long, dtype=torch.float64)
    weights[[settings.short - 1, settings.long - 1]] = 1.0
    return Mixture(weights)


def balanced_point(
    glass_of: tuple[Mixture, int], factors: Float[Tensor, " orders"], generator: Generator, size: float = 1.0
) -> tuple[SpinGlass, Float[Tensor, " spins"]]:
    """A spin glass and a point of it where Σ factor_r L_r = 0; a glass whose sum has one sign is drawn again.

    `glass_of` is its mixture and its number of spins, `size` is C of the weights.
    """
    while True:
        glass = SpinGlass.sample(*glass_of, generator)
        for _ in range(_CIRCLES):
            point = _zero_on_random_circle(glass, factors, generator, size)
            if point is not None:
                return glass, point


def _zero_on_random_circle(
    glass: SpinGlass, factors: Tensor, generator: Generator, size: float
) -> Float[Tensor, " spins"] | None:
    """Where Σ factor_r L_r changes sign on a random great circle, to rounding; none if it does not."""
    first, second = (size * point for point in random_points(2, glass.dimension, generator))
    second = second - (first @ second) / first.square().sum() * first
    second = second * (first.norm() / second.norm())

    def at(angles: Tensor) -> Tensor:
        return angles.cos()[:, None] * first + angles.sin()[:, None] * second

    def total(angle: float) -> float:
        return float(glass.energy_by_order(at(torch.tensor([angle], dtype=torch.float64))) @ factors)

    angles = torch.linspace(0, 2 * math.pi, _ANGLES + 1, dtype=torch.float64)
    values = glass.energy_by_order(at(angles)) @ factors
    changes = (values[:-1] * values[1:] < 0).nonzero().flatten()
    if not len(changes):
        return None
    low, high = angles[changes[0]], angles[changes[0] + 1]
    angle = brentq(total, float(low), float(high), xtol=1e-15, rtol=1e-14)
    return at(torch.tensor([angle], dtype=torch.float64))[0]


def ratio(measured: Tensor, predicted: Tensor) -> Tensor:
    """The factor that fits measured to predicted numbers best."""
    return (measured * predicted).sum() / predicted.square().sum()


def ratios(readings: Readings, measure: str, measured: str, predicted: str) -> list[Tensor]:
    """That factor at the smallest learning rate, for each replicate."""
    return [ratio(reading[measured][:, -1], reading[predicted]) for reading in chosen(readings, measure)]


def judge_every_loss(happened: Sequence[Tensor], sentence: str) -> Judgement:
    """Whether something happened on every loss of each replicate that has some; `{losses}` becomes their number."""
    shares = [of_replicate.double().mean() for of_replicate in happened if len(of_replicate)]
    return judge_always(shares, sentence.format(losses=sum(map(len, happened))))


def against_rate(readings: Readings, measure: str, arrays: tuple[str, str], name: str) -> Points:
    """What was measured over what is predicted, for each learning rate."""
    found = chosen(readings, measure)
    measured, predicted = arrays
    rows = [torch.stack([ratio(column, one[predicted]) for column in one[measured].T]) for one in found]
    return statistics.mean_points(found[0].setting("rates"), torch.stack(rows), name)


def layer_steps(settings: TwoPaths) -> dict[str, Tensor]:
    """Growth of |λ| in one step over μ², for a layer that nothing skips and for one that the short paths skip.

    One row a loss: `unskipped` and `skipped` have a column for each learning rate, `…_predicted` is the leading order,
    `…_long_over_short` is ‖g_p‖/‖g_m‖. Each layer's hypothesis has a point of its own.
    """
    return for_each_loss(settings, _layer_steps)


def _layer_steps(settings: TwoPaths, generator: Generator) -> dict[str, Tensor]:
    noise = torch.randn(settings.long, generator=generator, dtype=torch.float64)
    signs = torch.randint(2, (settings.long,), generator=generator) * 2 - 1
    scales = signs * (0.2 * noise).exp()  # around ±1
    layers = {"unskipped": 0, "skipped": settings.long - 1}
    grown = {name: _grown(settings, scales, layer, generator) for name, layer in layers.items()}
    return {f"{name}{of}": value for name, values in grown.items() for of, value in values.items()}


def _grown(settings: TwoPaths, scales: Tensor, layer: int, generator: Generator) -> dict[str, Tensor]:
    """(|λ_new| − |λ|)/μ² at each rate, its leading order, ‖g‖² and ‖g_p‖/‖g_m‖, where ∂L/∂λ was 0."""
    m, p, scale = settings.short, settings.long, scales[layer]
    skipped = layer >= m
    # ∂L/∂λ = 0 where L_p = 0 (the short paths skip the layer) or L_m + L_p = 0 (none does)
    factors = torch.zeros(p, dtype=torch.float64)
    factors[-1] = scales.prod()
    if not skipped:
        factors[m - 1] = scales[:m].prod()
    glass, point = balanced_point((two_orders(settings), settings.spins), factors, generator)

    def parts(point: Tensor, scales: Tensor) -> Tensor:
        """Equation 21 with σ = 1: short paths times the scales of the first m layers, long ones times all p."""
        energies = glass.energy_by_order(point[None])[0]
        return torch.stack([scales[:m].prod() * energies[m - 1], scales.prod() * energies[p - 1]])

    def slope(point: Tensor) -> Tensor:
        leaf = scales.clone().requires_grad_()
        return torch.autograd.grad(parts(point, leaf).sum(), leaf)[0][layer]

    leaf = point.clone().requires_grad_()
    short, long = (torch.autograd.grad(part, leaf, retain_graph=True)[0] for part in parts(leaf, scales))
    total = short + long
    steps = [((scale - rate * slope(point - rate * total)).abs() - scale.abs()) / rate**2 for rate in settings.rates]
    return {
        "": torch.stack(steps),
        "_predicted": layer_scale_increment(short, long, float(scale), 1.0, skipped),
        "_squared_gradient": total.square().sum(),
        "_long_over_short": long.norm() / short.norm(),
    }


def judge_layer_growth(readings: Readings, layer: str) -> Judgement:
    """How often |λ| grows under the theorem's hypotheses."""
    happened = []
    for reading in chosen(readings, "layer_steps"):
        grown = reading[layer][:, -1] > 0
        happened.append(grown[reading["skipped_long_over_short"] > 1] if layer == "skipped" else grown)
    sentence = "Share of {losses} random losses with ∂L/∂λ = 0 on which |λ| is larger after a step of 1e-5."
    return judge_every_loss(happened, sentence)


def judge_layer_formula(readings: Readings, layer: str, formula: str) -> Judgement:
    """The size of the growth."""
    found = ratios(readings, "layer_steps", layer, f"{layer}_predicted")
    sentence = f"Growth of |λ| in a step of 1e-5 over {formula}, fitted over the losses of a replicate."
    return decide(over_seeds(found), Band.around(1.0, LEADING_ORDER), sentence)


@claim("Eq. 41, middle", "ratio 1")
def _equation_41(readings: Readings) -> Judgement:
    """It grows by μ²/|λ|."""
    printed = [
        ratio(reading["unskipped"][:, -1], reading["unskipped_predicted"] / reading["unskipped_squared_gradient"])
        for reading in chosen(readings, "layer_steps")
    ]
    right = ratios(readings, "layer_steps", "unskipped", "unskipped_predicted")
    band = Band.around(1.0, LEADING_ORDER)
    return statistics.decide_correction(
        (over_seeds(printed), band),
        (over_seeds(right), band),
        "Growth of |λ| over the corrected μ²‖g_m + g_p‖²/|λ|. The middle of equation 41 prints μ²/|λ|, without the "
        f"gradient: the growth is {float(torch.stack(printed).mean()):.1f} times that.",
    )


_UNSKIPPED, _SKIPPED = "μ²‖g_m + g_p‖²/|λ|", "μ²(g_m·g_p + ‖g_p‖²)/|λ|"

THM3 = (
    *claims(
        judge_layer_growth,
        ("unskipped", "|λ| of a layer that no path skips grows.", "Theorem 3, Eq. 22", "always", "unskipped"),
        ("skipped", "|λ| of a layer with a skip grows if ‖g_p‖ > ‖g_m‖.", "Theorem 3, Eq. 23", "always", "skipped"),
    ),
    *claims(
        judge_layer_formula,
        ("unskipped_size", f"It grows by {_UNSKIPPED}.", "Eq. 40", "ratio 1", "unskipped", _UNSKIPPED),
        ("skipped_size", f"It grows by {_SKIPPED}.", "Eq. 42", "ratio 1", "skipped", _SKIPPED),
    ),
    _equation_41,
)


def draw_thm3(readings: Readings) -> tuple[Figure, ...]:
    """Growth over its leading order against the learning rate, and growth against ‖g_p‖/‖g_m‖."""
    marks = []
    for layer, name in LAYERS.items():
        found = chosen(readings, "layer_steps")
        x = torch.cat([reading[f"{layer}_long_over_short"] for reading in found])
        y = torch.cat([reading[layer][:, -1] for reading in found])
        marks.append(Points(numbers(x), numbers(y), name))
    growth = statistics.figure(
        ("growth", "Theorem 3: which scales grow"),
        "One point a random loss. Scales of layers that no path skips always grow; those of skipped layers "
        "always do right of the line, where long paths dominate the gradient, and may shrink left of it.",
        ("‖g_p‖ / ‖g_m‖", "(|λ_new| - |λ|) / μ²"),
        (*marks, Reference(1.0, "‖g_p‖ = ‖g_m‖", axis="x"), Reference(0.0)),
    )
    rates = [
        against_rate(readings, "layer_steps", (layer, f"{layer}_predicted"), name) for layer, name in LAYERS.items()
    ]
    leading_order = statistics.figure(
        ("leading_order", "Theorem 3: growth of |λ| in a step over its leading order"),
        "Means over random spin-glass losses with standard errors over replicates; orders (m, p) = (2, 4) "
        "and (3, 5). The smaller the step, the closer to 1.",
        ("learning rate μ", "measured over predicted"),
        (*rates, Reference(1.0)),
        log="x",
    )
    return leading_order, growth


class Descents(statistics.ReplicateSettings):
    """Gradient descent with free weights on a network's spin-glass loss (theorem 4)."""

    depth: int = option(5, "layers, the highest order of interactions")
    depth_ratio: float = option(0.5, "β")
    spins: int = option(10, "distinct weights, Λ")
    learning_rate: float = option(0.002, "size of a step")
    steps: int = option(60, "steps")
    every: int = option(5, "steps between two looks")


def thm4_runs(preset: Preset, seed: int) -> list[Run]:
    """Steps of the weight scale on losses of two pairs of orders, and descents."""
    by_ratio = statistics.replicated(descents, Descents(), SIZES[preset].replicates, seed, depth_ratio=RATIOS)
    return [*two_path_runs(scale_steps, preset, seed), *by_ratio]


def scale_steps(settings: TwoPaths) -> dict[str, Tensor]:
    """∂L/∂C after one step over μ, from points where it was 0; one row a loss, one column a learning rate.

    Beside it equation 25, the line printed as equation 45, ‖g_p‖/‖g_m‖ and the growth of ‖w‖² over μ²‖g‖².
    """
    return for_each_loss(settings, _scale_step)


def _scale_step(settings: TwoPaths, generator: Generator) -> dict[str, Tensor]:
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


def _opposed_step(settings: TwoPaths, generator: Generator) -> Tensor:
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
    return statistics.decide_correction(
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
    return statistics.decide_correction(
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


_DEEPER, _AFTER = "The expansion emphasises deeper paths.", "Section 4.2, after Theorem 4"
_IN_DESCENTS = claims(
    _judge_descent,
    ("scale_in_descent", "During training C increases.", "Section 4, claim 2", "always", "weight_scale"),
    ("deeper_in_descent", _DEEPER, _AFTER, "always", "mean_length"),
)
THM4 = (_equation_25, _equation_45, _dominant, _always, _norm, *_IN_DESCENTS)


def draw_thm4(readings: Readings) -> tuple[Figure, ...]:
    """∂L/∂C over equations 25 and 45 against the learning rate; scale and length in descents."""
    words = ("leading_order", "Theorem 4: ∂L/∂C after a step over its prediction")
    caption = (
        "Means over random spin-glass losses with standard errors over replicates. Equation 25 is the "
        "leading order; the line printed as equation 45 is not."
    )
    marks = (
        against_rate(readings, "scale_steps", ("slope", "predicted"), "Eq. 25"),
        against_rate(readings, "scale_steps", ("slope", "printed_as_45"), "Eq. 45 as printed"),
        Reference(1.0),
    )
    return (
        statistics.figure(words, caption, ("learning rate μ", "measured over predicted"), marks, log="x"),
        _descent(readings, "weight_scale", "change of the weight scale C"),
        _descent(readings, "mean_length", "change of the mean path length"),
    )


def _descent(readings: Readings, array: str, label: str) -> Figure:
    marks: list[Mark] = []
    for index, beta in enumerate(values(readings, "depth_ratio", "descents")):
        history = stacked(readings, array, "descents", depth_ratio=beta)
        marks += curve(stacked(readings, "step", "descents")[0], history - history[:, :1], f"β = {beta:g}", index)
    return statistics.figure(
        (array, f"Theorem 4: {label} in descents on spin-glass losses"),
        "From points where ∂L/∂C = 0; means and deviations over losses. The weights are free to grow.",
        ("steps", label),
        marks,
    )


_DEVIATIONS = (SPIN_GLASS, REPLICATES)
_THM3_RUNS = partial(two_path_runs, layer_steps)

ITEMS = (
    Item("thm3", "what drives batch-norm scales", _THM3_RUNS, THM3, draw_thm3, raw_tables, _DEVIATIONS),
    Item("thm4", "what drives the weight scale", thm4_runs, THM4, draw_thm4, raw_tables, _DEVIATIONS),
)
