"""Theorem 4.5: losses of normalised layers are smooth over all of parameter space; what its remarks say too much."""

import math

import torch
from torch import Tensor

from skiplens.base import Float, option
from skiplens.jacobians.systems.affine import Affine
from skiplens.jacobians.systems.costs import SquareCost
from skiplens.jacobians.systems.elementwise import NONLINEARITIES
from skiplens.jacobians.systems.layer import Composition
from skiplens.jacobians.systems.norms import BatchNorm
from skiplens.jacobians.systems.parameterisation import Free, Parameterisation, WeightNormalised
from skiplens.jacobians.systems.smoothness import TrainingLoss, certified_smoothness, search_rough_point
from skiplens.papers import statistics
from skiplens.papers.macdonald2023_regularity import common
from skiplens.papers.macdonald2023_regularity.common import LARGEST_SCALES, ROUNDING, SCALES, arrays
from skiplens.papers.statistics import Band, Readings, chosen, decide, decide_correction, exactly, exponent, over_seeds
from skiplens.papers.study import Item, Judgement, Preset, claim
from skiplens.plots.figure import Figure, Line, Points, Reference, colour, numbers
from skiplens.sweeps.run import Run

ROW_NORMS = (1.0, 10.0, 100.0, 1000.0)  # of the matrix in front of a batch norm
GAPS = (1e-2, 1e-4, 1e-6)
FEATURES = 3  # in front of a batch norm
BOUNDED = 0.05  # an exponent within this of 0 says that a norm does not grow


class Curvatures(statistics.ReplicateSettings):
    """Hessians of a network on random data, at random parameters of several sizes."""

    points: int = option(3, "parameters of each size")
    ascent: int = option(40, "steps of an ascent on the Hessian's norm")


class Layers(statistics.ReplicateSettings):
    """Derivatives of single layers."""

    entries: int = option(12, "entries of a normalised matrix")
    epsilon: float = option(0.05, "of its normalisation")


def smooth_hessians(settings: Curvatures) -> dict[str, Tensor]:
    """The largest |H|₂ at each size of parameters, with and without normalisation; the certified β; an ascent."""
    generator = settings.stream()
    data, cost = common.random_data(generator), SquareCost(common.random_targets(generator))
    networks = (
        common.RandomResidualNetwork(normalised=normalised, nonlinearity="softplus") for normalised in (True, False)
    )
    systems = [network.system() for network in networks]
    losses = [TrainingLoss(system, data, cost) for system in systems]
    start = common.random_parameters(systems[0], 1.0, generator)
    rough, _ = search_rough_point(losses[0], start, settings.ascent)
    largest = []
    for system, loss in zip(systems, losses, strict=True):
        for scale in SCALES:
            points = (common.random_parameters(system, scale, generator) for _ in range(settings.points))
            largest.append(max(float(torch.linalg.matrix_norm(loss.hessian(point), 2)) for point in points))
    normalised, plain = torch.tensor(largest, dtype=torch.float64).reshape(2, -1)
    return {
        "normalised": normalised,
        "plain": plain,
        "certified": torch.tensor(certified_smoothness(losses[0]).finite(), dtype=torch.float64),
        "roughest": torch.tensor(rough, dtype=torch.float64),
    }


def batch_norm_gains(settings: Layers) -> dict[str, Tensor]:
    """|J(bn ∘ aff)|₂ at each norm of a row along the data's narrowest direction, with few and with many samples.

    `normalised`: few samples behind a normalised row.
    """
    generator = settings.stream()
    few, many = (torch.randn(FEATURES, samples, dtype=torch.float64, generator=generator) for samples in (3, 30))
    free, normalised = Free(1, FEATURES), WeightNormalised(1, FEATURES)
    return {"few": _gains(free, few), "many": _gains(free, many), "normalised": _gains(normalised, few)}


def _gains(row: Parameterisation, data: Float[Tensor, "features samples"]) -> Float[Tensor, " norms"]:
    narrowest = torch.linalg.eigh(torch.cov(data)).eigenvectors[:, 0]
    layers = Composition((Affine(row), BatchNorm(1, 0.1)))
    gains = [torch.linalg.matrix_norm(layers.input_jacobian(norm * narrowest, data), 2) for norm in ROW_NORMS]
    return torch.stack(gains)


def entry_curvatures(settings: Layers) -> dict[str, Tensor]:
    """Second derivatives of en at random entries: automatic, as equation (33) prints them, and with exponent −5/2."""
    epsilon = settings.epsilon
    w = torch.randn(settings.entries, dtype=torch.float64, generator=settings.stream())
    second = torch.func.vmap(torch.func.grad(torch.func.grad(lambda x: x * (epsilon + x * x) ** -0.5)))
    return {
        "entry": w,
        "differentiated": second(w),
        "printed": -3 * epsilon * w * (epsilon + w * w) ** -1.5,
        "corrected": -3 * epsilon * w * (epsilon + w * w) ** -2.5,
    }


