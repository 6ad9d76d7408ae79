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


@dataclass(frozen=True)
class Piece:
    """Some samples, and the network taken apart for them."""

    network: ResidualNetwork
    samples: int

    @property
    def depths(self) -> list[str]:
        """The nodes of the signal: the input of the first block, and the joins of the outermost ones."""
        outermost = [block for block in self.network.blocks if block.parent is None]
        return [outermost[0].input, *(block.join for block in outermost)] if outermost else []


def gradients(pieces: list[Piece], weights: list[Names], generator: torch.Generator) -> Gradients:
    """One backward pass a piece of a random direction of the output, of length one for each sample on average.

    `weights` name the parameters of each branch. The caller puts back the flags of the parameters: all are
    differentiated here, frozen or not.
    """
    model, (first, *_) = pieces[0].network.model, pieces
    for parameter in model.parameters():
        if parameter.is_floating_point():
            parameter.requires_grad_(True)
    named = {name: model.get_parameter(name) for names in weights for name in names}
    parameters = {name: parameter for name, parameter in named.items() if parameter.is_floating_point()}
    shape = tuple(first.network.node(first.network.output).meta["val"].shape)
    if len(pieces) > 1:
        shape = (sum(piece.samples for piece in pieces), *shape[1:])
    directions = torch.randn(shape, generator=generator, dtype=torch.float64)
    rows, sums, start = [], dict[str, Tensor](), 0
    for piece in pieces:
        direction = directions[start : start + piece.samples] if len(pieces) > 1 else directions
        by_signal, by_parameter = _pulled(piece, list(parameters.values()), direction)
        rows.append(torch.stack([sample_norms(gradient, piece.samples) for gradient in by_signal]))
        for name, found in zip(parameters, by_parameter, strict=True):
            if found is not None:
                sums[name] = sums[name] + found if name in sums else found
        start += piece.samples
    norms = []
    for names in weights:
        own = [sums[name] for name in names if name in sums]
        norms.append(float(sum(float(gradient.double().square().sum()) for gradient in own)) ** 0.5)
    return Gradients(torch.cat(rows, 1), torch.tensor(norms, dtype=torch.float64))


def _pulled(
    piece: Piece, parameters: list[Tensor], direction: Tensor
) -> tuple[tuple[Tensor | None, ...], tuple[Tensor | None, ...]]:
    """The derivative, of the output along a direction, by the signal at each depth and by the parameters."""
    network, depths = piece.network, piece.depths
    with torch.no_grad():
        start = network.run(depths[:1])[depths[0]]
    with torch.enable_grad():
        leaf = start.detach().requires_grad_()
        values = network.run([*depths[1:], network.output], given={depths[0]: leaf})
        output = values[network.output]
        scalar = (output * direction.to(output)).sum() * (piece.samples / output.numel()) ** 0.5
        signals = [leaf, *(values[name] for name in depths[1:])]
        found = torch.autograd.grad(scalar, [*signals, *parameters], allow_unused=True)
    return found[: len(signals)], found[len(signals) :]


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
    """Sizes of the two summands of each block, gathered while the graph runs, on one piece after the other.

    `sums` are squares and entries of branch and shortcut, and their product and its entries. `summands` are those seen
    so far of a block with several additions; they are dropped at its join.
    """

    sums: dict[str, Float[Tensor, " six"]] = field(default_factory=dict)
    summands: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def sizes(self) -> dict[str, tuple[float, float, float]]:
        """By block the root mean squares of branch and shortcut, and their cosine."""
        found = {}
        for name, sums in self.sums.items():
            branch, shortcut, product = (sums[::2] / sums[1::2]).tolist()
            scale = branch**0.5 * shortcut**0.5
            found[name] = branch**0.5, shortcut**0.5, product / scale if scale > 0 else 0.0
        return found

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
        left, right = torch.broadcast_tensors(brought.detach(), shortcut.detach())
        sums = [_squares(brought), brought.numel(), _squares(shortcut), shortcut.numel()]
        sums += [float((left * right.conj()).real.double().sum()), left.numel()]
        self.sums[block.name] = self.sums.get(block.name, 0) + torch.tensor(sums, dtype=torch.float64)


def _squares(value: Tensor) -> float:
    return float(value.detach().abs().double().square().sum())


def size(value: Tensor) -> float:
    """Root mean square of all entries."""
    return float(value.detach().abs().double().square().mean().sqrt())


def cosine(left: Tensor, right: Tensor) -> float:
    """Mean product of the entries over the product of their root mean squares; 0 where one of them is zero."""
    left, right = torch.broadcast_tensors(left.detach(), right.detach())
    product = float((left * right.conj()).real.double().mean())
    scale = size(left) * size(right)
    return product / scale if scale > 0 else 0.0
