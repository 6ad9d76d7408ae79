"""The runs of theorem 5.1."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from skiplens.base.axes import Int
from skiplens.base.settings import option
from skiplens.data.images import ImageSet, sample
from skiplens.jacobians.hypotheses.model_check import check_hypotheses
from skiplens.jacobians.systems.costs import CrossEntropy
from skiplens.jacobians.systems.smoothness import TrainingLoss, certified_smoothness, local_smoothness
from skiplens.linalg.singular_values import smallest_singular_value
from skiplens.papers.macdonald2023_regularity.common import CLASSES as PAPER_CLASSES
from skiplens.papers.macdonald2023_regularity.common import (
    HIDDEN,
    WIDTHS,
    RandomResidualNetwork,
    random_data,
    random_labels,
    random_parameters,
    random_targets,
)
from skiplens.papers.macdonald2023_regularity.counterexample import (
    FREE_START,
    ONE_LAYER_INPUT,
    TRAPPED_START,
    descend,
    largest_weight_bound,
    run_counterexample,
    run_printed_bound,
)
from skiplens.papers.macdonald2023_regularity.guaranteed import GuaranteedNetwork, TrainingPlan, train_with_guarantee
from skiplens.papers.statistics import ReplicateSettings
from skiplens.zoo.catalogue import build

START_SCALES = (0.1, 1.5, 15.0)
"""Sizes of the first parameters: the theorem speaks of any start."""

STEP_FACTORS = (1.0, 100.0, 10_000.0)
"""Multiples of the certified step size."""

CHECKED = ("mnist_residual_avgpool", "normalised_resnet", "guaranteed_resnet")
"""Networks of the zoo whose hypotheses are checked: a practical one, the theorem's, and the repaired one."""


@dataclass(frozen=True)
class Trapped(ReplicateSettings):
    """The counterexample, near the start from which it is trapped or at the one from which it arrives."""

    cost: Literal["logistic", "square"] = option("logistic", "what is minimised")
    start: Literal["trapped", "free"] = option("trapped", "where descent begins")
    spread: float = option(0.02, "deviation of the starts of replicates")
    iterations: int = option(2000, "steps of gradient descent")


@dataclass(frozen=True)
class OneLayer(ReplicateSettings):
    """One normalised weight, for which both bounds of the proof can be followed for a million steps."""

    iterations: int = option(1_000_000, "steps of gradient descent")


@dataclass(frozen=True)
class Descents(ReplicateSettings):
    """Descents from small, usual and large parameters on random data."""

    iterations: int = option(500, "steps of gradient descent")


@dataclass(frozen=True)
class Repaired(Descents):
    """The same on the repaired network, whose first layer is not normalised."""

    cost: Literal["square", "cross_entropy"] = option("cross_entropy", "what is minimised")


@dataclass(frozen=True)
class DigitCertificate(ReplicateSettings):
    """The theorem's network on digits."""

    images: int = option(32, "training images")
    iterations: int = option(100, "steps of gradient descent")
    scale: float = option(0.1, "size of the first parameters")


@dataclass(frozen=True)
class Hypotheses(ReplicateSettings):
    """Which hypotheses networks meet."""

    images: int = option(32, "training images")


SAFETY = 1.9
"""Step sizes are this over β."""


def trapped_descent(settings: Trapped) -> dict[str, Tensor]:
    """Losses and outputs of the counterexample at some steps, the trap and the infimum."""
    centre = torch.tensor(TRAPPED_START if settings.start == "trapped" else FREE_START, dtype=torch.float64)
    w, a, b = (centre + settings.spread * torch.randn(3, dtype=torch.float64, generator=settings.stream())).tolist()
    run = run_counterexample(settings.cost, (w, a, b), settings.iterations)
    places = some_steps(settings.iterations)
    return {
        "step": places,
        "loss": run.losses[places],
        "output": run.outputs[places],
        "sum_of_lambda": run.regularity.cumsum(0)[places],
        "trap": torch.tensor(run.trap, dtype=torch.float64),
        "infimum": torch.tensor(run.infimum, dtype=torch.float64),
    }


def one_layer_bounds(settings: OneLayer) -> dict[str, Tensor]:
    """Loss, weight, both bounds and σ(DF) of one normalised weight at some steps; nothing is drawn."""
    run, places = run_printed_bound(settings.iterations), some_steps(settings.iterations)
    return {
        "step": places,
        "loss": run.losses[places],
        "weight": run.weights[places],
        "valid": run.valid[places],
        "printed": run.printed[places],
        "sigma": ONE_LAYER_INPUT * (1 + run.weights[places].square()) ** -1.5,
        "floor": torch.tensor(run.floor, dtype=torch.float64),
    }


