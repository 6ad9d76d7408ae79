"""Theorem 3: what one gradient step on a spin-glass loss does to batch-norm scales."""

from functools import partial

import torch
from torch import Tensor

from skiplens.papers.littwin2016_ensembles.common import REPLICATES
from skiplens.papers.littwin2016_ensembles.dynamics import layer_scale_increment
from skiplens.papers.littwin2016_ensembles.two_paths import (
    LEADING_ORDER,
    SPIN_GLASS,
    TwoPaths,
    against_rate,
    balanced_point,
    for_each_loss,
    judge_every_loss,
    ratio,
    ratios,
    two_orders,
    two_path_runs,
)
from skiplens.papers.statistics import Band, Readings, chosen, decide, decide_correction, figure, over_seeds, raw_tables
from skiplens.papers.study import Claim, Item, Judgement, Preset, claim
from skiplens.plots.figure import Figure, Points, Reference, numbers
from skiplens.sweeps.run import Run

LAYERS = {"unskipped": "layer without skip", "skipped": "layer with skip"}


def thm3_runs(preset: Preset, seed: int) -> list[Run]:
    """Steps of layer scales on losses of two pairs of orders."""
    return two_path_runs(layer_steps, preset, seed)


def layer_steps(settings: TwoPaths) -> dict[str, Tensor]:
    """Growth of |λ| in one step over μ², for a layer that nothing skips and for one that the short paths skip.

    One row a loss: `unskipped` and `skipped` have a column for each learning rate, `…_predicted` is the leading order,
    `…_long_over_short` is ‖g_p‖/‖g_m‖. Each layer's hypothesis has a point of its own.
    """
    return for_each_loss(settings, _layer_steps)


def _layer_steps(settings: TwoPaths, generator: torch.Generator) -> dict[str, Tensor]:
    noise = torch.randn(settings.long, generator=generator, dtype=torch.float64)
    signs = torch.randint(2, (settings.long,), generator=generator) * 2 - 1
    scales = signs * (0.2 * noise).exp()  # around ±1
    layers = {"unskipped": 0, "skipped": settings.long - 1}
    grown = {name: _grown(settings, scales, layer, generator) for name, layer in layers.items()}
    return {f"{name}{of}": value for name, values in grown.items() for of, value in values.items()}


def _grown(settings: TwoPaths, scales: Tensor, layer: int, generator: torch.Generator) -> dict[str, Tensor]:
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
    return decide_correction(
        (over_seeds(printed), band),
        (over_seeds(right), band),
        "Growth of |λ| over the corrected μ²‖g_m + g_p‖²/|λ|. The middle of equation 41 prints μ²/|λ|, without the "
        f"gradient: the growth is {float(torch.stack(printed).mean()):.1f} times that.",
    )


_UNSKIPPED, _SKIPPED = "μ²‖g_m + g_p‖²/|λ|", "μ²(g_m·g_p + ‖g_p‖²)/|λ|"

THM3 = (
    *(
        Claim(layer, statement, f"Theorem 3, {equation}", "always", partial(judge_layer_growth, layer=layer))
        for layer, statement, equation in (
            ("unskipped", "|λ| of a layer that no path skips grows.", "Eq. 22"),
            ("skipped", "|λ| of a layer with a skip grows if ‖g_p‖ > ‖g_m‖.", "Eq. 23"),
        )
    ),
    *(
        Claim(
            *(f"{layer}_size", f"It grows by {formula}.", equation, "ratio 1"),
            partial(judge_layer_formula, layer=layer, formula=formula),
        )
        for layer, formula, equation in (("unskipped", _UNSKIPPED, "Eq. 40"), ("skipped", _SKIPPED, "Eq. 42"))
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
    growth = figure(
        ("growth", "Theorem 3: which scales grow"),
        "One point a random loss. Scales of layers that no path skips always grow; those of skipped layers "
        "always do right of the line, where long paths dominate the gradient, and may shrink left of it.",
        ("‖g_p‖ / ‖g_m‖", "(|λ_new| - |λ|) / μ²"),
        (*marks, Reference(1.0, "‖g_p‖ = ‖g_m‖", axis="x"), Reference(0.0)),
    )
    leading_order = figure(
        ("leading_order", "Theorem 3: growth of |λ| in a step over its leading order"),
        "Means over random spin-glass losses with standard errors over replicates; orders (m, p) = (2, 4) "
        "and (3, 5). The smaller the step, the closer to 1.",
        ("learning rate μ", "measured over predicted"),
        (
            *(
                against_rate(readings, "layer_steps", (layer, f"{layer}_predicted"), name)
                for layer, name in LAYERS.items()
            ),
            Reference(1.0),
        ),
        log="x",
    )
    return leading_order, growth


ITEMS = (
    Item("thm3", "what drives batch-norm scales", thm3_runs, THM3, draw_thm3, raw_tables, (SPIN_GLASS, REPLICATES)),
)
