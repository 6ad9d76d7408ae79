"""What branch and shortcut bring to their join."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from skiplens.core.axes import Tensor
from skiplens.lenses.signal.watching import Watcher
from skiplens.residual import ResidualBlock, ResidualNetwork
from skiplens.residual.operations import factor


@dataclass
class JoinSizes:
    """Sizes of the two summands of each block, gathered while the graph runs.

    `summands` are those seen so far of a block with several additions; they are dropped at its join.
    """

    branch: dict[str, float] = field(default_factory=dict)
    shortcut: dict[str, float] = field(default_factory=dict)
    alignment: dict[str, float] = field(default_factory=dict)
    summands: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def watchers(self, network: ResidualNetwork) -> dict[str, Watcher]:
        """One watcher for each addition of each block."""
        return {
            addition.node: partial(self._see, network, block, index)
            for block in network.blocks
            for index, addition in enumerate(block.additions)
        }

    def _see(
        self, network: ResidualNetwork, block: ResidualBlock, index: int, value: Tensor, arguments: tuple[Any, ...]
    ) -> None:
        addition = block.additions[index]
        scale = factor(network.node(addition.node), addition.shortcut_argument)
        kept = arguments[addition.shortcut_argument] * (1.0 if scale is None else scale)
        brought = _brought(network, addition.node, addition.branch_arguments, arguments)
        brought = value - kept if brought is None else brought
        if index:
            shortcut, before = self.summands[block.name]
            brought = before + brought
        else:
            shortcut = kept
        if index < len(block.additions) - 1:
            self.summands[block.name] = shortcut, brought
            return
        self.summands.pop(block.name, None)
        self.branch[block.name], self.shortcut[block.name] = size(brought), size(shortcut)
        self.alignment[block.name] = _cosine(brought, shortcut)


def size(value: Tensor) -> float:
    """Root mean square of all entries."""
    return float(value.detach().abs().double().square().mean().sqrt())


def _brought(
    network: ResidualNetwork, node: str, positions: tuple[int, ...], arguments: tuple[Any, ...]
) -> Tensor | None:
    """The branch's summand itself where it is one argument: exact also where it is far smaller than the shortcut."""
    scale = factor(network.node(node), positions[0])
    return arguments[positions[0]] * scale if len(positions) == 1 and scale is not None else None


def _cosine(left: Tensor, right: Tensor) -> float:
    left, right = torch.broadcast_tensors(left.detach(), right.detach())
    product = float((left * right.conj()).real.double().mean())
    scale = size(left) * size(right)
    return product / scale if scale > 0 else 0.0