def printed_network_descent(settings: Descents) -> dict[str, Tensor]:
    """The theorem's network with cross-entropy from each size of start (starts, steps), and its largest weights."""
    generator = settings.stream()
    system, data = RandomResidualNetwork().system(), random_data(generator)
    loss = TrainingLoss(system, data, CrossEntropy(random_labels(generator), PAPER_CLASSES))
    step = SAFETY / certified_smoothness(loss).finite()
    losses, weights, bounds = [], [], []
    for scale in START_SCALES:
        start = random_parameters(system, scale, generator)
        points = list(descend(loss, start, step, settings.iterations))
        losses.append([point.loss for point in points])
        weights.append(float(points[-1].parameters[: system.layers[0].parameters].abs().max()))
        bounds.append(largest_weight_bound(loss, start, step, settings.iterations))
    found = {"loss": losses, "largest_weight": weights, "weight_bound": bounds}
    return {name: torch.tensor(values, dtype=torch.float64) for name, values in found.items()}


def repaired_descent(settings: Repaired) -> dict[str, Tensor]:
    """Losses and proved bounds (starts, steps) of the repaired network, and whether every certificate was kept."""
    generator = settings.stream()
    network, data = GuaranteedNetwork(WIDTHS, HIDDEN), random_data(generator)
    targets = random_labels(generator) if settings.cost == "cross_entropy" else random_targets(generator).T
    plan = TrainingPlan(settings.iterations, regularity_every=max(1, settings.iterations // 10))
    starts = (network.random_start(generator, scale) for scale in START_SCALES)
    runs = [train_with_guarantee(network, (data.T, targets), start, plan) for start in starts]
    return {
        "loss": torch.stack([run.losses for run in runs]),
        "bound": torch.stack([run.bounds for run in runs]),
        "kept": torch.tensor([run.holds for run in runs]),
    }


def some_steps(iterations: int) -> Int[Tensor, " points"]:
    """Numbers of steps from 0 to all, equally spaced in their logarithm."""
    powers = torch.logspace(0, torch.tensor(float(iterations)).log10().item(), 61, dtype=torch.float64)
    return torch.cat([torch.zeros(1, dtype=torch.int64), powers.round().long()]).unique()


NETWORK = RandomResidualNetwork(widths=(784, 32, 16, 10), hidden=16)

CLASSES = 10

VERDICTS = {"holds": 1.0, "fails": 0.0, "cannot be decided": math.nan}


def digit_certificates(settings: DigitCertificate) -> dict[str, Tensor]:
    """The certified β, |H| at the start and σ(X); losses with multiples of the certified step (factors, steps)."""
    generator = settings.stream()
    loss = _digit_loss(settings.images, generator)
    start = random_parameters(NETWORK.system(), settings.scale, generator)
    beta = certified_smoothness(loss).finite()
    losses = [
        [point.loss for point in descend(loss, start, factor * 1.9 / beta, settings.iterations)]
        for factor in STEP_FACTORS
    ]
    numbers = {
        "certified": beta,
        "measured": local_smoothness(loss, start, generator),
        "smallest_singular_value": smallest_singular_value(loss.data),
        "loss": losses,
    }
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in numbers.items()}


def hypotheses_met(settings: Hypotheses) -> dict[str, Tensor]:
    """For each hypothesis, and each network in order: 1 where it holds, 0 where it fails, NaN where it is open."""
    digits = _digits(settings.images, settings.stream())
    pixels, labels = digits.pixels(torch.float32), digits.labels
    found: dict[str, list[float]] = {}
    for name in CHECKED:
        network = build(name).to(torch.float32)
        inputs = pixels if name.startswith("mnist") else pixels.flatten(1)
        reading = check_hypotheses(network, (inputs, labels))
        for label, verdict in zip(reading.labels, reading.verdicts, strict=True):
            found.setdefault(label, []).append(VERDICTS[verdict])
    return {label: torch.tensor(values, dtype=torch.float64) for label, values in found.items()}


def _digit_loss(images: int, generator: torch.Generator) -> TrainingLoss:
    digits = _digits(images, generator)
    data = digits.pixels(torch.float64).flatten(1).T.contiguous()
    return TrainingLoss(NETWORK.system(), data, CrossEntropy(digits.labels, CLASSES))


def _digits(images: int, generator: torch.Generator) -> ImageSet:
    """Some of the embedded digits, drawn without replacement."""
    digits = sample()
    return digits.select(torch.randperm(len(digits), generator=generator)[:images])
