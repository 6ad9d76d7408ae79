"""What a branch multiplies its signal by: weight matrices and elementwise scales, and those of them that are zero."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import fx

from skiplens.core.axes import Tensor
from skiplens.residual import ResidualBlock, ResidualNetwork
from skiplens.residual.flow import DataFlow, union
from skiplens.residual.initialisation import fans
from skiplens.residual.operations import MATRIX_PRODUCTS, NORMALISING, operation

NEAR_ZERO = 0.02
"""Weights this small, relative to Xavier's, count as zero; 'Demystifying ResNet' starts its networks at 0.01."""


@dataclass(frozen=True)
class Factor:
    """One multiplication of the signal by something made of parameters.

    Attributes:
        number: Number of the operation in the data flow.
        value: Node of the matrix or of the scale.
        is_matrix: Whether it is a weight matrix (or a convolution); otherwise it scales each entry.
        parameters: The parameters that the value is made of.
    """

    number: int
    value: str
    is_matrix: bool
    parameters: tuple[str, ...]


def factors_of(flow: DataFlow, block: ResidualBlock, network: ResidualNetwork) -> list[Factor]:
    """The factors of a block's branch in execution order."""
    nodes = (network.node(name) for name in block.branch.nodes)
    return [factor for node in nodes if (factor := factor_at(flow, node)) is not None]


def factor_at(flow: DataFlow, node: fx.Node) -> Factor | None:
    """The factor that an operation multiplies by, if it multiplies by parameters."""
    kind = operation(node)
    is_matrix = kind in MATRIX_PRODUCTS
    if not is_matrix and kind not in NORMALISING and kind != "aten.mul":
        return None
    for source in _constants(flow, node):
        value = source.meta.get("val")
        if isinstance(value, torch.Tensor) and (value.ndim > 1 or not is_matrix):
            number = flow.number[source]
            return Factor(flow.number[node], source.name, is_matrix, tuple(sorted(flow.parameters[number])))
    return None


def zero_factors(flow: DataFlow, factors: list[Factor], block: ResidualBlock, values: Mapping[str, Tensor]) -> int:
    """How many factors of the branch, in series, are zero or nearly so."""
    zero = {factor.number for factor in factors if is_near_zero(values[factor.value], factor.is_matrix)}
    branch = union(1 << flow.number[node] for node in flow.nodes if node.name in set(block.branch.nodes))
    return flow.longest(branch, zero.__contains__)


def is_near_zero(value: Tensor, is_matrix: bool) -> bool:
    """Whether a matrix is below 2 % of Xavier's size, or a scale below 2 % of one."""
    size = float(value.detach().double().square().mean().sqrt())
    if not is_matrix:
        return size < NEAR_ZERO
    inputs, outputs = fans(value.shape)
    return size < NEAR_ZERO * math.sqrt(2 / (inputs + outputs))


def _constants(flow: DataFlow, node: fx.Node) -> Iterator[fx.Node]:
    """What an operation reads that is made of parameters alone, in the order of its arguments."""
    for source in node.all_input_nodes:
        number = flow.number[source]
        if not flow.above[number] and flow.parameters[number]:
            yield source
