"""What can be asked of a path spectrum."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Literal, get_args

import torch
from torch import Tensor, fx

from skiplens.base.axes import Float
from skiplens.base.errors import InvalidInputError
from skiplens.base.randomness import Randomness
from skiplens.base.settings import Settings, option
from skiplens.graph.network import ResidualNetwork
from skiplens.paths.backward import pull_back, weight_paths
from skiplens.paths.forward import (
    BlockDerivatives,
    Counting,
    PathOrders,
    TotalDerivative,
    expand_signal,
    expand_tangent,
)
from skiplens.paths.plan import StackPlan, frozen_plan, tangent_plan
from skiplens.paths.step import padded

Of = Literal["signal", "jacobian", "gradient"]


@dataclass(frozen=True)
class PathOptions(Settings):
    """Options of `path_spectrum`."""

    seed: int = option(0, "names the random directions and signs")
    directions: int = option(1, "random directions to average over (jacobian and gradient)")
    signs: int = option(0, "draws of random signs for the incoherent energies; at least 2, or 0 for none")
    blocks: bool = option(False, "also the contribution of each block, at the price of another spectrum")
    pairs: bool = option(
        False, "also the contribution of each pair of blocks, at the price of a spectrum for each block"
    )
    weights: bool = option(
        False, "also the gradient of each block's weights, by the branches behind them and by whole paths (gradient)"
    )
    max_order: int | None = option(None, "longest paths to follow, in branches; all if not given")
    centre: bool = option(False, "remove the mean over the last axis of the output, which a softmax does not see")
    centre_samples: bool = option(False, "remove the mean over the samples, which tells none from another")
    memory: int | None = option(None, "bytes that may be used; half of what is free if not given")

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        super().__post_init__()
        if self.directions < 1:
            raise InvalidInputError(f"directions={self.directions}; ask for at least 1.")
        if self.signs < 0 or self.signs == 1:
            raise InvalidInputError(f"signs={self.signs}; ask for 0 (none) or at least 2, which give an error bar.")
        if self.max_order is not None and self.max_order < 0:
            raise InvalidInputError(f"max_order={self.max_order}; the shortest paths have order 0.")


def require_of(of: str) -> None:
    """Refuse to decompose anything but the three things that can be."""
    if of not in get_args(Of):
        raise InvalidInputError(f"of={of!r}; ask for one of {', '.join(map(repr, get_args(Of)))}.")


Direction = Tensor | None


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some samples of a batch with the network taken apart for them.

    Attributes:
        network: The network.
        samples: Which samples of the whole batch these are.
    """

    network: ResidualNetwork
    samples: slice

    @property
    def count(self) -> int:
        """How many samples."""
        return self.samples.stop - self.samples.start


class Expander(ABC):
    """Something that is a sum over paths."""

    plan: StackPlan

    @abstractmethod
    def expand(self, counting: Counting) -> Tensor:
        """The stack of shape (entries, samples, numbers)."""

    def total(self) -> Tensor:
        """The sum over all paths, of shape (samples, numbers)."""
        return self.expand(BlockDerivatives(derivatives=False))[0]


@dataclass(frozen=True, eq=False)
class Signal(Expander):
    """The output itself."""

    plan: StackPlan
    samples: int
    options: PathOptions

    @classmethod
    def of(cls, chunk: Chunk, options: PathOptions) -> "Signal":
        """The output of a chunk's network."""
        return cls(frozen_plan(chunk.network, _output(chunk.network)), chunk.count, options)

    def expand(self, counting: Counting) -> Tensor:
        """The output's stack."""
        return centred_rows(expand_signal(self.plan, counting).stack, self.samples, self.options)


@dataclass(frozen=True, eq=False)
class Jacobian(Expander):
    """The derivative of the output along a direction of the inputs."""

    plan: StackPlan
    samples: int
    options: PathOptions
    directions: Mapping[str, Tensor]

    @classmethod
    def of(cls, chunk: Chunk, options: PathOptions, direction: Direction, randomness: Randomness) -> "Jacobian":
        """The derivative along the given direction, or along one drawn from a standard normal distribution."""
        plan = tangent_plan(chunk.network, _output(chunk.network))
        if direction is not None:
            drawn = {plan.sources[0].name: _given(direction, plan, chunk)}
        else:
            drawn = {node.name: _drawn(node, chunk, randomness.child(node.name)) for node in plan.sources}
        return cls(plan, chunk.count, options, drawn)

    def expand(self, counting: Counting) -> Tensor:
        """The derivative's stack."""
        return centred_rows(expand_tangent(self.plan, counting, self.directions).stack, self.samples, self.options)


