"""Sizes at the joins, and the gradient with respect to the signal at each depth and to each branch's weights."""

import math
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, fx

from skiplens.base.axes import Float
from skiplens.graph.blocks import ResidualBlock
from skiplens.graph.export import is_wall
from skiplens.graph.flow import DataFlow
from skiplens.graph.network import ResidualNetwork, plain_call, plan
from skiplens.graph.operations import factor
from skiplens.signal.reading import Names
from skiplens.signal.units import UnitStates, Watcher, watching_call


@dataclass(frozen=True)
class Gradients:
    """Norms of the gradient with respect to the signal, a row for each depth, and to the weights of each branch."""

    by_depth: Float[Tensor, "depths samples"]
    by_branch: Float[Tensor, " blocks"]
    at_starts: Float[Tensor, "starts samples"]
    cut: int = 0  # first depths that the model lets no gradient into


@dataclass(frozen=True)
class Chains:
    """The outermost blocks as chains: within one, each block takes what the block before it made, as it is."""

    depths: tuple[str, ...]  # nodes: the input of the first block, then the joins
    starts: tuple[str, ...] = ()  # inputs of the blocks that begin another chain: a stage, a tower, a decoder
    first: tuple[int, ...] = ()  # places of these blocks among the outermost ones
    towers: tuple[str, ...] = ()  # the starts that no block before them reaches
    in_series: int = 0  # the most outermost blocks that one signal can pass


def chains_of(network: ResidualNetwork) -> Chains:
    """Where the outermost blocks follow each other, and where a matrix, another size or another tower lies between."""
    blocks = [block for block in network.blocks if block.parent is None]
    if not blocks:
        return Chains(())
    flow = DataFlow(network.exported)
    number = {node.name: place for place, node in enumerate(flow.nodes)}
    inputs, joins = [number[block.input] for block in blocks], [number[block.join] for block in blocks]
    series: list[int] = []
    for join in joins:
        series.append(1 + max((n for n, j in zip(series, joins, strict=False) if flow.below[j] >> join & 1), default=0))

    def follows(place: int) -> bool:
        before, entered = joins[place - 1], inputs[place]
        reached = bool(flow.below[before] >> entered & 1)
        same = math.prod(flow.shape(before)) == math.prod(flow.shape(entered))
        return reached and same and flow.depth(flow.between(before, [entered])) == 0

    first = tuple(place for place in range(1, len(blocks)) if not follows(place))
    towers = (p for p in first if not any(flow.below[join] >> inputs[p] & 1 for join in joins[:p]))
    return Chains(
        depths=(blocks[0].input, *(block.join for block in blocks)),
        starts=tuple(blocks[place].input for place in first),
        first=first,
        towers=tuple(dict.fromkeys(blocks[place].input for place in towers)),
        in_series=max(series),
    )


@dataclass(frozen=True)
class Piece:
    """Some samples, and the network taken apart for them."""

    network: ResidualNetwork
    samples: int

    @cached_property
    def chains(self) -> Chains:
        """The nodes of the signal: at the depths, and where chains start."""
        return chains_of(self.network)


def gradients(pieces: list[Piece], weights: list[Names], generator: torch.Generator, watch: "Watch") -> Gradients:
    """One backward pass a piece of a random direction of the output, of length one for each sample on average.

    `weights` name the parameters of each branch; `watch` sees the pass forwards. The caller puts back the flags of the
    parameters: all are differentiated here, frozen or not.
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
    rows, sums, start, depths = [], dict[str, Tensor](), 0, len(first.chains.depths)
    for piece in pieces:
        direction = directions[start : start + piece.samples] if len(pieces) > 1 else directions
        by_signal, by_parameter = _pulled(piece, list(parameters.values()), direction, watch)
        rows.append(torch.stack([sample_norms(gradient, piece.samples) for gradient in by_signal]))
        reached = [place for place, gradient in enumerate(by_signal[:depths]) if gradient is not None]
        for name, found in zip(parameters, by_parameter, strict=True):
            if found is not None:
                sums[name] = sums[name] + found if name in sums else found
        start += piece.samples
    walls = any(is_wall(node) for node in first.network.graph.nodes)
    norms = []
    for names in weights:
        own = [sums[name] for name in names if name in sums]
        known = float(sum(float(gradient.double().square().sum()) for gradient in own)) ** 0.5
        norms.append(math.nan if walls and names and not own else known)
    by_depth, cut = torch.cat(rows, 1), min(reached, default=0) if walls else 0
    return Gradients(by_depth[:depths], torch.tensor(norms, dtype=torch.float64), by_depth[depths:], cut)


def _pulled(
    piece: Piece, parameters: list[Tensor], direction: Tensor, watch: "Watch"
) -> tuple[tuple[Tensor | None, ...], tuple[Tensor | None, ...]]:
    """The derivative, of the output along a direction, by the signal at depths and starts, and by the parameters."""
    network, chains = piece.network, piece.chains
    watchers, first = watch.watchers(piece), [*chains.depths[:1], *chains.towers]
    with torch.no_grad():
        entered = network.run(first, call=watching_call(watchers))
        for name in entered.keys() - {node.name for node in network.graph.nodes if node.op == "call_function"}:
            watchers[name](entered[name], ())  # an input of the model, which no operation makes
    again = watchers.keys() - {node.name for node in plan(map(network.node, first), [])}
    call = watching_call({name: watchers[name] for name in again}, stopped)
    with torch.enable_grad():
        leaves = {name: value.detach().requires_grad_() for name, value in entered.items()}
        values = network.run([*chains.depths, *chains.starts, network.output], given=leaves, call=call)
        output = values[network.output]
        watch.ended(output)
        scalar = (output * direction.to(output)).sum() * (piece.samples / output.numel()) ** 0.5
        signals = [values[name] for name in (*chains.depths, *chains.starts)]
        found = torch.autograd.grad(scalar, [*signals, *parameters], allow_unused=True)
    return found[: len(signals)], found[len(signals) :]


def stopped(node: fx.Node, arguments: Any, keywords: Any) -> Any:
    """The operation; no gradient passes it where training lets none through."""
    value = plain_call(node, arguments, keywords)
    return value.detach().requires_grad_() if is_wall(node) else value


def sample_norms(value: Tensor | None, samples: int) -> Float[Tensor, " samples"]:
    """The norm of each sample's part; where there is no axis of samples, the same share for each."""
    if value is None:
        return torch.zeros(samples, dtype=torch.float64)
    squares = value.detach().abs().double().square()
    if squares.ndim and squares.shape[0] == samples:
        return squares.reshape(samples, -1).sum(1).sqrt().cpu()
    return (squares.sum() / samples).sqrt().expand(samples).cpu()


