"""Run a part of an exported graph with the live tensors of its model."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import fx

Call = Callable[[fx.Node, tuple[Any, ...], dict[str, Any]], Any]
"""How one operation is carried out: `call(node, arguments, keywords)` returns the value of `node`."""

VIEWS = (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default)


def plain_call(node: fx.Node, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """The value of an operation, as torch computes it; a view is copied where it does not fit the memory order.

    Attention leaves its result in an order that depends on the kernel that ran, which need not be the exported one.
    """
    if node.target in VIEWS:
        return arguments[0].reshape(arguments[1])
    assert callable(node.target), f"{node.op} {node.name} is not an operation"
    return node.target(*arguments, **keywords)


def plan(wanted: Iterable[fx.Node], known: Iterable[fx.Node]) -> list[fx.Node]:
    """The operations needed to compute `wanted` when `known` are given, in execution order."""
    known, needed, pending = set(known), set[fx.Node](), list(wanted)
    while pending:
        node = pending.pop()
        if node not in needed and node not in known:
            needed.add(node)
            pending.extend(node.all_input_nodes)
    return sorted(needed)  # nodes of one graph are ordered by their place in it


def interpret(
    wanted: Iterable[fx.Node], given: Mapping[fx.Node, Any], feed: Callable[[fx.Node], Any], call: Call = plain_call
) -> dict[fx.Node, Any]:
    """The values of `wanted` from those of `given`; a value is let go as soon as nothing needs it any more.

    Args:
        wanted: Nodes whose values are returned.
        given: Values that are taken as they are; what lies only above them is not computed.
        feed: Value of a placeholder that is not given.
        call: How one operation is carried out.
    """
    wanted = list(wanted)
    steps = plan(wanted, given)
    last_reader = {source: node for node in steps for source in node.all_input_nodes}
    values, kept = dict(given), set(wanted)
    for node in steps:
        values[node] = feed(node) if node.op == "placeholder" else _carry_out(node, values, call)
        for source in node.all_input_nodes:
            if last_reader[source] is node and source not in kept:
                values.pop(source, None)
    return {node: values[node] for node in wanted}


def _carry_out(node: fx.Node, values: Mapping[fx.Node, Any], call: Call) -> Any:
    arguments = fx.node.map_arg(node.args, values.__getitem__)
    keywords = fx.node.map_arg(node.kwargs, values.__getitem__)
    return call(node, arguments, keywords)