@dataclass(frozen=True, eq=False)
class Gradient(Expander):
    """The gradient by the inputs of something whose gradient by the output is given."""

    plan: StackPlan
    samples: int
    cotangent: Tensor

    @classmethod
    def of(cls, chunk: Chunk, direction: Direction, randomness: Randomness) -> "Gradient":
        """The gradient from the given one by the output, or from one drawn from a standard normal distribution."""
        output = _output(chunk.network)
        plan = tangent_plan(chunk.network, output)
        if direction is None:
            return cls(plan, chunk.count, _drawn(output, chunk, randomness.child("output")))
        return cls(plan, chunk.count, fitting(direction, output, chunk, "the output"))

    def expand(self, counting: Counting) -> Tensor:
        """The stacks of all sources side by side."""
        found = {one.name: rows(one.stack, self.samples) for one in pull_back(self.plan, counting, self.cotangent)}
        longest = max(len(stack) for stack in found.values())
        stacks = [torch.nn.functional.pad(s, (0, 0, 0, 0, 0, longest - len(s))) for s in found.values()]
        same = {stack.shape[1] for stack in stacks}
        return torch.cat(stacks if len(same) == 1 else [s.flatten(1)[:, None] for s in stacks], 2)


def rows(stack: Tensor, samples: int) -> Tensor:
    """The stack with one row of numbers a sample; a single row where the first axis is not the samples."""
    known = stack.ndim > 1 and stack.shape[1] == samples
    return stack.reshape(len(stack), samples if known else 1, -1)


def centred_rows(stack: Tensor, samples: int, options: PathOptions) -> Tensor:
    """The rows of a stack without the means that the options remove from each entry."""
    if options.centre:
        stack = stack - stack.mean(-1, keepdim=True)
    found = rows(stack, samples)
    return found - found.mean(1, keepdim=True) if options.centre_samples else found


def fitting(direction: Tensor, node: fx.Node, chunk: Chunk, what: str) -> Tensor:
    """The part of a direction that belongs to a chunk's samples, in the form of a node's value."""
    value = node.meta["val"]
    part = direction[chunk.samples] if direction.ndim and len(direction) >= chunk.samples.stop else direction
    if part.shape != value.shape:
        raise InvalidInputError(
            f"direction has shape {tuple(direction.shape)}; it must have the shape of {what}, {tuple(value.shape)}."
        )
    return part.to(value.device, value.dtype)


def _given(direction: Tensor, plan: StackPlan, chunk: Chunk) -> Tensor:
    if len(plan.sources) > 1:
        names = ", ".join(node.name for node in plan.sources)
        raise InvalidInputError(
            f"direction is one tensor, but the signal starts in {len(plan.sources)} places ({names}). "
            "Leave it out for a random direction in all of them, or wrap the model so that it takes one input."
        )
    return fitting(direction, plan.sources[0], chunk, "the input")


def _drawn(node: fx.Node, chunk: Chunk, randomness: Randomness) -> Tensor:
    """Normal numbers in the form of a node's value; each sample has its own stream, whatever chunk it is in."""
    value = node.meta["val"]
    if value.ndim and value.shape[0] == chunk.count:
        numbers = range(chunk.samples.start, chunk.samples.stop)
        parts = [_normal(value.shape[1:], randomness.child(number)) for number in numbers]
        drawn = torch.stack(parts)
    else:
        drawn = _normal(value.shape, randomness.child("all", chunk.samples.start))
    return drawn.to(value.device, value.dtype)


def _normal(shape: tuple[int, ...], randomness: Randomness) -> Tensor:
    return torch.randn(shape, generator=randomness.torch(), dtype=torch.float64)


def _output(network: ResidualNetwork) -> fx.Node:
    return network.node(network.output)


@dataclass(frozen=True, eq=False)
class Tally:
    """Sums that add up over samples and directions.

    Attributes:
        energies: ‖c_r‖² of each sample.
        products: ⟨c_r, y⟩.
        total: ⟨y, y⟩.
        slope: ⟨y′, y⟩, y′ the derivative by a factor common to all branches.
        remainder: ‖y − Σ c_r‖² over the orders kept.
        block_energy: ‖paths through block i‖².
        block_products: ⟨paths through block i, y⟩.
        pair_energy: ‖paths through blocks i and j‖².
        signed: ‖c_r‖² of each draw of random signs.
    """

    energies: Float[Tensor, "samples orders"]
    products: Float[Tensor, " orders"]
    total: float
    slope: float
    remainder: float
    block_energy: Float[Tensor, " blocks"]
    block_products: Float[Tensor, " blocks"]
    pair_energy: Float[Tensor, "blocks blocks"]
    signed: Float[Tensor, "draws orders"]

    def __add__(self, other: "Tally") -> "Tally":
        """The sums of two runs over the same samples."""
        pairs = {f.name: (getattr(self, f.name), getattr(other, f.name)) for f in fields(self)}
        return Tally(**{name: left + right for name, (left, right) in pairs.items()})

    def beside(self, other: "Tally") -> "Tally":
        """The sums of two runs over different samples."""
        energies = torch.cat([self.energies, other.energies])
        return replace(replace(self, energies=energies) + replace(other, energies=0 * energies), energies=energies)


