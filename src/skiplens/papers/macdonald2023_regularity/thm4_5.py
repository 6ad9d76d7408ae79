"""Theorem 4.5: losses of normalised layers are smooth over all of parameter space; what its remarks say too much."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from skiplens.base.axes import Float
from skiplens.base.settings import option
from skiplens.jacobians.systems.affine import Affine
from skiplens.jacobians.systems.costs import SquareCost
from skiplens.jacobians.systems.elementwise import NONLINEARITIES
from skiplens.jacobians.systems.layer import Composition
from skiplens.jacobians.systems.norms import BatchNorm
from skiplens.jacobians.systems.parameterisation import Free, Parameterisation, WeightNormalised
from skiplens.jacobians.systems.smoothness import TrainingLoss, certified_smoothness, search_rough_point
from skiplens.papers import statistics
from skiplens.papers.macdonald2023_regularity import common
from skiplens.papers.macdonald2023_regularity.common import LARGEST_SCALES, SCALES, RandomResidualNetwork
from skiplens.papers.statistics import Band, chosen, decide, decide_correction, exactly, over_seeds, slope, stacked
from skiplens.papers.study import Claim, Item, Judgement, Preset
from skiplens.plots.figure import Figure, Line, Points, Reference, colour, numbers
from skiplens.readings.reading import Measurement
from skiplens.sweeps.run import Run

ROW_NORMS = (1.0, 10.0, 100.0, 1000.0)
"""Of the matrix in front of a batch norm."""

GAPS = (1e-2, 1e-4, 1e-6)
FEATURES = 3  # in front of a batch norm


@dataclass(frozen=True)
class Curvatures(statistics.ReplicateSettings):
    """Hessians of a network on random data, at random parameters of several sizes."""

    points: int = option(3, "parameters of each size")
    ascent: int = option(40, "steps of an ascent on the Hessian's norm")


@dataclass(frozen=True)
class Layers(statistics.ReplicateSettings):
    """Derivatives of single layers."""

    entries: int = option(12, "entries of a normalised matrix")
    epsilon: float = option(0.05, "of its normalisation")


def smooth_hessians(settings: Curvatures) -> dict[str, Tensor]:
    """The largest |H|₂ at each size of parameters, with and without normalisation; the certified β; an ascent."""
    generator = settings.stream()
    data, cost = common.random_data(generator), SquareCost(common.random_targets(generator))
    networks = (RandomResidualNetwork(normalised=normalised, nonlinearity="softplus") for normalised in (True, False))
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


ROUNDING = 1e-9
BOUNDED = 0.05
"""An exponent within this of 0 says that a norm does not grow."""


def judge_bounded(readings: Sequence[Measurement]) -> Judgement:
    """The largest Hessian norm over the certified constant."""
    norms, roughest, certified = (
        stacked(readings, name, "smooth_hessians") for name in ("normalised", "roughest", "certified")
    )
    ratio = torch.cat([norms, roughest[:, None]], dim=1) / certified[:, None]
    sentence = (
        "Largest |H| over the certified β, normalised network: random parameters of sizes 0.03 to 32 and an ascent on "
        "|H|; no point may exceed it."
    )
    return decide(exactly(ratio.max()), Band(-math.inf, 1 + ROUNDING, ROUNDING), sentence)


def judge_plain(readings: Sequence[Measurement]) -> Judgement:
    """How the Hessian of the network without normalisation grows."""
    exponent = _exponent(stacked(readings, "plain", "smooth_hessians")[:, -LARGEST_SCALES:], SCALES[-LARGEST_SCALES:])
    sentence = "Exponent with which |H| grows with the size of the parameters, the same network without normalisation."
    return decide(over_seeds(exponent), Band(0.0, math.inf), sentence)


def judge_activation(readings: Sequence[Measurement]) -> Judgement:
    """How the difference quotients of two slopes behave near 0."""
    root, softplus = (_exponent(stacked(readings, name, "slope_quotients"), GAPS) for name in ("root", "softplus"))
    sentence = (
        "Exponent in h of |φ'(h) − φ'(0)|/h. Printed: φ continuously differentiable suffices; (2/3)|x|^(3/2) is, and "
        "its exponent −1/2 says that the slope is not Lipschitz. Right: the derivative must be locally Lipschitz, as "
        "that of softplus (exponent 0)."
    )
    band = Band.around(0.0, BOUNDED)
    return decide_correction((exactly(root[:1]), band), (exactly(softplus[:1]), band), sentence)


def judge_batch_norm(readings: Sequence[Measurement]) -> Judgement:
    """How J(bn ∘ aff) grows with the affine map, with few samples and with many."""
    few, many, normalised = (
        _exponent(stacked(readings, name, "batch_norm_gains")[:, 1:], ROW_NORMS[1:])
        for name in ("few", "many", "normalised")
    )
    sentence = (
        "Exponent with which |J(bn ∘ aff)| grows with |A|. Printed: bounded for generic data. With as many samples as "
        "features the covariance is always singular, and the exponent is 1. Right: bounded with more samples than "
        "features, or behind a normalised affine map."
    )
    band = Band.around(0.0, BOUNDED)
    return decide_correction(
        (over_seeds(few), band), (over_seeds(torch.stack([many, normalised], dim=1)), band), sentence
    )


def judge_entry(readings: Sequence[Measurement]) -> Judgement:
    """The printed and the right second derivative against automatic differentiation."""
    true = stacked(readings, "differentiated", "entry_curvatures")
    printed, corrected = (
        (stacked(readings, name, "entry_curvatures") - true).abs().amax(1) / true.abs().amax(1)
        for name in ("printed", "corrected")
    )
    sentence = (
        "Relative error of the second derivative of an entry-normalised matrix. Printed: −3ε w (ε + w²)^(−3/2). Right: "
        "the exponent is −5/2."
    )
    band = Band.around(0.0, ROUNDING)
    return decide_correction((over_seeds(printed), band), (exactly(corrected.max()), band), sentence)


def _exponent(values: Tensor, places: Sequence[float]) -> Tensor:
    """The exponent of each row as a power of the places."""
    return slope([math.log(place) for place in places], values.log())


CLAIMS = (
    Claim(
        "bounded",
        "The loss of a network of normalised layers has globally Lipschitz gradients.",
        "Theorem 4.5",
        "|H| at most β",
        judge_bounded,
    ),
    Claim(
        "plain",
        "Standard affine layers are suited to bounded sets of parameters only.",
        "Section 4.1",
        "|H| grows",
        judge_plain,
    ),
    Claim(
        "activation",
        "Continuously differentiable nonlinearities meet the hypotheses.",
        "Theorem 4.5 (1)",
        "bounded quotients",
        judge_activation,
    ),
    Claim(
        "batch_norm",
        "Batch norm after an affine map meets the hypotheses on generic data.",
        "Section 4.1, after Theorem 4.5",
        "exponent 0",
        judge_batch_norm,
    ),
    Claim(
        "entry_curvature", "The second derivative of entry normalisation.", "Lemma B.3, Eq. 33", "error 0", judge_entry
    ),
)


def draw_thm4_5(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """Hessians, batch norm behind an affine map, slopes near 0, the second derivative of an entry."""
    return _hessians(readings), _batch_norm(readings), _slopes(readings), _entries(readings)


def _hessians(readings: Sequence[Measurement]) -> Figure:
    names = {"normalised layers": "normalised", "the same without normalisation": "plain"}
    curves = {name: stacked(readings, array, "smooth_hessians") for name, array in names.items()}
    marks = common.bundles(torch.tensor(SCALES, dtype=torch.float64), curves)
    certified = float(stacked(readings, "certified", "smooth_hessians").log().mean().exp())
    return common.figure(
        ("hessians", "Theorem 4.5: curvature of the loss over parameter space"),
        "With normalised layers the Hessian's norm (mean and range over draws) stays below the certified "
        "constant however large the parameters are; without them it grows without end.",
        ("size of the parameters", "norm of the Hessian"),
        (*marks, Reference(certified, "certified β (mean over draws)")),
        "xy",
    )


def _batch_norm(readings: Sequence[Measurement]) -> Figure:
    names = {
        "as many samples as features": "few",
        "ten times as many samples as features": "many",
        "few samples, normalised affine map": "normalised",
    }
    curves = {name: stacked(readings, array, "batch_norm_gains") for name, array in names.items()}
    return common.figure(
        ("batch_norm", "Batch norm after an affine map"),
        "The norm of the Jacobian along the data's narrowest direction. With as many samples as features the "
        "covariance is singular for any data, and the norm grows with the affine map; the paper calls that "
        "not generic. It stays bounded with more samples, or behind a normalised map.",
        ("norm of the affine map", "norm of J(bn ∘ aff)"),
        common.bundles(torch.tensor(ROW_NORMS, dtype=torch.float64), curves),
        "xy",
    )


def _slopes(readings: Sequence[Measurement]) -> Figure:
    reading = chosen(readings, "slope_quotients")[0]
    names = {"root": "φ(x) = (2/3)·abs(x)^(3/2)", "softplus": "softplus"}
    lines = (Line(numbers(GAPS), numbers(reading[array]), name) for array, name in names.items())
    return common.figure(
        ("slopes", "Continuously differentiable is not enough"),
        "Difference quotients of two slopes at 0. Those of the first function grow without end as the gap "
        "shrinks: its derivative is continuous and not Lipschitz.",
        ("gap h", "(φ′(h) − φ′(0))/h, absolute"),
        lines,
        "xy",
    )


def _entries(readings: Sequence[Measurement]) -> Figure:
    reading = chosen(readings, "entry_curvatures")[0]
    epsilon = reading.setting("epsilon")
    w = torch.linspace(-2.5, 2.5, 501, dtype=torch.float64)
    corrected, printed = (numbers(-3 * epsilon * w * (epsilon + w * w) ** power) for power in (-2.5, -1.5))
    return common.figure(
        ("entry_curvature", f"Equation (33): second derivative of entry normalisation, ε = {epsilon}"),
        "Points are differentiated automatically. They lie on the formula with the exponent −5/2; the printed "
        "one has −3/2.",
        ("entry w", "second derivative of w/√(ε + w²)"),
        (
            Line(numbers(w), corrected, "corrected", colour=colour(0)),
            Line(numbers(w), printed, "as printed", True, colour(1)),
            Points(numbers(reading["entry"]), numbers(reading["differentiated"]), "automatic differentiation"),
        ),
    )


def runs(preset: Preset, seed: int) -> list[Run]:
    """Hessians of networks, and three kinds of layers."""
    count = {"smoke": 4, "laptop": 10, "paper": 40}[preset]
    points, ascent = {"smoke": (1, 3), "laptop": (5, 100), "paper": (40, 500)}[preset]
    curvatures = Curvatures(points=points, ascent=ascent)
    return [
        *statistics.replicated(smooth_hessians, curvatures, count, seed, cost=lambda _: 100.0),
        *statistics.replicated(batch_norm_gains, Layers(), count, seed),
        *statistics.replicated(entry_curvatures, Layers(), count, seed),
        *statistics.replicated(slope_quotients, Layers(), 1, seed),
    ]


ITEM = Item(
    "thm4_5",
    "smooth losses from normalised layers",
    runs,
    CLAIMS,
    draw_thm4_5,
    statistics.raw_tables,
    (
        "The theorem gives no example: here 6 features, 4 samples, layers of 5, 4 and 3 units, softplus, "
        "square cost; rows are divided by the root of their number, since rows below 1 do not make a matrix of "
        "norm below 1.",
    ),
)
