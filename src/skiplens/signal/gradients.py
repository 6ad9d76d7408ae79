"""Sizes at the joins, and the gradient with respect to the signal at each depth and to each branch's weights."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from skiplens.base.axes import Float
from skiplens.graph.blocks import ResidualBlock
from skiplens.graph.network import ResidualNetwork
from skiplens.graph.operations import factor
from skiplens.signal.reading import Names
from skiplens.signal.units import Watcher


@dataclass(frozen=True)
class Gradients:
    """Norms of the gradient with respect to the signal, a row for each depth, and to the weights of each branch."""

    by_depth: Float[Tensor, "depths samples"]
    by_branch: Float[Tensor, " blocks"]


def gradients(
    network: ResidualNetwork, depths: list[str], weights: list[Names], samples: int, generator: torch.Generator
) -> Gradients:
    """One backward pass of a random direction of the output, of length one for each sample on average.

    `depths` are the nodes of the signal, the input of the first block first; `weights` name the parameters of each
    branch. The caller puts back the flags of the parameters: all are differentiated here, frozen or not.
    """
    for parameter in network.model.parameters():
        if parameter.is_floating_point():
            parameter.requires_grad_(True)
    named = {name: network.model.get_parameter(name) for names in weights for name in names}
    parameters = {name: parameter for name, parameter in named.items() if parameter.is_floating_point()}
    with torch.no_grad():
        start = network.run(depths[:1])[depths[0]]
    with torch.enable_grad():
        leaf = start.detach().requires_grad_()
        values = network.run([*depths[1:], network.output], given={depths[0]: leaf})
        output = values[network.output]
        direction = torch.randn(output.shape, generator=generator, dtype=torch.float64).to(output)
        scalar = (output * direction).sum() * (samples / output.numel()) ** 0.5
        signals = [leaf, *(values[name] for name in depths[1:])]
        found = torch.autograd.grad(scalar, [*signals, *parameters.values()], allow_unused=True)
    by_signal, by_parameter = found[: len(signals)], dict(zip(parameters, found[len(signals) :], strict=True))
    norms = []
    for names in weights:
        pieces = [piece for name in names if (piece := by_parameter.get(name)) is not None]
        norms.append(float(sum(float(piece.double().square().sum()) for piece in pieces)) ** 0.5)
    rows = torch.stack([sample_norms(gradient, samples) for gradient in by_signal])
    return Gradients(rows, torch.tensor(norms, dtype=torch.float64))


def sample_norms(value: Tensor | None, samples: int) -> Float[Tensor, " samples"]:
    """The norm of each sample's part; where there is no axis of samples, the same share for each."""
    if value is None:
        return torch.zeros(samples, dtype=torch.float64)
    squares = value.detach().abs().double().square()
    if squares.ndim and squares.shape[0] == samples:
        return squares.reshape(samples, -1).sum(1).sqrt().cpu()
    return (squares.sum() / samples).sqrt().expand(samples).cpu()


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
        node, places = network.node(addition.node), addition.branch_arguments
        scale = factor(node, addition.shortcut_argument)
        shortcut = arguments[addition.shortcut_argument] * (1.0 if scale is None else scale)
        scale = factor(node, places[0])
        if len(places) == 1 and scale is not None:
            # The summand itself is exact also where it is far smaller than the shortcut; a difference is not.
            brought = arguments[places[0]] * scale
        else:
            brought = value - shortcut
        if index:
            shortcut, before = self.summands.pop(block.name)
            brought = before + brought
        if index < len(block.additions) - 1:
            self.summands[block.name] = shortcut, brought
            return
        self.branch[block.name], self.shortcut[block.name] = size(brought), size(shortcut)
        self.alignment[block.name] = cosine(brought, shortcut)


def size(value: Tensor) -> float:
    """Root mean square of all entries."""
    return float(value.detach().abs().double().square().mean().sqrt())


def cosine(left: Tensor, right: Tensor) -> float:
    """Mean product of the entries over the product of their root mean squares; 0 where one of them is zero."""
    left, right = torch.broadcast_tensors(left.detach(), right.detach())
    product = float((left * right.conj()).real.double().mean())
    scale = size(left) * size(right)
    return product / scale if scale > 0 else 0.0
