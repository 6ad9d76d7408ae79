"""How much memory a stack of coefficients takes on its way through the graph."""

from collections.abc import Iterable

import torch
from torch import fx

from skiplens.derivatives.polynomial.joins import branch_arguments
from skiplens.derivatives.polynomial.plan import Plan
from skiplens.derivatives.polynomial.step import at_slot

_TEMPORARIES = 2  # an operation's padded arguments live beside its result


def highest_orders(plan: Plan) -> dict[fx.Node, int]:
    """The most branches that a path to each carried node can pass."""
    branches = branch_arguments(plan.network)
    orders: dict[fx.Node, int] = {}
    for node in sorted(plan.needed):
        _, positions = branches.get(node.name, (0, ()))
        arrived = (orders[at_slot(node.args, slot)] + (slot[0] in positions) for slot in plan.fates[node].slots)
        orders[node] = max(arrived, default=0)
    return orders


def peak_bytes(plan: Plan, most: int | None = None) -> int:
    """Bytes of all values and stacks that live at once, at the worst moment of a forward pass."""
    orders = highest_orders(plan)
    steps = [node for node in plan.network.graph.nodes if node in plan.needed]
    last_reader = {source: node for node in steps for source in node.all_input_nodes}
    live, peak = dict[fx.Node, int](), 0
    for node in steps:
        kept = orders[node] if most is None else min(orders[node], most)
        live[node] = _bytes(node) * (kept + 2)
        peak = max(peak, sum(live.values()) + _TEMPORARIES * live[node])
        for source in _finished(node, last_reader):
            live.pop(source, None)
    return peak


def all_bytes(plan: Plan) -> int:
    """Bytes of all values that a backward pass keeps."""
    return sum(_bytes(node) for node in plan.needed)


def _finished(node: fx.Node, last_reader: dict[fx.Node, fx.Node]) -> Iterable[fx.Node]:
    return [source for source in node.all_input_nodes if last_reader.get(source) is node]


def _bytes(node: fx.Node) -> int:
    value = node.meta.get("val")
    tensors = value if isinstance(value, list | tuple) else (value,)
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors if isinstance(tensor, torch.Tensor))
