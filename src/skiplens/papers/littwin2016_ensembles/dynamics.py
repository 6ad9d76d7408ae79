"""What one gradient step does to scales and norms, and so to depth (Littwin & Wolf 2016, theorems 3 and 4, corrected).

A study compares these predictions with what autograd measures. They say how a scale moves, not that the network gets
deeper: in networks with batch norm the measured depth fell while scales grew.
"""

import torch
from torch import Tensor

from skiplens.base import Float, InvalidInputError, refuse_if
from skiplens.papers.littwin2016_ensembles.spin_glass.hamiltonian import SpinGlass
from skiplens.paths.weights import check_positive
from skiplens.readings.reading import Provenance
from skiplens.report.during_training.depth_reading import DepthHistory

Gradient = Float[Tensor, " params"]


def layer_scale_increment(
    short: Gradient, long: Gradient, layer_scale: float, learning_rate: float, skipped: bool
) -> Float[Tensor, ""]:
    """|λ_new| − |λ| after one step on the weights and then one on λ, up to O(μ³) (theorem 3).

    g_m and g_p are the gradients of the parts of short and of long paths (eq. 21). For a layer that no path skips:
    μ² ‖g_m + g_p‖²/|λ|, if L_m + L_p = 0, never negative. For a layer that the short paths skip: μ² (g_m·g_p +
    ‖g_p‖²)/|λ|, if L_p = 0; ‖g_p‖ > ‖g_m‖ is enough for growth, not needed.
    """
    refuse_if(layer_scale == 0, "The layer's scale must not be 0: its sign, and so its growth, is undefined there.")
    total = short + long
    drive = total @ (long if skipped else total)
    return learning_rate**2 * drive / abs(layer_scale)


def branch_scale_slope(
    gradients: Float[Tensor, "lengths params"],
    lengths: Float[Tensor, " rows"],
    branch_scale: float,
    learning_rate: float,
) -> Float[Tensor, ""]:
    """dL/dC after one step w − μg, if it was 0 before, up to O(μ²) (theorem 4 for any mixture of path lengths).

    −(μ/C) Σ_{r,r'} r g_r·g_{r'}; negative means that the weight scale C is driven up. For two lengths it is the
    paper's eq. 25; the line printed as eq. 45 is wrong. Row g_r is the gradient of the part of the loss that is
    homogeneous of degree r.
    """
    check_positive(branch_scale, "The branch scale")
    return -learning_rate / branch_scale * scale_drive(gradients, lengths)


def scale_drive(gradients: Float[Tensor, "lengths params"], lengths: Float[Tensor, " rows"]) -> Float[Tensor, ""]:
    """Σ_{r,r'} r g_r·g_{r'}, positive if the step drives the weight scale up.

    The form is indefinite: for two lengths m < p with opposed gradients g_p = −κ g_m it is (1−κ)(m−pκ)‖g_m‖², negative
    exactly for m/p < κ < 1.
    """
    if gradients.ndim != 2 or lengths.shape != gradients.shape[:1]:
        raise InvalidInputError(
            f"Gradients must have one row for each path length; got shape {tuple(gradients.shape)} for lengths of "
            f"shape {tuple(lengths.shape)}."
        )
    return (lengths.to(gradients) @ gradients) @ gradients.sum(0)


def spin_glass_depth(
    glass: SpinGlass, start: Float[Tensor, " spins"], learning_rate: float, steps: int, every: int = 1
) -> DepthHistory:
    """Gradient descent on L(w) = H(w) without the sphere: which orders carry the loss as the weights grow.

    Order r is homogeneous of degree r, so a weight scale C = ‖w‖/√Λ gives it the variance ε_r² C^{2r}: that is the
    history's energy, and its depth grows with C. The loss has no lower bound; a run that leaves the numbers ends.
    There are `every` steps between two looks; the start and the end are looked at too.
    """
    if start.shape != (glass.dimension,):
        raise InvalidInputError(
            f"The start has shape {tuple(start.shape)}; wanted one point of {glass.dimension} spins, "
            f"({glass.dimension},)."
        )
    if not 0 < learning_rate < float("inf") or steps < 1 or every < 1:
        raise InvalidInputError(
            f"learning_rate={learning_rate}, steps={steps}, every={every}; all of them must be above 0."
        )
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
    leaf = point.detach().clone().requires_grad_()
    energies = glass.energy_by_order(leaf[None])[0]
    gradients = torch.stack([torch.autograd.grad(part, leaf, retain_graph=True)[0] for part in energies])
    parts = energies.detach()
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
