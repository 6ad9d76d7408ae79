"""Gradient descent on the sphere ‖w‖² = Λ."""

from dataclasses import dataclass

import torch
from torch import Tensor

from skiplens.core.axes import Bool, Float
from skiplens.core.errors import InvalidInputError
from skiplens.theory.spin_glass.landscape import Landscape, check_points, onto_sphere, tangent_part

_SUFFICIENT = 1e-4  # Armijo's share of the decrease that the slope promises
_ROUNDINGS = 16  # of the energy's scale Λ: a decrease below them cannot be seen


@dataclass(frozen=True, eq=False)
class Descent:
    """Where a descent ended.

    Attributes:
        points: The last points.
        gradient_norms: Norms of the Riemannian gradient there.
        energies: Energies after 0, 1, 2 … steps; never increasing.
        converged: Whether the gradient's norm fell below the tolerance.
    """

    points: Float[Tensor, "starts spins"]
    gradient_norms: Float[Tensor, " starts"]
    energies: Float[Tensor, "steps starts"]
    converged: Bool[Tensor, " starts"]


def descend(
    landscape: Landscape,
    starts: Float[Tensor, "starts spins"],
    steps: int = 1000,
    first_step: float = 0.1,
    tolerance: float = 1e-6,
) -> Descent:
    """Follow the negative Riemannian gradient from every start, each with its own backtracking step.

    Args:
        landscape: The energy, e.g. a `SpinGlass` or a `StreamedSpinGlass`.
        starts: Points of R^Λ; they are put onto the sphere first.
        steps: The most evaluations after the first.
        first_step: Length of the first trial step in units of the gradient.
        tolerance: A start is done when its gradient's norm is below tolerance · √Λ.
    """
    if steps < 0 or first_step <= 0 or tolerance <= 0:
        raise InvalidInputError(
            f"descend needs steps >= 0, first_step > 0, tolerance > 0; got {steps}, {first_step:g}, {tolerance:g}."
        )
    w = onto_sphere(check_points(starts, landscape.dimension))
    energy, gradient = landscape.energy_and_gradient(w)
    slope = tangent_part(gradient, w)
    step, history = torch.full_like(energy, first_step), [energy]
    goal = tolerance * landscape.dimension**0.5
    for _ in range(steps):
        if bool((slope.norm(dim=1) <= goal).all()):
            break
        trial = onto_sphere(w - step[:, None] * slope)
        trial_energy, gradient = landscape.energy_and_gradient(trial)
        trial_slope = tangent_part(gradient, trial)
        # where the promised decrease is too small to be seen in the energy, a smaller gradient must do
        promised = _SUFFICIENT * step * slope.square().sum(1)
        flatter = trial_slope.norm(dim=1) < slope.norm(dim=1)
        noise = _ROUNDINGS * torch.finfo(energy.dtype).eps * landscape.dimension
        better = torch.where(
            promised > noise, trial_energy <= energy - promised, flatter & (trial_energy <= energy + noise)
        )
        w, slope = torch.where(better[:, None], trial, w), torch.where(better[:, None], trial_slope, slope)
        energy = torch.where(better, torch.minimum(trial_energy, energy), energy)
        step = torch.where(better, 1.5 * step, 0.5 * step)
        history.append(energy)
    norms = slope.norm(dim=1)
    return Descent(w, norms, torch.stack(history), norms <= goal)