def slope_quotients(settings: Layers) -> dict[str, Tensor]:
    """Quotients |φ'(h) − φ'(0)|/h for the continuously differentiable (2/3)|x|^(3/2) and softplus; nothing is drawn."""
    h = torch.tensor(GAPS, dtype=torch.float64)
    softplus = NONLINEARITIES["softplus"].derivative
    root = torch.func.grad(lambda x: (2 / 3 * x.abs() ** 1.5).sum())  # 0 at 0
    return {"gap": h, "root": root(h).abs() / h, "softplus": (softplus(h) - softplus(torch.zeros_like(h))).abs() / h}


@claim("Theorem 4.5", "|H| at most β")
def _bounded(readings: Readings) -> Judgement:
    """The loss of a network of normalised layers has globally Lipschitz gradients."""
    norms, roughest, certified = arrays(readings, "smooth_hessians", "normalised", "roughest", "certified")
    ratio = torch.cat([norms, roughest[:, None]], dim=1) / certified[:, None]
    sentence = (
        "Largest |H| over the certified β, normalised network: random parameters of sizes 0.03 to 32 and an ascent on "
        "|H|; no point may exceed it."
    )
    return decide(exactly(ratio.max()), Band(-math.inf, 1 + ROUNDING, ROUNDING), sentence)


@claim("Section 4.1", "|H| grows")
def _plain(readings: Readings) -> Judgement:
    """Standard affine layers are suited to bounded sets of parameters only."""
    (norms,) = arrays(readings, "smooth_hessians", "plain")
    grown = exponent(SCALES[-LARGEST_SCALES:], norms[:, -LARGEST_SCALES:])
    sentence = "Exponent with which |H| grows with the size of the parameters, the same network without normalisation."
    return decide(over_seeds(grown), Band(0.0, math.inf), sentence)


@claim("Theorem 4.5 (1)", "bounded quotients")
def _activation(readings: Readings) -> Judgement:
    """Continuously differentiable nonlinearities meet the hypotheses."""
    root, softplus = (exponent(GAPS, found) for found in arrays(readings, "slope_quotients", "root", "softplus"))
    sentence = (
        "Exponent in h of |φ'(h) − φ'(0)|/h. Printed: φ continuously differentiable suffices; (2/3)|x|^(3/2) is, and "
        "its exponent −1/2 says that the slope is not Lipschitz. Right: the derivative must be locally Lipschitz, as "
        "that of softplus (exponent 0)."
    )
    band = Band.around(0.0, BOUNDED)
    return decide_correction((exactly(root[:1]), band), (exactly(softplus[:1]), band), sentence)


@claim("Section 4.1, after Theorem 4.5", "exponent 0")
def _batch_norm(readings: Readings) -> Judgement:
    """Batch norm after an affine map meets the hypotheses on generic data."""
    gains = arrays(readings, "batch_norm_gains", "few", "many", "normalised")
    few, many, normalised = (exponent(ROW_NORMS[1:], each[:, 1:]) for each in gains)
    sentence = (
        "Exponent with which |J(bn ∘ aff)| grows with |A|. Printed: bounded for generic data. With as many samples as "
        "features the covariance is always singular, and the exponent is 1. Right: bounded with more samples than "
        "features, or behind a normalised affine map."
    )
    band, bounded = Band.around(0.0, BOUNDED), torch.stack([many, normalised], dim=1)
    return decide_correction((over_seeds(few), band), (over_seeds(bounded), band), sentence)


@claim("Lemma B.3, Eq. 33", "error 0")
def _entry_curvature(readings: Readings) -> Judgement:
    """The second derivative of entry normalisation."""
    true, *formulas = arrays(readings, "entry_curvatures", "differentiated", "printed", "corrected")
    printed, corrected = ((found - true).abs().amax(1) / true.abs().amax(1) for found in formulas)
    sentence = (
        "Relative error of the second derivative of an entry-normalised matrix. Printed: −3ε w (ε + w²)^(−3/2). Right: "
        "the exponent is −5/2."
    )
    band = Band.around(0.0, ROUNDING)
    return decide_correction((over_seeds(printed), band), (exactly(corrected.max()), band), sentence)


CLAIMS = (_bounded, _plain, _activation, _batch_norm, _entry_curvature)


