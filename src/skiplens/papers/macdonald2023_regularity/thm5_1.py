"""Theorem 5.1, convergence from any start: what refutes it, what is left of it, and a repaired network.

The counterexample has its own file; here are the paper's network and the repaired one on random data, and on digits.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from skiplens.base.settings import option
from skiplens.data.images import ImageSet, sample
from skiplens.jacobians.hypotheses.model_check import check_hypotheses
from skiplens.jacobians.systems import smoothness
from skiplens.jacobians.systems.costs import CrossEntropy
from skiplens.jacobians.systems.smoothness import SAFETY, TrainingLoss, certified_smoothness
from skiplens.linalg.singular_values import smallest_singular_value
from skiplens.papers import statistics
from skiplens.papers.macdonald2023_regularity import common, counterexample
from skiplens.papers.macdonald2023_regularity.common import HIDDEN, WIDTHS, RandomResidualNetwork, arrays
from skiplens.papers.macdonald2023_regularity.counterexample import ROUNDING, OneLayer, Trapped, largest_weight_bound
from skiplens.papers.macdonald2023_regularity.guaranteed import GuaranteedNetwork, TrainingPlan, train_with_guarantee
from skiplens.papers.macdonald2023_regularity.thm2_3 import STEPS, quadratics
from skiplens.papers.statistics import Band, Readings, chosen, decide, decide_correction, exactly, over_seeds, stacked
from skiplens.papers.study import Item, Judgement, Preset, claim, claims
from skiplens.plots.figure import Figure, Line, colour, numbers
from skiplens.sweeps.run import Run
from skiplens.zoo.catalogue import build

START_SCALES = (0.1, 1.5, 15.0)  # sizes of the first parameters: the theorem speaks of any start
STEP_FACTORS = (1.0, 100.0, 10_000.0)  # multiples of the certified step size
CHECKED = ("mnist_residual_avgpool", "normalised_resnet", "guaranteed_resnet")
"""Networks of the zoo whose hypotheses are checked: a practical one, the theorem's, and the repaired one."""

ON_DIGITS = RandomResidualNetwork(widths=(784, 32, 16, 10), hidden=16)
MUCH_SMALLER = 100  # step sizes that are so many times smaller are much smaller


class Descents(statistics.ReplicateSettings):
    """Descents from small, usual and large parameters on random data."""

    iterations: int = option(500, "steps of gradient descent")


class Repaired(Descents):
    """The same on the repaired network, whose first layer is not normalised."""

    cost: Literal["square", "cross_entropy"] = option("cross_entropy", "what is minimised")


class DigitCertificate(statistics.ReplicateSettings):
    """The theorem's network on digits."""

    images: int = option(32, "training images")
    iterations: int = option(100, "steps of gradient descent")
    scale: float = option(0.1, "size of the first parameters")


class Hypotheses(statistics.ReplicateSettings):
    """Which hypotheses networks meet."""

    images: int = option(32, "training images")


def printed_network_descent(settings: Descents) -> dict[str, Tensor]:
    """The theorem's network with cross-entropy from each size of start (starts, steps), and its largest weights."""
    generator = settings.stream()
    system, data = RandomResidualNetwork().system(), common.random_data(generator)
    loss = TrainingLoss(system, data, CrossEntropy(common.random_labels(generator), common.CLASSES))
    step = SAFETY / certified_smoothness(loss).finite()
    found: dict[str, list[list[float] | float]] = {"loss": [], "largest_weight": [], "weight_bound": []}
    for scale in START_SCALES:
        start = common.random_parameters(system, scale, generator)
        points = list(common.descend(loss, start, step, settings.iterations))
        found["loss"].append([point.loss for point in points])
        found["largest_weight"].append(float(points[-1].parameters[: system.layers[0].parameters].abs().max()))
        found["weight_bound"].append(largest_weight_bound(loss, start, step, settings.iterations))
    return {name: torch.tensor(values, dtype=torch.float64) for name, values in found.items()}


