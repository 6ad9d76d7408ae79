"""Gradient descent on losses whose smoothness and Polyak-Łojasiewicz constant are known beforehand."""

import math
from dataclasses import dataclass

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.core.settings import option
from skiplens.studies.macdonald2023_regularity.networks import (
    HIDDEN,
    WIDTHS,
    random_data,
    random_targets,
)
from skiplens.studies.replicates import ReplicateSettings
from skiplens.theory.guaranteed_training import GuaranteedNetwork, descend, guarantee_from, guaranteed_loss
from skiplens.theory.smoothness import certified_smoothness, descent_constant

STEPS = (0.1, 0.5, 1.0, 1.5, 1.9)
"""Step sizes η β; the theorem wants less than 2."""


@dataclass(frozen=True)
class Quadratic(ReplicateSettings):
    """Least squares ½|Aθ − y|² with fewer equations than unknowns."""

    equations: int = option(10, "rows of A")
    unknowns: int = option(30, "columns of A")
    iterations: int = option(200, "steps of gradient descent")


@dataclass(frozen=True)
class NonConvex(ReplicateSettings):
    """A residual network with the square cost whose constants are certified for all parameters below the first loss."""

    iterations: int = option(200, "steps of gradient descent")
    scale: float = option(1.0, "size of the first parameters")


def descent_quadratic(settings: Quadratic) -> dict[str, Tensor]:
    """Losses (steps, iterations + 1), the bounds of equation (4), and decreases over |∇ℓ|², each step size a row."""
    generator = settings.stream()
    A, y, start = (
        torch.randn(shape, dtype=torch.float64, generator=generator)
        for shape in ((settings.equations, settings.unknowns), (settings.equations,), (settings.unknowns,))
    )
    values = torch.linalg.svdvals(A)
    beta, mu = float(values[0] ** 2), float(2 * values[-1] ** 2)  # |Aᵀr|² >= σ² |r|² = 2 σ² ℓ
    etas = torch.tensor(STEPS, dtype=torch.float64) / beta
    losses, gradients = _least_squares(A, y, start, etas, settings.iterations)
    return {
        "loss": losses,
        "bound": _bounds(losses[:, 0], etas, (beta, mu), settings.iterations),
        "decrease": -losses.diff(dim=1) / gradients[:, :-1],
        "beta": torch.tensor(beta, dtype=torch.float64),
    }


def descent_network(settings: NonConvex) -> dict[str, Tensor]:
    """Losses and bounds of a network, and the smallest eigenvalue of its first Hessian: it is not convex."""
    generator = settings.stream()
    network = GuaranteedNetwork(WIDTHS, HIDDEN)
    data = random_data(generator)
    loss = guaranteed_loss(network, (data.T, random_targets(generator).T))
    start = network.random_start(generator, settings.scale)
    first = float(loss(start))
    beta = certified_smoothness(loss, first).finite()
    mu = guarantee_from(network, loss, start).regularity * loss.cost.domination(math.inf)
    etas = torch.tensor(STEPS, dtype=torch.float64) / beta
    rows = [[point.loss for point in descend(loss, start, float(eta), settings.iterations)] for eta in etas]
    losses = torch.tensor(rows, dtype=torch.float64)
    return {
        "loss": losses,
        "bound": _bounds(losses[:, 0], etas, (beta, mu), settings.iterations),
        "lowest_curvature": torch.linalg.eigvalsh(loss.hessian(start))[0],
    }


def _least_squares(
    A: Tensor, y: Tensor, start: Tensor, etas: Tensor, iterations: int
) -> tuple[Float[Tensor, "steps points"], Float[Tensor, "steps points"]]:
    """Losses and squared gradients, all step sizes at once."""
    theta = start.expand(len(etas), -1)
    losses, gradients = [], []
    for _ in range(iterations + 1):
        residual = theta @ A.T - y
        gradient = residual @ A
        losses.append(residual.square().sum(1) / 2)
        gradients.append(gradient.square().sum(1))
        theta = theta - etas[:, None] * gradient
    return torch.stack(losses, dim=1), torch.stack(gradients, dim=1)


def _bounds(first: Tensor, etas: Tensor, constants: tuple[float, float], iterations: int) -> Tensor:
    """(1 − μ η (1 − β η/2))^t ℓ_0 (equation 4, with ℓ* = 0)."""
    beta, mu = constants
    rates = torch.tensor([1 - mu * descent_constant(beta, float(eta)) for eta in etas], dtype=torch.float64)
    return first[:, None] * rates[:, None] ** torch.arange(iterations + 1, dtype=torch.float64)
