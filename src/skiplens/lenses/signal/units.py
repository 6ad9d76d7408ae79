"""Units that are shut on all samples: ReLUs that are always zero, tanh and sigmoid that are always flat."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import fx

from skiplens.core.axes import Tensor
from skiplens.lenses.signal.watching import Watcher
from skiplens.residual import ResidualNetwork
from skiplens.residual.operations import CONVOLUTIONS, MATRIX_PRODUCTS, NORMALISING, operation

FLAT_SLOPE = 0.01
"""A slope below this share of its largest value counts as saturation."""

_CHANNELS_LAST = {"aten.layer_norm", "aten.native_layer_norm", "aten.rms_norm"}
_SHUT: dict[str, Callable[[Tensor], Tensor]] = {
    "aten.relu": lambda value: value == 0,
    "aten.hardtanh": lambda value: value == 0,  # ReLU6
    "aten.clamp_min": lambda value: value == 0,
}
_FLAT: dict[str, Callable[[Tensor], Tensor]] = {
    "aten.tanh": lambda value: 1 - value.square() < FLAT_SLOPE,
    "aten.sigmoid": lambda value: 4 * value * (1 - value) < FLAT_SLOPE,
}


class Share(NamedTuple):
    """A share of the units of a layer."""

    share: float
    units: int

    @property
    def surprise(self) -> float:
        """How far the share is above one half, in standard deviations of a fair coin."""
        return surprise(self.share, self.units)


def surprise(share: float, units: int) -> float:
    """(share − ½)·2√units: standard deviations above one half of a fair coin thrown `units` times."""
    return 2 * (share - 0.5) * math.sqrt(units)


@dataclass
class UnitStates:
    """Shares of dead and of saturated units by block, with the width of the layer, gathered while the graph runs.

    Of several layers of a branch the one counts whose share is the furthest above one half, in standard deviations of
    a fair coin thrown once for each unit.
    """

    dead: dict[str, Share] = field(default_factory=dict)
    saturated: dict[str, Share] = field(default_factory=dict)

    def watchers(self, network: ResidualNetwork) -> dict[str, Watcher]:
        """One watcher for each activation function inside of a branch."""
        found: dict[str, Watcher] = {}
        for block in network.blocks:
            for node in map(network.node, block.branch.nodes):
                for table, shares in ((_SHUT, self.dead), (_FLAT, self.saturated)):
                    if operation(node) in table:
                        judge = table[operation(node)]
                        found[node.name] = partial(_see, shares, block.name, judge, unit_axis(node))
        return found


def _see(
    shares: dict[str, Share],
    block: str,
    judge: Callable[[Tensor], Tensor],
    axis: int,
    value: Tensor,
    arguments: tuple[Any, ...],
) -> None:
    shut = judge(value.detach()).movedim(axis, 0).flatten(1).all(1)
    found = Share(float(shut.double().mean()), len(shut))
    shares[block] = max(shares.get(block, found), found, key=lambda share: share.surprise)


def unit_axis(node: fx.Node) -> int:
    """The axis of a node's value that counts units: channels after a convolution, features after a matrix."""
    source: fx.Node | None = node
    while source is not None:
        kind = operation(source) if source.op == "call_function" else source.op
        if kind in CONVOLUTIONS or (kind in NORMALISING and kind not in _CHANNELS_LAST):
            return 1
        if kind in MATRIX_PRODUCTS or kind in _CHANNELS_LAST:
            return -1
        source = next((above for above in source.all_input_nodes if _is_activation(above)), None)
    return 1 if node.meta["val"].ndim == 4 else -1


def _is_activation(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return node.op == "call_function" and (not isinstance(value, torch.Tensor) or value.is_floating_point())
