"""Depth during gradient descent on a spin-glass loss, whose weights are free to grow."""

import torch
from torch import Tensor

from skiplens.core.axes import Float
from skiplens.core.errors import InvalidInputError
from skiplens.readings.depth_history import DepthHistory
from skiplens.readings.provenance import Provenance
from skiplens.theory.depth_dynamics import scale_drive
from skiplens.theory.spin_glass import SpinGlass


def spin_glass_depth(
    glass: SpinGlass, start: Float[Tensor, " spins"], learning_rate: float, steps: int, every: int = 1
) -> DepthHistory:
    """Gradient descent on L(w) = H(w) without the sphere: which orders carry the loss as the weights grow.

    Order r is homogeneous of degree r, so a weight scale C = ‖w‖/√Λ gives it the variance ε_r² C^{2r}: that is the
    history's energy, and its depth grows with C. The loss has no lower bound; a run that leaves the numbers ends.

    Args:
        glass: The loss.
        start: Where to start.
        learning_rate: Size of each step.
        steps: How many steps.
        every: Steps between two looks; the start and the end are looked at too.
    """
    _check(glass, start, learning_rate, steps, every)
    settings = {"spins": glass.dimension, "order": glass.mixture.order, "learning_rate": learning_rate, "steps": steps}
    clock = Provenance.begin(settings, None, start.device)
    point, rows, outcome = start.detach().clone(), list[DepthHistory](), "finished"
    for step in range(steps + 1):
        if step % every == 0 or step == steps:
            rows.append(_moment(glass, point, learning_rate, step))
        if step < steps:
            point = point - learning_rate * glass.gradient(point[None])[0]
        if not bool(torch.isfinite(point).all()):
            outcome = f"diverged after {step + 1} steps"
            break
    return DepthHistory.joined(rows, outcome=outcome, provenance=clock.end())


def _moment(glass: SpinGlass, point: Tensor, learning_rate: float, step: int) -> DepthHistory:
    lengths = torch.arange(1, glass.mixture.order + 1, dtype=torch.float64, device=point.device)
    parts, gradients = _by_order(glass, point)
    moved = point - learning_rate * gradients.sum(0)
    slope, after = glass.gradient(point[None])[0], glass.gradient(moved[None])[0]
    radial, scale = point @ slope, float(point.norm()) / glass.dimension**0.5
    predicted = lengths.to(parts) @ parts
    growth = learning_rate**2 * slope.square().sum() - 2 * learning_rate * predicted
    variances = glass.mixture.squares.to(point) * scale ** (2 * lengths.to(point))
    return DepthHistory(
        of="energy",
        steps=torch.tensor([step]),
        losses=parts.sum()[None],
        energy=torch.cat([variances.new_zeros(1), variances])[None],
        coherent_depth=(predicted / parts.sum())[None],
        laws=("",),
        weight_scale=point.new_tensor([scale]),
        radial_slope=predicted[None],
        radial_slope_measured=radial[None],
        norm_change=growth[None],
        norm_change_measured=(moved.square().sum() - point.square().sum())[None],
        scale_drive=scale_drive(gradients, lengths)[None],
        scale_drive_measured=((radial - moved @ after) / learning_rate)[None],
        learning_rate=learning_rate,
    )


def _by_order(glass: SpinGlass, point: Tensor) -> tuple[Tensor, Tensor]:
    """The part of the loss of each order and its gradient."""
    leaf = point.detach().clone().requires_grad_()
    parts = glass.energy_by_order(leaf[None])[0]
    rows = [torch.autograd.grad(part, leaf, retain_graph=True)[0] for part in parts]
    return parts.detach(), torch.stack(rows)


def _check(glass: SpinGlass, start: Tensor, learning_rate: float, steps: int, every: int) -> None:
    if start.shape != (glass.dimension,):
        raise InvalidInputError(
            f"The start has shape {tuple(start.shape)}; wanted one point of {glass.dimension} spins, "
            f"({glass.dimension},)."
        )
    if not 0 < learning_rate < float("inf") or steps < 1 or every < 1:
        raise InvalidInputError(
            f"learning_rate={learning_rate}, steps={steps}, every={every}; all of them must be above 0."
        )
