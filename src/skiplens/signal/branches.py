"""The state of each branch that can be read off its parameters, without running it."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, fx

from skiplens.base.axes import Float, Int
from skiplens.graph.blocks import ResidualBlock
from skiplens.graph.flow import DataFlow, Nodes, members, union
from skiplens.graph.network import ResidualNetwork
from skiplens.graph.operations import CROPPING, DROPPING, MATRIX_PRODUCTS, NORMALISING, POOLING, REARRANGING, operation
from skiplens.zoo.weight_laws import fans

Names = tuple[str, ...]


@dataclass(frozen=True)
class BranchState:
    """What `SignalReading` says of one branch under the same names."""

    norm_scale: float
    weight_norm: float
    zero_factors: int
    width: int
    normalised: bool
    matrices: Names
    scales: Names
    shifts: Names
    output_parameters: Names


def branch_states(network: ResidualNetwork) -> list[BranchState]:
    """The state of each block's branch, in execution order."""
    flow = DataFlow(network.exported)
    return [_state(network, flow, block) for block in network.blocks]


def column(states: list[BranchState], name: str) -> Float[Tensor, " blocks"]:
    """One number of each state, as floats."""
    return torch.tensor([float(getattr(state, name)) for state in states], dtype=torch.float64)


def counts(states: list[BranchState], name: str) -> Int[Tensor, " blocks"]:
    """One count of each state."""
    return torch.tensor([int(getattr(state, name)) for state in states], dtype=torch.int64)


def _state(network: ResidualNetwork, flow: DataFlow, block: ResidualBlock) -> BranchState:
    factors = factors_of(flow, block, network)
    values = network.run([factor.value for factor in factors])
    matrices = [factor for factor in factors if factor.is_matrix]
    weights = tuple(name for name in _names(matrices) if network.model.get_parameter(name).ndim > 1)
    scales = tuple(name for name in _names(factors) if name not in weights)
    sizes = [float(values[factor.value].detach().double().square().sum()) for factor in matrices]
    return BranchState(
        norm_scale=_norm_scale(flow, factors, values),
        weight_norm=math.sqrt(sum(sizes) / len(sizes)) if sizes else math.nan,
        zero_factors=zero_factors(flow, factors, block, values),
        width=min((_outputs(flow, factor) for factor in matrices), default=0),
        normalised=any(operation(network.node(name)) in NORMALISING for name in block.branch.nodes),
        matrices=weights,
        scales=scales,
        shifts=tuple(name for name in block.branch.parameters if name not in {*weights, *scales}),
        output_parameters=output_parameters(network, flow, block),
    )


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


def _names(factors: list[Factor]) -> Names:
    return tuple(dict.fromkeys(name for factor in factors for name in factor.parameters))


def _norm_scale(flow: DataFlow, factors: list[Factor], values: dict[str, Tensor]) -> float:
    scales = [
        float(values[factor.value].detach().double().abs().mean())
        for factor in factors
        if "batch_norm" in flow.operation(factor.number)
    ]
    return scales[-1] if scales else math.nan


def _outputs(flow: DataFlow, factor: Factor) -> int:
    """Channels after a convolution, features after a matrix."""
    shape = flow.shape(factor.number)
    return shape[1] if "conv" in flow.operation(factor.number) else shape[-1]


NEAR_ZERO = 0.02
"""Weights this small, relative to Xavier's, count as zero; 'Demystifying ResNet' starts its networks at 0.01."""


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


_SCALED_WITH_THEIR_INPUT = (
    REARRANGING | CROPPING | POOLING | DROPPING | {"aten.relu", "aten.leaky_relu", "aten.neg", "aten.div"}
)

_GATES = {"aten.sigmoid", "aten.hardsigmoid", "aten.softmax", "aten._softmax", "aten.tanh"}


def output_parameters(network: ResidualNetwork, flow: DataFlow, block: ResidualBlock) -> tuple[str, ...]:
    """Parameters such that multiplying all of them by c > 0 multiplies what the branch adds by c; empty if unknown.

    These are the weight and the bias of the last layer, or scale and shift of a normalisation that comes last.
    """
    last: Nodes = 0
    for addition in block.additions:
        source = network.node(addition.node).args[addition.branch_arguments[0]]
        found = _last_layers(flow, source, block) if isinstance(source, fx.Node) else 0
        if not found:
            return ()
        last |= found
    return tuple(sorted({name for number in members(last) for name in flow.parameters[number]}))


def _last_layers(flow: DataFlow, node: fx.Node, block: ResidualBlock) -> Nodes:
    """The last layers above `node` to which it is proportional; nothing where it is proportional to none."""
    if node.name not in block.branch.nodes:
        return 0
    if factor_at(flow, node) is not None:
        return 1 << flow.number[node]
    kind, sources = operation(node), [flow.nodes[number] for number in flow.sources[flow.number[node]]]
    if kind in _SCALED_WITH_THEIR_INPUT:
        return _last_layers(flow, sources[0], block)
    if kind == "aten.mul":
        return _of_product(flow, sources, block)
    if kind in ("aten.add", "aten.sub"):
        parts = [_last_layers(flow, source, block) for source in sources]
        return 0 if 0 in parts else union(parts)
    return 0


def _is_gate(flow: DataFlow, node: fx.Node) -> bool:
    """Whether a value comes from a gating function, perhaps reshaped."""
    while operation(node) in REARRANGING | CROPPING:
        node = flow.nodes[flow.sources[flow.number[node]][0]]
    return operation(node) in _GATES


def _of_product(flow: DataFlow, sources: list[fx.Node], block: ResidualBlock) -> Nodes:
    """Of a signal and its gate the signal carries the scale, unless the gate feels it too."""
    gates = [source for source in sources if _is_gate(flow, source)]
    signals = [source for source in sources if source not in gates]
    found = _last_layers(flow, signals[0], block) if len(signals) == 1 else 0
    feels = any(flow.above[flow.number[gate]] & found for gate in gates)
    return 0 if feels else found
