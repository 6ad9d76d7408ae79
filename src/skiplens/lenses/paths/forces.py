"""What drives the scales of a network's branches: as the theory of paths predicts it, and as it is.

Theorems 3 and 4 of Littwin & Wolf 2016 in the form of our notes, for any network: with ∂L/∂Y and the operating point
frozen the loss is a sum over paths, L_p the part through a block and g_p its gradient. What is measured beside it knows
nothing of paths: gradients by autograd before and after one plain step.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from skiplens.core.axes import Float
from skiplens.core.errors import InvalidInputError
from skiplens.derivatives.polynomial import BlockDerivatives, expand_signal, frozen_plan, weight_paths
from skiplens.derivatives.polynomial.stacks import padded
from skiplens.lenses.paths.gated import GatedLoss, Slopes
from skiplens.lenses.paths.lesions import Loss
from skiplens.residual import ResidualNetwork


@dataclass(frozen=True, eq=False)
class Force:
    """One quantity twice."""

    predicted: Tensor
    measured: Tensor


@dataclass(frozen=True, eq=False)
class DepthForces:
    """The forces at one point; see the attributes of the same names of `DepthHistory`.

    Attributes:
        loss: The loss.
        block_slope: ⟨∂L/∂Y, paths through block l⟩ beside ∂L/∂τ_l, for a factor τ_l of each branch.
        block_drive: Theorem 3.
        radial_slope: Euler's identity.
        norm_change: Change of ‖W‖² in the step.
        scale_drive: Theorem 4.
    """

    loss: float
    block_slope: Force
    block_drive: Force
    radial_slope: Force
    norm_change: Force
    scale_drive: Force


def depth_forces(network: ResidualNetwork, targets: Tensor, loss: Loss, learning_rate: float) -> DepthForces:
    """The predicted and the measured forces of one plain gradient step on the matrices of all branches.

    Args:
        network: The network with the inputs to look at, taken apart.
        targets: What the loss compares the output with.
        loss: `loss(output, targets)`, a scalar.
        learning_rate: Size μ of the step.
    """
    if not (learning_rate > 0 and learning_rate < float("inf")):
        raise InvalidInputError(f"learning_rate={learning_rate}; a step needs a size above 0.")
    gated = GatedLoss(network, targets, loss)
    here = gated.slopes(gated.weights)
    stepped = {name: w - learning_rate * here.weights[name] for name, w in gated.weights.items()}
    there = gated.slopes(stepped)
    matrices = torch.tensor([float(block.branch_depth) for block in network.blocks], dtype=torch.float64)
    slope, drive = _path_slopes(network, here.output), _path_drives(network, here)
    radial, steepness = _inner(gated.weights, here.weights), _inner(here.weights, here.weights)
    return DepthForces(
        loss=float(here.loss),
        block_slope=Force(slope, here.blocks.double().cpu()),
        block_drive=Force(drive, ((here.blocks - there.blocks).double() / learning_rate).cpu()),
        radial_slope=Force(matrices @ slope, radial),
        norm_change=Force(
            learning_rate**2 * steepness - 2 * learning_rate * (matrices @ slope),
            _inner(stepped, stepped) - _inner(gated.weights, gated.weights),
        ),
        scale_drive=Force(matrices @ drive, (radial - _inner(stepped, there.weights)) / learning_rate),
    )


def _path_slopes(network: ResidualNetwork, output_gradient: Tensor) -> Float[Tensor, " blocks"]:
    """⟨∂L/∂Y, sum of all paths through each block⟩."""
    plan = frozen_plan(network, network.node(network.output))
    through = padded(expand_signal(plan, BlockDerivatives()).stack, len(network.blocks) + 1)[1:]
    return (through.double().flatten(1) @ output_gradient.double().flatten()).cpu()


def _path_drives(network: ResidualNetwork, here: Slopes) -> Float[Tensor, " blocks"]:
    """g·g_p of each block, g_p the gradient of what all paths through it add to ⟨∂L/∂Y, Y⟩."""
    total = torch.zeros(len(network.blocks), dtype=torch.float64)
    for one in weight_paths(network, here.weights, here.output, BlockDerivatives()):
        entries = padded(one.stack, len(network.blocks) + 1)[1:].double().flatten(1)
        total += (entries @ here.weights[one.name].double().flatten()).cpu()
    return total


def _inner(left: dict[str, Tensor], right: dict[str, Tensor]) -> Float[Tensor, ""]:
    zero = torch.zeros((), dtype=torch.float64)
    return sum(((left[name].double() * right[name].double()).sum().cpu() for name in left), zero)
