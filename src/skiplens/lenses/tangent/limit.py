"""The infinitely wide network of an architecture, where theory knows it: fully connected residual ReLU networks."""

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.readings import SignalReading
from skiplens.residual import ResidualNetwork
from skiplens.residual.operations import REARRANGING, SCALING, operation
from skiplens.theory.infinite_width.arc_cosine import correlation_of_angle
from skiplens.theory.infinite_width.resnet import ResNetLimit

KNOWN = {"aten.linear", "aten.mm", "aten.matmul", "aten.addmm", "aten.add", "aten.relu", *SCALING, *REARRANGING}
"""Operations of the networks of 'Residual Tangent Kernels'."""


def limit_of(network: ResidualNetwork, reading: SignalReading) -> ResNetLimit | None:
    """The limit with the measured size of each branch; None for any other architecture."""
    depths = {block.branch_depth for block in network.blocks}
    kinds = {block.shortcut.kind for block in network.blocks}
    nested = any(block.parent is not None for block in network.blocks)
    if len(depths) != 1 or kinds != {"identity"} or nested or not _is_known(network, *depths):
        return None
    scales = reading.branch_ratios.square()
    if not bool((scales.isfinite() & (scales > 0)).all()):
        return None
    return ResNetLimit(scales, depths.pop())


def limit_correlations(
    limit: ResNetLimit, angles: Float[Tensor, "samples samples"]
) -> Float[Tensor, "samples samples"]:
    """The tangent kernel of the limit over its value at equal inputs, for inputs at these angles."""
    kernel = limit.recursion(correlation_of_angle(angles.double())).ntk
    return kernel / limit.at_equal_inputs().ntk


def _is_known(network: ResidualNetwork, branch_depth: int) -> bool:
    """Whether blocks have a ReLU between each two matrices and nothing else is there, without biases."""
    calls = [node for node in network.graph.nodes if node.op == "call_function"]
    rectified = [node for node in calls if operation(node) == "aten.relu"]
    inputs = {block.input for block in network.blocks}
    inside = {name for block in network.blocks for name in block.branch.nodes}
    between = all(node.name in inside and node.args[0].name not in inputs for node in rectified)
    counted = len(rectified) == len(network.blocks) * (branch_depth - 1)
    vectors = [p for p in network.model.parameters() if p.ndim < 2]
    unbiased = not any(bool(p.detach().any()) for p in vectors)
    return between and counted and unbiased and all(operation(node) in KNOWN for node in calls)


def is_vectors(inputs: object) -> bool:
    """Whether inputs are one floating vector for each sample."""
    return isinstance(inputs, torch.Tensor) and inputs.ndim == 2 and inputs.is_floating_point()
