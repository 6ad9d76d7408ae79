"""The state of each branch that can be read off its parameters, without running it."""

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor, fx

from skiplens.graph import ResidualBlock, ResidualNetwork
from skiplens.graph.flow import DataFlow, Nodes, members, union
from skiplens.graph.operations import CROPPING, DROPPING, MATRIX_PRODUCTS, NORMALISING, POOLING, REARRANGING, operation
from skiplens.signal.reading import Names
from skiplens.zoo.weight_laws import fans

NEAR_ZERO = 0.02
"""Weights this small, relative to Xavier's, count as zero; 'Demystifying ResNet' starts its networks at 0.01."""


def branch_states(network: ResidualNetwork) -> list[dict[str, Any]]:
    """What `SignalReading` says of each block's branch, by the name of the field, in execution order."""
    flow = DataFlow(network.exported)
    return [_state(network, flow, block) for block in network.blocks]


def _state(network: ResidualNetwork, flow: DataFlow, block: ResidualBlock) -> dict[str, Any]:
    nodes = [network.node(name) for name in block.branch.nodes]
    factors = [factor for node in nodes if (factor := factor_at(flow, node)) is not None]
    values = network.run([factor.value for factor in factors])
    matrices = [factor for factor in factors if factor.is_matrix]
    named = dict.fromkeys(name for factor in matrices for name in factor.parameters)
    weights = tuple(name for name in named if network.model.get_parameter(name).ndim > 1)
    every = dict.fromkeys(name for factor in factors for name in factor.parameters)
    scales = tuple(name for name in every if name not in weights)
    squares = [float(values[factor.value].detach().abs().double().square().sum()) for factor in matrices]
    norms = [factor for factor in factors if "batch_norm" in flow.operation(factor.number)]
    zero = {factor.number for factor in factors if is_near_zero(values[factor.value], factor.is_matrix)}
    branch = union(1 << flow.number[node] for node in flow.nodes if node.name in set(block.branch.nodes))
    return {
        "norm_scales": float(values[norms[-1].value].detach().double().abs().mean()) if norms else math.nan,
        "weight_norms": math.sqrt(sum(squares) / len(squares)) if squares else math.nan,
        "zero_factors": flow.longest(branch, zero.__contains__),
        "widths": _width(flow, network, block, matrices),
        "normalised": any(operation(node) in NORMALISING for node in nodes),
        "matrices": weights,
        "scales": scales,
        "shifts": tuple(name for name in block.branch.parameters if name not in {*weights, *scales}),
        "output_parameters": output_parameters(network, flow, block),
    }


@dataclass(frozen=True)
class Factor:
    """One multiplication of the signal, at an operation of the data flow, by something made of parameters."""

    number: int  # of the operation
    value: str  # node of the matrix or of the scale
    is_matrix: bool  # or a convolution; otherwise it scales each entry
    parameters: Names


def factor_at(flow: DataFlow, node: fx.Node) -> Factor | None:
    """The factor that an operation multiplies by, if it multiplies by parameters."""
    kind = operation(node)
    is_matrix = kind in MATRIX_PRODUCTS
    if not is_matrix and kind not in NORMALISING and kind != "aten.mul":
        return None
    for source in node.all_input_nodes:
        value, number = source.meta.get("val"), flow.number[source]
        made_of_parameters_alone = flow.parameters[number] and not flow.above[number]
        if made_of_parameters_alone and isinstance(value, Tensor) and (value.ndim > 1 or not is_matrix):
            return Factor(flow.number[node], source.name, is_matrix, tuple(sorted(flow.parameters[number])))
    return None


def _width(flow: DataFlow, network: ResidualNetwork, block: ResidualBlock, matrices: list[Factor]) -> int:
    """Fewest outputs of a matrix on the widest way through the branch.

    Beside it a low-rank adapter, a router, scores or a squeeze may be narrower.
    """
    outputs = {factor.number: _outputs(flow, factor) for factor in matrices}
    widths = dict[int, float]()
    for number in sorted(flow.number[network.node(name)] for name in block.branch.nodes):
        carried = max((widths.get(source, math.inf) for source in flow.sources[number]), default=math.inf)
        decides = flow.operation(number) in _GATES | _CHOOSING
        widths[number] = min(carried or math.inf, outputs[number]) if number in outputs else 0 if decides else carried
    sides = [network.node(a.node).args[place] for a in block.additions for place in a.branch_arguments]
    found = [widths.get(flow.number[side], 0) for side in sides if isinstance(side, fx.Node)]
    known = [int(width) for width in found if 0 < width < math.inf]
    return max(known) if known else min(outputs.values(), default=0)


def _outputs(flow: DataFlow, factor: Factor) -> int:
    """Channels after a convolution, features after a matrix."""
    node, shape = flow.nodes[factor.number], flow.shape(factor.number)
    kind, place = operation(node), [source.name for source in node.all_input_nodes].index(factor.value)
    if kind == "aten.einsum":
        read, _, made = str(node.args[0]).replace(" ", "").partition("->")
        own = read.split(",")[place]
        return math.prod(size for axis, size in zip(made, shape, strict=False) if axis in own and read.count(axis) == 1)
    left = not place and kind in ("aten.mm", "aten.bmm", "aten.matmul") and len(shape) > 1
    return shape[1 if "conv" in kind else -2 if left else -1]


def is_near_zero(value: Tensor, is_matrix: bool) -> bool:
    """Whether a matrix is below 2 % of Xavier's size √(2/(inputs + outputs)), or a scale below 2 % of one."""
    size = float(value.detach().abs().double().square().mean().sqrt())
    return size < NEAR_ZERO * (math.sqrt(2 / sum(fans(value.shape))) if is_matrix else 1)


_HOMOGENEOUS = {"aten.relu", "aten.leaky_relu", "aten.neg", "aten.div"}
_SCALED_WITH_THEIR_INPUT = REARRANGING | CROPPING | POOLING | DROPPING | _HOMOGENEOUS
_CHOOSING = {"aten.topk", "aten.sort", "aten.argsort", "aten.histc", "aten.one_hot"}
_GATES = {"aten.sigmoid", "aten.hardsigmoid", "aten.softmax", "aten._softmax", "aten.tanh"}


def output_parameters(network: ResidualNetwork, flow: DataFlow, block: ResidualBlock) -> Names:
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
        # Of a signal and its gate the signal carries the scale, unless the gate feels it too.
        gates = [source for source in sources if _is_gate(flow, source)]
        signals = [source for source in sources if source not in gates]
        found = _last_layers(flow, signals[0], block) if len(signals) == 1 else 0
        return 0 if any(flow.above[flow.number[gate]] & found for gate in gates) else found
    if kind in ("aten.add", "aten.sub"):
        parts = [_last_layers(flow, source, block) for source in sources]
        return 0 if 0 in parts else union(parts)
    return 0


def _is_gate(flow: DataFlow, node: fx.Node) -> bool:
    """Whether a value comes from a gating function, perhaps reshaped."""
    while operation(node) in REARRANGING | CROPPING:
        node = flow.nodes[flow.sources[flow.number[node]][0]]
    return operation(node) in _GATES
