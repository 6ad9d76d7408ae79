"""How curved losses and layers are, far from the origin of parameter space."""

from dataclasses import dataclass

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.core.settings import option
from skiplens.studies.macdonald2023_regularity.networks import (
    SCALES,
    ResidualNetwork,
    random_data,
    random_parameters,
    random_targets,
)
from skiplens.studies.replicates import ReplicateSettings
from skiplens.theory.parameterised_systems import (
    NONLINEARITIES,
    Affine,
    BatchNorm,
    Composition,
    Free,
    WeightNormalised,
)
from skiplens.theory.parameterised_systems.parameterisation import Parameterisation
from skiplens.theory.smoothness import SquareCost, TrainingLoss, certified_smoothness, search_rough_point

ROW_NORMS = (1.0, 10.0, 100.0, 1000.0)
"""Of the matrix in front of a batch norm."""

GAPS = (1e-2, 1e-4, 1e-6)
FEATURES, EPSILON = 3, 0.1
SAMPLES = {"few": 3, "many": 30}
"""In front of a batch norm: as many as features, and more."""


@dataclass(frozen=True)
class Curvatures(ReplicateSettings):
    """Hessians of a network on random data, at random parameters of several sizes."""

    points: int = option(3, "parameters of each size")
    ascent: int = option(40, "steps of an ascent on the Hessian's norm")


@dataclass(frozen=True)
class Layers(ReplicateSettings):
    """Derivatives of single layers."""

    entries: int = option(12, "entries of a normalised matrix")
    epsilon: float = option(0.05, "of its normalisation")


def smooth_hessians(settings: Curvatures) -> dict[str, Tensor]:
    """The largest |H|₂ at each size of parameters, with and without normalisation; the certified β; an ascent."""
    generator = settings.stream()
    data, cost = random_data(generator), SquareCost(random_targets(generator))
    networks = (ResidualNetwork(normalised=normalised, nonlinearity="softplus") for normalised in (True, False))
    losses = [TrainingLoss(network.system(), data, cost) for network in networks]
    start = random_parameters(ResidualNetwork().system(), 1.0, generator)
    rough, _ = search_rough_point(losses[0], start, settings.ascent)
    normalised, plain = (_by_scale(loss, settings.points, generator) for loss in losses)
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
    data = {
        name: torch.randn(FEATURES, samples, dtype=torch.float64, generator=generator)
        for name, samples in SAMPLES.items()
    }
    free, normalised = Free(1, FEATURES), WeightNormalised(1, FEATURES)
    return {
        "few": _gains(free, data["few"]),
        "many": _gains(free, data["many"]),
        "normalised": _gains(normalised, data["few"]),
    }


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
    return {
        "gap": h,
        "root": _root_slope(h) / h,
        "softplus": (softplus(h) - softplus(torch.zeros_like(h))).abs() / h,
    }


def _by_scale(loss: TrainingLoss, points: int, generator: torch.Generator) -> Float[Tensor, " scales"]:
    system = loss.system
    assert isinstance(system, Composition), "the networks of the study are compositions"
    norms = [
        [_hessian_norm(loss, random_parameters(system, scale, generator)) for _ in range(points)] for scale in SCALES
    ]
    return torch.tensor(norms, dtype=torch.float64).amax(1)


def _hessian_norm(loss: TrainingLoss, parameters: Tensor) -> float:
    return float(torch.linalg.matrix_norm(loss.hessian(parameters), 2))


def _gains(row: Parameterisation, data: Float[Tensor, "features samples"]) -> Float[Tensor, " norms"]:
    narrowest = torch.linalg.eigh(torch.cov(data)).eigenvectors[:, 0]
    layers = Composition((Affine(row), BatchNorm(1, EPSILON)))
    gains = [torch.linalg.matrix_norm(layers.input_jacobian(norm * narrowest, data), 2) for norm in ROW_NORMS]
    return torch.stack(gains)


def _root_slope(x: Tensor) -> Tensor:
    """The derivative of (2/3)|x|^(3/2) away from 0, where it is 0."""
    return torch.func.grad(lambda y: (2 / 3 * y.abs() ** 1.5).sum())(x).abs()