def repaired_descent(settings: Repaired) -> dict[str, Tensor]:
    """Losses and proved bounds (starts, steps) of the repaired network, and whether every certificate was kept."""
    generator = settings.stream()
    network, data = GuaranteedNetwork(WIDTHS, HIDDEN), common.random_data(generator)
    targets = (
        common.random_labels(generator) if settings.cost == "cross_entropy" else common.random_targets(generator).T
    )
    plan = TrainingPlan(settings.iterations, regularity_every=max(1, settings.iterations // 10))
    starts = (network.random_start(generator, scale) for scale in START_SCALES)
    runs = [train_with_guarantee(network, (data.T, targets), start, plan) for start in starts]
    return {
        "loss": torch.stack([run.losses for run in runs]),
        "bound": torch.stack([run.bounds for run in runs]),
        "kept": torch.tensor([run.holds for run in runs]),
    }


def digit_certificates(settings: DigitCertificate) -> dict[str, Tensor]:
    """The certified β, |H| at the start and σ(X); losses with multiples of the certified step (factors, steps)."""
    generator, system = settings.stream(), ON_DIGITS.system()
    digits = _digits(settings.images, generator)
    data = digits.pixels(torch.float64).flatten(1).T.contiguous()
    loss = TrainingLoss(system, data, CrossEntropy(digits.labels, ON_DIGITS.widths[-1]))
    start = common.random_parameters(system, settings.scale, generator)
    beta = certified_smoothness(loss).finite()
    steps = (factor * SAFETY / beta for factor in STEP_FACTORS)
    losses = [[point.loss for point in common.descend(loss, start, step, settings.iterations)] for step in steps]
    found = {
        "certified": beta,
        "measured": smoothness.local_smoothness(loss, start, generator),
        "smallest_singular_value": smallest_singular_value(data),
        "loss": losses,
    }
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in found.items()}


def hypotheses_met(settings: Hypotheses) -> dict[str, Tensor]:
    """For each hypothesis, and each network in order: 1 where it holds, 0 where it fails, NaN where it is open."""
    numbers_of = {"holds": 1.0, "fails": 0.0, "cannot be decided": math.nan}
    digits = _digits(settings.images, settings.stream())
    pixels = digits.pixels(torch.float32)
    found: dict[str, list[float]] = {}
    for name in CHECKED:
        inputs = pixels if name.startswith("mnist") else pixels.flatten(1)
        reading = check_hypotheses(build(name).to(torch.float32), (inputs, digits.labels))
        for label, verdict in zip(reading.labels, reading.verdicts, strict=True):
            found.setdefault(label, []).append(numbers_of[verdict])
    return {label: torch.tensor(values, dtype=torch.float64) for label, values in found.items()}


def _digits(images: int, generator: torch.Generator) -> ImageSet:
    """Some of the embedded digits, drawn without replacement."""
    digits = sample()
    return digits.select(torch.randperm(len(digits), generator=generator)[:images])


@claim("Proof of Theorem 5.1, after Eq. 37", "at least 1")
def _descent_constant(readings: Readings) -> Judgement:
    """A step decreases the loss by α |∇ℓ|²."""
    decrease, beta = arrays(readings, "descent_quadratic", "decrease", "beta")
    decrease, beta = decrease[:, :, :20], beta[:, None]  # later on, losses are rounding
    eta = torch.tensor(STEPS, dtype=torch.float64) / beta
    printed, right = eta * (1 - 2 * eta / beta), smoothness.descent_constant(beta, eta)
    worst = [(decrease / alpha[:, :, None]).amin((1, 2)) for alpha in (printed, right)]
    sentence = (
        "Smallest decrease of a step over α |∇ℓ|², least squares. Printed: α = η(1 − 2η/β). Right: α = η(1 − βη/2); "
        "the smallest quotient with it is shown."
    )
    corrected = exactly(worst[1].min()), Band(1 - ROUNDING, math.inf, ROUNDING)
    return decide_correction((over_seeds(worst[0]), Band(1.0, math.inf)), corrected, sentence)


@claim("Proof of Theorem 5.1", "below 0")
def _descends(readings: Readings) -> Judgement:
    """The loss decreases with every step of a size below 2/β, from any start."""
    loss = stacked(readings, "loss", "printed_network_descent")
    sentence = "Largest relative change of the loss in a step of 1.9/β, starts of sizes 0.1, 1.5 and 15: negative."
    return decide(exactly((loss.diff(dim=2) / loss[:, :, :-1]).max()), Band(-math.inf, 0.0), sentence)


def _repaired(readings: Readings, cost: str) -> Judgement:
    """The largest loss over the bound that was proved before the first step."""
    loss, bound, kept = arrays(readings, "repaired_descent", "loss", "bound", "kept", cost=cost)
    ratio = (loss[:, :, 1:] / bound[:, :, 1:]).max()
    sentence = (
        "Largest loss over the bound proved before the first step, which tends to 0; starts of sizes 0.1, 1.5 and 15. "
        "Every step also kept its own certificate."
    )
    worst = ratio if bool(kept.all()) else math.inf
    return decide(exactly(worst), Band(-math.inf, 1 + ROUNDING, ROUNDING), sentence)


@claim("Section 5, last paragraph", f"log₁₀ ratio > 0; we ask for ≥ {math.log10(MUCH_SMALLER):g}")
def _worst_case(readings: Readings) -> Judgement:
    """Lipschitz bounds are worst cases, with learning rates much smaller than those of practice."""
    certified, measured = arrays(readings, "digit_certificates", "certified", "measured")
    sentence = (
        "log₁₀ of the certified β over the Hessian's norm at the start, 32 digits: so many times smaller is the "
        f"certified step than one that fits. We ask for at least {MUCH_SMALLER} times."
    )
    return decide(over_seeds((certified / measured).log10()), Band(math.log10(MUCH_SMALLER), math.inf), sentence)


@claim("Section 5, last paragraph", "at least one fails")
def _practice(readings: Readings) -> Judgement:
    """Practical problems typically do not satisfy the hypotheses."""
    reading = chosen(readings, "hypotheses_met")[0]
    failing = torch.stack([values[0] == 0 for values in reading.arrays.values()]).sum()
    sentence = f"Hypotheses of theorems 4.5, 4.7 and 5.1 that fail for {CHECKED[0]} on 32 digits; the table lists them."
    return decide(exactly(failing), Band(1.0, math.inf), sentence)


_CONVERGES = "Gradient descent converges from any initialisation to a global minimum: the repaired network."
_WHERE = "Theorem 5.1, with a free first layer and bounded branches"
_COSTS = ("square", "cross_entropy")
_REPAIRED = claims(
    _repaired, *((f"repaired_{cost}", _CONVERGES, _WHERE, "loss over bound at most 1", cost) for cost in _COSTS)
)
CLAIMS = (*counterexample.CLAIMS, _descent_constant, _descends, *_REPAIRED, _worst_case, _practice)


def draw(readings: Readings) -> tuple[Figure, ...]:
    """All figures."""
    starts = [f"parameters of size {scale:g}" for scale in START_SCALES]
    on_random_data = _descents(
        stacked(readings, "loss", "printed_network_descent"),
        starts,
        ("any_start", "Theorem 5.1: the paper's network, random data"),
        "Cross-entropy falls with every step of 1.9/β, from small, usual and large parameters (mean and range over "
        "draws). How far it falls in the end is not certified.",
    )
    on_digits = _descents(
        stacked(readings, "loss", "digit_certificates"),
        [f"{n:,.0f} × 1.9/β" for n in STEP_FACTORS],
        ("steps", "Theorem 5.1 on 32 digits: the certified step and multiples of it"),
        "The certified step size hardly moves the loss; one ten thousand times as large still goes down (mean and "
        "range over draws).",
    )
    repaired = []
    for cost in _COSTS:
        loss, bound = arrays(readings, "repaired_descent", "loss", "bound", cost=cost)
        words = f"repaired_{cost}", f"The repaired network, {cost.replace('_', '-')} cost"
        caption = (
            "A free first layer and bounded branches: from any start (mean and range over draws) the loss stays "
            "below a bound that is proved before the first step and tends to 0 (dashed)."
        )
        repaired.append(_descents(loss, starts, words, caption, bound.log().mean(0).exp().unbind()))
    return (
        counterexample.draw_trapped(readings, "logistic"),
        counterexample.draw_trapped(readings, "square"),
        counterexample.draw_bounds(readings),
        counterexample.draw_decay(readings),
        on_random_data,
        *repaired,
        replace(on_digits, y_label="cross-entropy"),
    )


def _descents(
    losses: Tensor, names: Sequence[str], words: tuple[str, str], caption: str, bounds: Sequence[Tensor] = ()
) -> Figure:
    """Losses (draws, names, steps) against the steps, and bounds, if there are any, as dashed lines."""
    steps = torch.arange(losses.shape[2], dtype=torch.float64)
    curves = common.bundles(steps, dict(zip(names, losses.unbind(1), strict=True)))
    dashed = [Line(numbers(steps), numbers(bound), "", True, colour(index)) for index, bound in enumerate(bounds)]
    return common.figure(words, caption, ("steps of gradient descent", "loss"), [*curves, *dashed], "y")


def runs(preset: Preset, seed: int) -> list[Run]:
    """The counterexample, one weight, both networks, digits, hypotheses; and the least squares of theorem 2.3."""
    replicates, logistic, square, printed, repaired, digits = {  # the last five are steps of descents
        "smoke": (4, 900, 1500, 30, 15, 10),
        "laptop": (5, 2000, 2000, 500, 200, 100),
        "paper": (10, 100_000, 100_000, 100_000, 10_000, 1000),
    }[preset]
    trapped, one_layer = counterexample.trapped_descent, counterexample.one_layer_bounds
    planned: list[tuple[statistics.Measure, statistics.ReplicateSettings, int]] = [
        (trapped, Trapped(cost="logistic", iterations=logistic), replicates),
        (trapped, Trapped(cost="square", iterations=square), replicates),
        (trapped, Trapped(cost="logistic", start="free", iterations=logistic), 1),
        (trapped, Trapped(cost="square", start="free", iterations=square), 1),
        (one_layer, OneLayer(), 1),
        (printed_network_descent, Descents(iterations=printed), replicates),
        (repaired_descent, Repaired(cost="square", iterations=repaired), replicates),
        (repaired_descent, Repaired(cost="cross_entropy", iterations=repaired), replicates),
        (digit_certificates, DigitCertificate(iterations=digits), 8),  # they vary more, cost little
        (hypotheses_met, Hypotheses(), 1),
    ]
    own = [run for measure, base, count in planned for run in statistics.replicated(measure, base, count, seed)]
    return [*own, *quadratics(preset, seed)]


_TITLE = "convergence from any start: a counterexample, what holds, and a repaired network"
_DEVIATIONS = (
    "The theorem gives no example. Here: a network of three weights that meets every hypothesis (starts of replicates "
    "differ a little), one normalised weight, the paper's network and the repaired one with 6 features and 4 samples, "
    "and the paper's network with 784, 32, 16 and 10 units on 32 of the first 2,000 MNIST digits.",
    "The repaired network is ours: its first layer is not normalised, and a tanh stands before each branch.",
)
ITEM = Item("thm5_1", _TITLE, runs, CLAIMS, draw, statistics.raw_tables, _DEVIATIONS)
