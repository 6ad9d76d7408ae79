"""Which parameters a branch's output is proportional to: what to multiply in order to scale the branch."""

from torch import fx

from skiplens.lenses.signal.factors import factor_at
from skiplens.residual import ResidualBlock, ResidualNetwork
from skiplens.residual.flow import DataFlow, Nodes, members, union
from skiplens.residual.operations import CROPPING, DROPPING, POOLING, REARRANGING, operation

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
