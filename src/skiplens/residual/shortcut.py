"""Which kind of shortcut a part of the graph is."""

from typing import Literal

from skiplens.residual.block import ShortcutKind
from skiplens.residual.flow import DataFlow, Nodes, members
from skiplens.residual.operations import (
    ATTENTION,
    CONVOLUTIONS,
    CROPPING,
    DROPPING,
    MATRIX_PRODUCTS,
    NORMALISING,
    POOLING,
    REARRANGING,
    SCALING,
    drops_at_random,
)

Role = Literal["rearranges", "crops", "pools", "projects", "normalises", "scales", "bends"]

_FIXED: set[Role] = {"rearranges", "crops", "pools", "scales"}
_LINEAR: set[Role] = {*_FIXED, "projects", "normalises"}
_ROLES: list[tuple[Role, set[str]]] = [
    ("rearranges", REARRANGING | DROPPING),
    ("crops", CROPPING),
    ("pools", POOLING),
    ("projects", MATRIX_PRODUCTS),
    ("normalises", NORMALISING),
    ("scales", SCALING),
]


def shortcut_kind(flow: DataFlow, nodes: Nodes) -> ShortcutKind:
    """The kind of the shortcut that consists of these operations."""
    roles = {_role(flow, number) for number in members(nodes)}
    if roles <= {"rearranges"}:
        return "identity"
    if roles <= {"rearranges", "crops"}:
        return "truncated"
    if "pools" in roles and roles <= _FIXED and not flow.parameters_in(nodes):
        return "pooling"
    return "projection" if "projects" in roles and roles <= _LINEAR else "other"


def multiplies_activations(flow: DataFlow, nodes: Nodes) -> bool:
    """Whether attention, or another matrix product of two activations, is among these operations."""
    return any(
        flow.operation(number) in ATTENTION
        or (flow.operation(number) in MATRIX_PRODUCTS and len(flow.sources[number]) > 1)
        for number in members(nodes)
    )


def _role(flow: DataFlow, number: int) -> Role:
    kind, node, sources = flow.operation(number), flow.nodes[number], flow.sources[number]
    if len(sources) > 1 or drops_at_random(node):
        return "bends"
    if kind == "aten.add" and 0 in node.args:  # sum() of a list starts with 0 + the first entry
        return "rearranges"
    if kind == "_operator.getitem" and flow.operation(sources[0]) in NORMALISING | DROPPING | POOLING:
        return "rearranges"
    if kind in CONVOLUTIONS and not flow.parameters[number]:
        return "pools"  # an average pool is a convolution with a fixed filter too
    return next((role for role, operations in _ROLES if kind in operations), "bends")
