"""Which parameters a branch's output is proportional to: what to multiply in order to scale the branch."""

from torch import fx

from skiplens.lenses.signal.factors import factor_at
from skiplens.residual import ResidualBlock, ResidualNetwork
from skiplens.residual.flow import DataFlow
from skiplens.residual.operations import CROPPING, DROPPING, POOLING, REARRANGING, operation

_SCALED_WITH_THEIR_INPUT = (
    REARRANGING | CROPPING | POOLING | DROPPING | {"aten.relu", "aten.leaky_relu", "aten.neg", "aten.div"}
)
_GATES = {"aten.sigmoid", "aten.hardsigmoid", "aten.softmax", "aten._softmax", "aten.tanh"}


def output_parameters(network: ResidualNetwork, flow: DataFlow, block: ResidualBlock) -> tuple[str, ...]:
    """Parameters such that multiplying all of them by c > 0 multiplies what the branch adds by c; empty if unknown.

    These are the weight and the bias of the last layer, or scale and shift of a normalisation that comes last.
    """
    found: set[str] = set()
    for addition in block.additions:
        source = network.node(addition.node).args[addition.branch_arguments[0]]
        names = _above(flow, source, block) if isinstance(source, fx.Node) else None
        if not names:
            return ()
        found |= names
    return tuple(sorted(found))


def _above(flow: DataFlow, node: fx.Node, block: ResidualBlock) -> set[str] | None:
    """The parameters of the last layer above `node`; None where the way there is not proportional to them."""
    if node.name not in block.branch.nodes:
        return None
    if factor_at(flow, node) is not None:
        return set(flow.parameters[flow.number[node]])
    kind, sources = operation(node), [flow.nodes[number] for number in flow.sources[flow.number[node]]]
    if kind in _SCALED_WITH_THEIR_INPUT:
        return _above(flow, sources[0], block)
    if kind == "aten.mul":  # of a signal and its gate, the signal carries the scale
        signals = [source for source in sources if operation(source) not in _GATES]
        return _above(flow, signals[0], block) if len(signals) == 1 else None
    if kind in ("aten.add", "aten.sub"):
        parts = [_above(flow, source, block) for source in sources]
        return None if any(part is None for part in parts) else set().union(*(part or set() for part in parts))
    return None
