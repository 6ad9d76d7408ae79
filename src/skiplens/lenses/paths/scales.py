"""The learned scale of each block, and the scale of its weights."""

import torch
from torch import Tensor, fx

from skiplens.core.axes import Float
from skiplens.residual import ResidualNetwork
from skiplens.residual.block import ResidualBlock
from skiplens.residual.operations import NORMALISING, operation


def block_scales(network: ResidualNetwork) -> Float[Tensor, " blocks"]:
    """λ_l: root mean square of the last normalisation's weight, or learned factor, in each branch; NaN without one."""
    return torch.tensor([_scale(network, block) for block in network.blocks], dtype=torch.float64)


def weight_scale(network: ResidualNetwork) -> float:
    """C: root mean square of all entries of all matrices in branches; NaN if there are none."""
    names = dict.fromkeys(name for block in network.blocks for name in block.branch.parameters)
    tensors = [network.model.get_parameter(name).detach() for name in names]
    matrices = [tensor.double() for tensor in tensors if tensor.ndim > 1]
    count = sum(matrix.numel() for matrix in matrices)
    total = sum(float(matrix.square().sum()) for matrix in matrices)
    return (total / count) ** 0.5 if count else float("nan")


def _scale(network: ResidualNetwork, block: ResidualBlock) -> float:
    for name in reversed(block.branch.nodes):
        factor = _factor(network, network.node(name))
        if factor is not None:
            return float(network.model.get_parameter(factor).detach().double().square().mean().sqrt())
    return float("nan")


def _factor(network: ResidualNetwork, node: fx.Node) -> str | None:
    """The parameter by which an operation multiplies each channel, if it does; its shift comes later in the call."""
    if operation(node) not in NORMALISING and operation(node) != "aten.mul":
        return None
    for argument in node.args:
        name = network.exported.parameters.get(argument.name) if isinstance(argument, fx.Node) else None
        if name is not None and _is_vector(network.model.get_parameter(name)):
            return name
    return None


def _is_vector(parameter: Tensor) -> bool:
    return parameter.numel() == max(parameter.shape, default=1)