def tally(expander: Expander, blocks: int, options: PathOptions, randomness: Randomness) -> Tally:
    """The sums of one chunk and one direction."""
    whole = options.max_order is None or options.max_order >= blocks
    stack = _orders(expander, PathOrders(options.max_order), blocks)
    total = stack.sum(0) if whole else expander.total().double()
    orders = torch.arange(len(stack), dtype=torch.float64, device=stack.device)
    products = (stack * total).sum((1, 2))
    through = (
        _through_blocks(expander, (1.0,) * blocks) if options.blocks or options.pairs else total.new_zeros(0, 1, 1)
    )
    return Tally(
        energies=stack.square().sum(2).T.cpu(),
        products=products.cpu(),
        total=float(total.square().sum()),
        slope=float(orders @ products) if whole else _slope(expander, total),
        remainder=0.0 if whole else float((total - stack.sum(0)).square().sum()),
        block_energy=through.square().sum((1, 2)).cpu(),
        block_products=(through * total).sum((1, 2)).cpu(),
        pair_energy=_pairs(expander, through) if options.pairs else torch.zeros(0, 0, dtype=torch.float64),
        signed=_signed(expander, blocks, options, randomness),
    )


def _orders(expander: Expander, counting: PathOrders, blocks: int) -> Tensor:
    """The stack with an entry for each order up to the number of blocks, also where no path is that long."""
    highest = blocks if counting.most is None else min(blocks, counting.most)
    return padded(expander.expand(counting).double(), highest + 1)


def _slope(expander: Expander, total: Tensor) -> float:
    derivative = expander.expand(TotalDerivative())
    return float((derivative[1].double() * total).sum()) if len(derivative) > 1 else 0.0


def _through_blocks(expander: Expander, factors: tuple[float, ...]) -> Tensor:
    """For each block the sum of all paths through it, with every branch times its factor."""
    stack = expander.expand(BlockDerivatives(factors)).double()
    return padded(stack, len(factors) + 1)[1:]


def _pairs(expander: Expander, through: Tensor) -> Tensor:
    """Through both blocks: what is lost of the paths through one when the other is silenced."""
    blocks = len(through)
    columns = []
    for silenced in range(blocks):
        factors = tuple(float(block != silenced) for block in range(blocks))
        columns.append((through - _through_blocks(expander, factors)).square().sum((1, 2)))
    energy = torch.stack(columns, 1) if columns else through.new_zeros(0, 0)
    energy.diagonal().copy_(through.square().sum((1, 2)))
    return energy.cpu()


def _signed(expander: Expander, blocks: int, options: PathOptions, randomness: Randomness) -> Tensor:
    """The energies with each branch times a random sign, one row a draw."""
    generator = randomness.torch()
    rows = []
    for _ in range(options.signs):
        signs = (2 * torch.randint(0, 2, (blocks,), generator=generator) - 1).double()
        stack = _orders(expander, PathOrders(options.max_order, tuple(signs.tolist())), blocks)
        rows.append(stack.square().sum((1, 2)).cpu())
    return torch.stack(rows) if rows else torch.zeros(0, 0, dtype=torch.float64)


Energies = dict[str, Tensor]


def weight_energies(
    chunks: list[Chunk], direction: Tensor | None, randomness: Randomness
) -> tuple[Energies, Energies, tuple[str, ...]]:
    """For each block the energy of its weights' gradient by the branches behind, and by those of the whole path.

    Beside them the parameters that whole paths leave out. The gradients of all samples add up before energies are
    taken, so the whole batch must fit in one piece.
    """
    if len(chunks) > 1:
        raise InvalidInputError(
            f"weights=True adds up the gradients of all samples, but memory holds them only in {len(chunks)} pieces. "
            "Look at fewer samples."
        )
    chunk = chunks[0]
    network = chunk.network
    wanted = {name for block in network.blocks for name in block.branch.parameters}
    expander = Gradient.of(chunk, direction, randomness.child("direction", 0))
    plan = tangent_plan(network, network.node(network.output), wanted)
    found: Energies = {}
    for one in pull_back(plan, PathOrders(), expander.cotangent):
        name = network.exported.parameters.get(one.name)
        if name is not None:
            found[name] = _energy(one.stack)
    whole = {one.name: _energy(one.stack) for one in weight_paths(network, wanted, expander.cotangent)}
    left_out = tuple(sorted(found.keys() - whole.keys()))
    return _by_block(network, found), _by_block(network, whole), left_out


def _energy(stack: Tensor) -> Tensor:
    return stack.double().flatten(1).square().sum(1).cpu()


def _by_block(network: ResidualNetwork, found: Energies) -> Energies:
    return {block.name: _sum(network, block.branch.parameters, found) for block in network.blocks}


def _sum(network: ResidualNetwork, names: tuple[str, ...], found: Energies) -> Tensor:
    energies = [found[name] for name in names if name in found]
    length = 1 + len(network.blocks)
    return sum((padded(energy, length) for energy in energies), torch.zeros(length, dtype=torch.float64))