def join_sums(branch: Tensor, shortcut: Tensor) -> Float[Tensor, " six"]:
    """Squares and entries of branch and shortcut, and their product and its entries."""
    left, right = torch.broadcast_tensors(branch.detach(), shortcut.detach())
    sums = [_squares(branch), branch.numel(), _squares(shortcut), shortcut.numel()]
    return torch.tensor([*sums, float((left * right.conj()).real.double().sum()), left.numel()], dtype=torch.float64)


def join_sizes(sums: Float[Tensor, " six"]) -> tuple[float, float, float]:
    """Root mean squares of branch and shortcut, and their cosine; 0 where one of them is zero."""
    branch, shortcut, product = (sums[::2] / sums[1::2]).tolist()
    scale = branch**0.5 * shortcut**0.5
    return branch**0.5, shortcut**0.5, product / scale if scale > 0 else 0.0


@dataclass
class JoinSizes:
    """Sizes of the two summands of each block, gathered while the graph runs, on one piece after the other.

    `summands` are those seen so far of a block with several additions; they are dropped at its join.
    """

    sums: dict[str, Float[Tensor, " six"]] = field(default_factory=dict)  # of all pieces so far
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
        # The summand itself is exact also where it is far smaller than the shortcut; a difference is not.
        alone = len(places) == 1 and scale is not None
        brought = arguments[places[0]] * scale if alone else value - shortcut
        if index:
            shortcut, before = self.summands.pop(block.name)
            brought = before + brought
        if index < len(block.additions) - 1:
            self.summands[block.name] = shortcut, brought
            return
        self.sums[block.name] = self.sums.get(block.name, 0) + join_sums(brought, shortcut)


@dataclass
class Watch:
    """What passes forwards show: both summands of each block, its units, and the signal at depths and starts."""

    joins: JoinSizes = field(default_factory=JoinSizes)
    units: UnitStates = field(default_factory=UnitStates)
    rows: list[dict[str, Tensor]] = field(default_factory=list)  # the size of the signal in each piece, by node
    finite: bool = True  # whether all outputs are

    def watchers(self, piece: Piece) -> dict[str, Watcher]:
        """One watcher for each node of a piece that is looked at."""
        rows = dict[str, Tensor]()
        self.rows.append(rows)

        def record(name: str, value: Any, arguments: tuple[Any, ...]) -> None:
            rows[name] = root_mean_square(value, piece.samples)

        nodes = (*piece.chains.depths, *piece.chains.starts)
        recorders: dict[str, Watcher] = {name: partial(record, name) for name in nodes}
        return _together(self.units.watchers(piece.network), self.joins.watchers(piece.network), recorders)

    def ended(self, output: Tensor) -> None:
        """See the output of a pass."""
        self.finite = self.finite and bool(output.isfinite().all())

    def signal(self, pieces: list[Piece]) -> Float[Tensor, "depths samples"]:
        """Its size at each depth and start."""
        found = []
        for rows, piece in zip(self.rows, pieces, strict=False):  # without blocks there are none
            found.append(torch.stack([rows[name] for name in (*piece.chains.depths, *piece.chains.starts)]))
        return torch.cat(found, 1) if found else torch.zeros(0, sum(piece.samples for piece in pieces))


def _together(*groups: dict[str, Watcher]) -> dict[str, Watcher]:
    """One watcher for each node, that calls all of its watchers."""

    def watch(name: str, value: Any, arguments: tuple[Any, ...]) -> None:
        for group in groups:
            if name in group:
                group[name](value, arguments)

    return {name: partial(watch, name) for group in groups for name in group}


def root_mean_square(value: Tensor, samples: int) -> Float[Tensor, " samples"]:
    """The size of each sample's entries."""
    return sample_norms(value, samples) * (samples / value.numel()) ** 0.5


def _squares(value: Tensor) -> float:
    return float(value.detach().abs().double().square().sum())
