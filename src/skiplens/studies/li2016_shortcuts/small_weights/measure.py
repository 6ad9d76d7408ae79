"""Theorem 1, measured: the network is built, and run as equation (3) prints it, with all its matrices."""

import math

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.data import random_unit_vectors
from skiplens.studies.li2016_shortcuts.scalars import scalars
from skiplens.studies.li2016_shortcuts.small_weights.settings import Construction, OneStep, Points, SharedLabels
from skiplens.theory.small_weights import (
    BiasedUnits,
    Interpolation,
    length_bound,
    separation,
    small_weight_network,
    surrogate_targets,
    units_bound,
)

_UNITS_AT_ONCE = 500


def construction(settings: Construction) -> dict[str, Tensor]:
    """Fit, norms and path lengths of the printed construction with so many units."""
    inputs, targets = points(settings, settings.shared_stream("points"))  # the same at every depth
    built = small_weight_network(inputs, targets, units=settings.units, kind="printed", verify=False)
    step = float(built.network.moves.norm(dim=1).max())
    rho, m = built.separation, settings.samples
    return scalars(
        fit_error=_fit_error(built, inputs, targets),
        largest_norm=_largest_norm(built),
        longest_step=step,
        separation=rho,
        norm_constant=built.norm_constant,
        longest_path=float(built.path_lengths.max()),
        path_bound=length_bound(m, rho),
        allowed_units=units_bound(m, rho, step),
    )


def one_step(settings: OneStep) -> dict[str, Tensor]:
    """Error of a unit of lemma 1, as printed in equations (15) to (17), that moves the first of the points."""
    generator = settings.stream()
    A = random_unit_vectors(settings.samples, settings.width, generator, torch.float64)
    rho = 2 * float(torch.pdist(A).min())  # the points are as near to each other as the lemma allows
    goal = _moved(A[0], settings.distance, generator)
    delta = float((goal - A[0]).norm())
    c = math.sqrt(8 * delta) / rho
    W_1, W_2 = torch.zeros(2, settings.width, settings.width, dtype=torch.float64)
    W_1[0] = c * A[0]
    W_2[:, 0] = math.sqrt(8 / delta) / rho * (goal - A[0])
    b = torch.full((settings.width,), c * (rho**2 / 8 - 1), dtype=torch.float64)
    expected = torch.cat([goal[None], A[1:]])
    error = (A + torch.relu(A @ W_1.T + b) @ W_2.T - expected).abs().max()
    norms = torch.stack([W_1.norm(), W_2.norm()])
    return {"error": error, "norm_error": (norms / c - 1).abs().max(), "separation": torch.tensor(rho)}


def shared_labels(settings: SharedLabels) -> dict[str, Tensor]:
    """The separation of samples that share labels, and the loss of the network for surrogate targets."""
    generator = settings.stream()
    inputs, targets = points(settings, generator)
    surrogates = surrogate_targets(inputs, targets, settings.distance, generator)
    built = small_weight_network(inputs, surrogates, units=settings.units)
    outputs = run_units(built.network.matrices(), inputs)
    return scalars(
        separation=separation(inputs, targets).distance,
        surrogate_separation=built.separation,
        loss=float((outputs - targets).square().sum() / (2 * settings.samples)),
        loss_bound=settings.distance**2 / 2,
        largest_norm=_largest_norm(built),
    )


def points(settings: Points, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Unit vectors, and standard basis vectors in turn from a random one on."""
    inputs = random_unit_vectors(settings.samples, settings.width, generator, torch.float64)
    order = torch.randperm(settings.width, generator=generator)
    labels = order[torch.arange(settings.samples) % settings.width]
    return inputs, torch.eye(settings.width, dtype=torch.float64)[labels]


def run_units(units: BiasedUnits, inputs: Float[Tensor, "samples width"]) -> Float[Tensor, "samples width"]:
    """Equation (3): h + W_2 relu(W_1 h + b), unit after unit."""
    h = inputs
    for W_1, b, W_2 in zip(*units, strict=True):
        h = h + torch.relu(h @ W_1.T + b) @ W_2.T
    return h


def _fit_error(built: Interpolation, inputs: Tensor, targets: Tensor) -> float:
    h = inputs
    for first in range(0, built.network.units, _UNITS_AT_ONCE):
        h = run_units(built.network.matrices(first, first + _UNITS_AT_ONCE), h)
    return float((h - targets).norm(dim=1).max())


def _largest_norm(built: Interpolation) -> float:
    units = built.network.matrices()
    return float(torch.stack([units.first.flatten(1).norm(dim=1), units.second.flatten(1).norm(dim=1)]).max())


def _moved(point: Tensor, distance: float, generator: torch.Generator) -> Tensor:
    """A unit vector at this distance from a unit vector, in a random direction."""
    draw = torch.randn(len(point), dtype=torch.float64, generator=generator)
    side = draw - (draw @ point) * point
    angle = 2 * math.asin(distance / 2)
    return math.cos(angle) * point + math.sin(angle) * side / side.norm()
