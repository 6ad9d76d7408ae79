"""How far practice is from theorem 5.1: step sizes on digits, and which hypotheses networks meet."""

import math

import torch

from skiplens.core.axes import Tensor
from skiplens.data.embedded import sample
from skiplens.data.images import ImageSet
from skiplens.lenses.jacobians.hypotheses import check_hypotheses
from skiplens.residual.zoo.catalogue import build
from skiplens.studies.macdonald2023_regularity.convergence.settings import (
    CHECKED,
    STEP_FACTORS,
    DigitCertificate,
    Hypotheses,
)
from skiplens.studies.macdonald2023_regularity.networks import ResidualNetwork, random_parameters
from skiplens.theory.guaranteed_training import descend
from skiplens.theory.parameterised_systems import smallest_singular_value
from skiplens.theory.smoothness import CrossEntropy, TrainingLoss, certified_smoothness, local_smoothness

NETWORK = ResidualNetwork(widths=(784, 32, 16, 10), hidden=16)
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