def draw(readings: Readings) -> tuple[Figure, ...]:
    """Hessians, batch norm behind an affine map, slopes near 0, the second derivative of an entry."""
    return _draw_hessians(readings), _draw_batch_norm(readings), _draw_slopes(readings), _draw_entries(readings)


def _draw_hessians(readings: Readings) -> Figure:
    normalised, plain, certified = arrays(readings, "smooth_hessians", "normalised", "plain", "certified")
    curves = {"normalised layers": normalised, "the same without normalisation": plain}
    marks = common.bundles(torch.tensor(SCALES, dtype=torch.float64), curves)
    level = Reference(float(certified.log().mean().exp()), "certified β (mean over draws)")
    caption = (
        "With normalised layers the Hessian's norm (mean and range over draws) stays below the certified "
        "constant however large the parameters are; without them it grows without end."
    )
    words = "hessians", "Theorem 4.5: curvature of the loss over parameter space"
    return common.figure(words, caption, ("size of the parameters", "norm of the Hessian"), (*marks, level), "xy")


def _draw_batch_norm(readings: Readings) -> Figure:
    few, many, normalised = arrays(readings, "batch_norm_gains", "few", "many", "normalised")
    curves = {
        "as many samples as features": few,
        "ten times as many samples as features": many,
        "few samples, normalised affine map": normalised,
    }
    marks = common.bundles(torch.tensor(ROW_NORMS, dtype=torch.float64), curves)
    caption = (
        "The norm of the Jacobian along the data's narrowest direction. With as many samples as features the "
        "covariance is singular for any data, and the norm grows with the affine map; the paper calls that "
        "not generic. It stays bounded with more samples, or behind a normalised map."
    )
    words, labels = ("batch_norm", "Batch norm after an affine map"), ("norm of the affine map", "norm of J(bn ∘ aff)")
    return common.figure(words, caption, labels, marks, "xy")


def _draw_slopes(readings: Readings) -> Figure:
    reading = chosen(readings, "slope_quotients")[0]
    names = {"root": "φ(x) = (2/3)·abs(x)^(3/2)", "softplus": "softplus"}
    lines = (Line(numbers(GAPS), numbers(reading[array]), name) for array, name in names.items())
    caption = (
        "Difference quotients of two slopes at 0. Those of the first function grow without end as the gap "
        "shrinks: its derivative is continuous and not Lipschitz."
    )
    words = "slopes", "Continuously differentiable is not enough"
    return common.figure(words, caption, ("gap h", "(φ′(h) − φ′(0))/h, absolute"), lines, "xy")


def _draw_entries(readings: Readings) -> Figure:
    reading = chosen(readings, "entry_curvatures")[0]
    epsilon = reading.setting("epsilon")
    w = torch.linspace(-2.5, 2.5, 501, dtype=torch.float64)
    corrected, printed = (numbers(-3 * epsilon * w * (epsilon + w * w) ** power) for power in (-2.5, -1.5))
    marks = (
        Line(numbers(w), corrected, "corrected", colour=colour(0)),
        Line(numbers(w), printed, "as printed", True, colour(1)),
        Points(numbers(reading["entry"]), numbers(reading["differentiated"]), "automatic differentiation"),
    )
    words = "entry_curvature", f"Equation (33): second derivative of entry normalisation, ε = {epsilon}"
    caption = (
        "Points are differentiated automatically. They lie on the formula with the exponent −5/2; the printed "
        "one has −3/2."
    )
    return common.figure(words, caption, ("entry w", "second derivative of w/√(ε + w²)"), marks)


def runs(preset: Preset, seed: int) -> list[Run]:
    """Hessians of networks, and three kinds of layers."""
    count = {"smoke": 4, "laptop": 10, "paper": 40}[preset]
    points, ascent = {"smoke": (1, 3), "laptop": (5, 100), "paper": (40, 500)}[preset]
    curvatures = Curvatures(points=points, ascent=ascent)
    return [
        *statistics.replicated(smooth_hessians, curvatures, count, seed, cost=100.0),
        *statistics.replicated(batch_norm_gains, Layers(), count, seed),
        *statistics.replicated(entry_curvatures, Layers(), count, seed),
        *statistics.replicated(slope_quotients, Layers(), 1, seed),
    ]


_TITLE = "smooth losses from normalised layers"
_DEVIATIONS = (
    "The theorem gives no example: here 6 features, 4 samples, layers of 5, 4 and 3 units, softplus, square cost; rows "
    "are divided by the root of their number, since rows below 1 do not make a matrix of norm below 1.",
)
ITEM = Item("thm4_5", _TITLE, runs, CLAIMS, draw, statistics.raw_tables, _DEVIATIONS)
