"""The loss of a network as a function of its branches' matrices and of a factor for each branch."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, fx

from skiplens.core.axes import Float
from skiplens.derivatives.polynomial.joins import branch_arguments
from skiplens.lenses.paths.lesions import Loss
from skiplens.residual import ResidualNetwork
from skiplens.residual.interpreter import plain_call


@dataclass(frozen=True, eq=False)
class Slopes:
    """Derivatives of the loss at one point.

    Attributes:
        loss: The loss.
        output: By the output.
        blocks: By a factor of each branch, at one.
        weights: By each matrix of the branches, by name.
    """

    loss: Tensor
    output: Tensor
    blocks: Float[Tensor, " blocks"]
    weights: dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class GatedLoss:
    """The loss on the inputs that a network was taken apart with."""

    network: ResidualNetwork
    targets: Tensor
    loss: Loss

    @cached_property
    def weights(self) -> dict[str, Tensor]:
        """The matrices (two axes or more) of all branches, by their full names."""
        names = dict.fromkeys(name for block in self.network.blocks for name in block.branch.parameters)
        found = {name: self.network.model.get_parameter(name).detach() for name in names}
        return {name: tensor for name, tensor in found.items() if tensor.ndim > 1}

    def slopes(self, weights: dict[str, Tensor]) -> Slopes:
        """The derivatives where the matrices have other values; the model is not changed."""
        leaves = {name: tensor.detach().requires_grad_() for name, tensor in weights.items()}
        placeholders = {name: node for node, name in self.network.exported.parameters.items()}
        first = next(iter(leaves.values()), self.targets)
        gates = torch.ones(len(self.network.blocks), dtype=first.dtype, device=first.device, requires_grad=True)
        with torch.enable_grad():
            given = {placeholders[name]: leaf for name, leaf in leaves.items()}
            name = self.network.output
            output = self.network.run([name], given=given, call=self._gating(gates))[name]
            loss = self.loss(output, self.targets)
        found = torch.autograd.grad(loss, [output, gates, *leaves.values()], allow_unused=True, materialize_grads=True)
        return Slopes(loss.detach(), found[0], found[1], dict(zip(leaves, found[2:], strict=True)))

    def _gating(self, gates: Tensor) -> Any:
        branches = branch_arguments(self.network)

        def call(node: fx.Node, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
            if node.name in branches:
                block, positions = branches[node.name]
                changed = list(arguments)
                changed[positions[0]] = changed[positions[0]] * gates[block]  # additions are linear in this argument
                arguments = tuple(changed)
            return plain_call(node, arguments, keywords)

        return call
