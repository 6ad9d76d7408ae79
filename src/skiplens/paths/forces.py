"""What drives the scales of a network's branches: as the theory of paths predicts it, and as it is.

Theorems 3 and 4 of Littwin & Wolf 2016 in the form of our notes, for any network: with ∂L/∂Y and the operating point
frozen the loss is a sum over paths, L_p the part through a block and g_p its gradient. What is measured beside it knows
nothing of paths: gradients by autograd before and after one plain step.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, fx

from skiplens.base import Float, InvalidInputError
from skiplens.graph.network import ResidualNetwork, plain_call
from skiplens.graph.operations import NORMALISING, operation
from skiplens.paths.backward import weight_paths
from skiplens.paths.forward import BlockDerivatives, expand_signal
from skiplens.paths.lesions import Loss
from skiplens.paths.plan import branch_arguments, frozen_plan
from skiplens.paths.step import padded, with_slots


@dataclass(frozen=True, eq=False)
class Force:
    """One quantity twice."""

    predicted: Tensor
    measured: Tensor


@dataclass(frozen=True, eq=False)
class DepthForces:
    """The forces at one point; see the attributes of the same names of `DepthHistory`."""

    loss: float
    block_slope: Force  # ⟨∂L/∂Y, paths through block l⟩ beside ∂L/∂τ_l, for a factor τ_l of each branch
    block_drive: Force  # theorem 3
    radial_slope: Force  # Euler's identity
    norm_change: Force  # of ‖W‖² in the step
    scale_drive: Force  # theorem 4


def depth_forces(network: ResidualNetwork, targets: Tensor, loss: Loss, learning_rate: float) -> DepthForces:
    """The predicted and the measured forces of one plain gradient step on the matrices of all branches."""
    if not (learning_rate > 0 and learning_rate < float("inf")):
        raise InvalidInputError(f"learning_rate={learning_rate}; a step needs a size above 0.")
    gated = GatedLoss(network, targets, loss)
    here = gated.slopes(gated.weights)
    stepped = {name: w - learning_rate * here.weights[name] for name, w in gated.weights.items()}
    there = gated.slopes(stepped)
    matrices = torch.tensor([float(block.branch_depth) for block in network.blocks], dtype=torch.float64)
    slope, drive = _path_forces(network, here)
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


@dataclass(frozen=True, eq=False)
class Slopes:
    """The loss at one point and its derivatives with respect to the output, the branches and their matrices."""

    loss: Tensor
    output: Tensor
    blocks: Float[Tensor, " blocks"]  # with respect to a factor of each branch, at one
    weights: dict[str, Tensor]  # by name


def _path_forces(network: ResidualNetwork, here: Slopes) -> tuple[Tensor, Tensor]:
    """For each block ⟨∂L/∂Y, sum of all paths through it⟩ and g·g_p, g_p the gradient of what that sum adds to L."""
    blocks = len(network.blocks)
    plan = frozen_plan(network, network.node(network.output))
    through = padded(expand_signal(plan, BlockDerivatives()), blocks + 1)[1:]
    slopes = (through.double().flatten(1) @ here.output.double().flatten()).cpu()
    drives = torch.zeros(blocks, dtype=torch.float64)
    for name, stack in weight_paths(network, here.weights, here.output, BlockDerivatives()):
        entries = padded(stack, blocks + 1)[1:].double().flatten(1)
        drives += (entries @ here.weights[name].double().flatten()).cpu()
    return slopes, drives


def _inner(left: dict[str, Tensor], right: dict[str, Tensor]) -> Float[Tensor, ""]:
    zero = torch.zeros((), dtype=torch.float64)
    return sum(((left[name].double() * right[name].double()).sum().cpu() for name in left), zero)


@dataclass(frozen=True, eq=False)
class GatedLoss:
    """The loss on the inputs that a network was taken apart with."""

    network: ResidualNetwork
    targets: Tensor
    loss: Loss

    @cached_property
    def weights(self) -> dict[str, Tensor]:
        """The matrices of all branches, by their full names."""
        return _branch_matrices(self.network)

    def slopes(self, weights: dict[str, Tensor]) -> Slopes:
        """The derivatives where the matrices have other values; the model is not changed."""
        leaves = {name: tensor.detach().requires_grad_() for name, tensor in weights.items()}
        placeholders = {name: node for node, name in self.network.exported.parameters.items()}
        like = next(iter(leaves.values()), self.targets)
        gates = torch.ones(len(self.network.blocks), dtype=like.dtype, device=like.device, requires_grad=True)
        branches = branch_arguments(self.network)

        def call(node: fx.Node, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
            """An operation as it is, but with each branch times its gate."""
            if node.name in branches:
                block, (first, *_) = branches[node.name]
                # additions are linear in this argument
                arguments = with_slots(arguments, {(first,): arguments[first] * gates[block]})
            return plain_call(node, arguments, keywords)

        with torch.enable_grad():
            given = {placeholders[name]: leaf for name, leaf in leaves.items()}
            name = self.network.output
            output = self.network.run([name], given=given, call=call)[name]
            loss = self.loss(output, self.targets)
        found = torch.autograd.grad(loss, [output, gates, *leaves.values()], allow_unused=True, materialize_grads=True)
        return Slopes(loss.detach(), found[0], found[1], dict(zip(leaves, found[2:], strict=True)))


def _branch_matrices(network: ResidualNetwork) -> dict[str, Tensor]:
    """The parameters of two axes or more of all branches, by their full names."""
    names = dict.fromkeys(name for block in network.blocks for name in block.branch.parameters)
    found = {name: network.model.get_parameter(name).detach() for name in names}
    return {name: tensor for name, tensor in found.items() if tensor.ndim > 1}


def weight_scale(network: ResidualNetwork) -> float:
    """C: root mean square of all entries of all matrices in branches; NaN if there are none."""
    matrices = [matrix.double() for matrix in _branch_matrices(network).values()]
    count = sum(matrix.numel() for matrix in matrices)
    total = sum(float(matrix.square().sum()) for matrix in matrices)
    return (total / count) ** 0.5 if count else float("nan")


def block_scales(network: ResidualNetwork) -> Float[Tensor, " blocks"]:
    """λ_l: root mean square of the last normalisation's weight, or learned factor, in each branch; NaN without one."""
    scales = []
    for block in network.blocks:
        factors = (_channel_factor(network, network.node(name)) for name in reversed(block.branch.nodes))
        last = next((factor for factor in factors if factor is not None), None)
        scales.append(float("nan") if last is None else float(last.detach().double().square().mean().sqrt()))
    return torch.tensor(scales, dtype=torch.float64)


def _channel_factor(network: ResidualNetwork, node: fx.Node) -> Tensor | None:
    """The parameter by which an operation multiplies each channel, if it does; its shift comes later in the call."""
    if operation(node) not in NORMALISING and operation(node) != "aten.mul":
        return None
    named = (network.exported.parameters.get(source.name) for source in node.all_input_nodes)
    read = (network.model.get_parameter(name) for name in named if name is not None)
    # one axis at most is longer than 1
    return next((parameter for parameter in read if parameter.numel() == max(parameter.shape, default=1)), None)
