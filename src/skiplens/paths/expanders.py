"""What can be asked of a path spectrum, and the sums over samples and directions that it is made of."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Literal

import torch
from torch import Tensor, fx

from skiplens.base import Float, InvalidInputError, Randomness, Settings, option, refuse_if
from skiplens.graph.network import ResidualNetwork
from skiplens.paths import forward
from skiplens.paths.backward import pull_back, weight_paths
from skiplens.paths.plan import frozen_plan, tangent_plan
from skiplens.paths.step import padded
from skiplens.readings.finding import listed

Of = Literal["signal", "jacobian", "gradient"]


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
        refuse_if(self.directions < 1, f"directions={self.directions}; ask for at least 1.")
        if self.signs < 0 or self.signs == 1:
            raise InvalidInputError(f"signs={self.signs}; ask for 0 (none) or at least 2, which give an error bar.")
        if self.max_order is not None and self.max_order < 0:
            raise InvalidInputError(f"max_order={self.max_order}; the shortest paths have order 0.")


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some samples of a batch, by their place in it, with the network taken apart for them."""

    network: ResidualNetwork
    samples: slice

    @property
    def count(self) -> int:
        """How many samples."""
        return self.samples.stop - self.samples.start

    @property
    def output(self) -> fx.Node:
        """What is decomposed."""
        return self.network.node(self.network.output)


Towers = tuple[frozenset[int], ...]
Expand = Callable[[forward.Counting], Tensor]
"""Something that is a sum over paths, as a stack of shape (entries, samples, numbers)."""


def expander(of: Of, chunk: Chunk, options: PathOptions, direction: Tensor | None, randomness: Randomness) -> Expand:
    """The output, its derivative along a direction of the inputs, or the gradient from one of the output.

    The direction is drawn from a standard normal distribution if not given.
    """
    if of == "signal":
        if direction is not None:
            raise InvalidInputError("direction means nothing for of='signal'; ask for of='jacobian' or of='gradient'.")
        plan = frozen_plan(chunk.network, chunk.output)
        return lambda counting: _centred_rows(forward.expand_signal(plan, counting), chunk.count, options)
    plan = tangent_plan(chunk.network, chunk.output)
    if of == "gradient":
        cotangent = _output_gradient(chunk, direction, randomness)
        return lambda counting: _side_by_side(dict(pull_back(plan, counting, cotangent)), chunk.count)
    if direction is None:
        tangents = {node.name: _drawn(node, chunk, randomness.child(node.name)) for node in plan.sources}
    elif len(plan.sources) > 1:
        names = ", ".join(node.name for node in plan.sources)
        raise InvalidInputError(
            f"direction is one tensor, but the signal starts in {len(plan.sources)} places ({names}). "
            "Leave it out for a random direction in all of them, or wrap the model so that it takes one input."
        )
    else:
        tangents = {plan.sources[0].name: _fitting(direction, plan.sources[0], chunk, "the input")}
    return lambda counting: _centred_rows(forward.expand_tangent(plan, counting, tangents), chunk.count, options)


def _output_gradient(chunk: Chunk, direction: Tensor | None, randomness: Randomness) -> Tensor:
    if direction is None:
        return _drawn(chunk.output, chunk, randomness.child("output"))
    return _fitting(direction, chunk.output, chunk, "the output")


def _fitting(direction: Tensor, node: fx.Node, chunk: Chunk, what: str) -> Tensor:
    """The part of a direction that belongs to a chunk's samples, in the form of a node's value."""
    value = node.meta["val"]
    part = direction[chunk.samples] if direction.ndim and len(direction) >= chunk.samples.stop else direction
    if part.shape != value.shape:
        raise InvalidInputError(
            f"direction has shape {tuple(direction.shape)}; it must have the shape of {what}, {tuple(value.shape)}."
        )
    return part.to(value.device, value.dtype)


def _drawn(node: fx.Node, chunk: Chunk, randomness: Randomness) -> Tensor:
    """Normal numbers in the form of a node's value; each sample has its own stream, whatever chunk it is in."""
    value = node.meta["val"]

    def normal(shape: torch.Size, stream: Randomness) -> Tensor:
        return torch.randn(shape, generator=stream.torch(), dtype=torch.float64)

    if value.ndim and value.shape[0] == chunk.count:
        numbers = range(chunk.samples.start, chunk.samples.stop)
        drawn = torch.stack([normal(value.shape[1:], randomness.child(number)) for number in numbers])
    else:
        drawn = normal(value.shape, randomness.child("all", chunk.samples.start))
    return drawn.to(value.device, value.dtype)


def _rows(stack: Tensor, samples: int) -> Tensor:
    """The stack with one row of numbers per sample; a single row where the first axis is not the samples."""
    known = stack.ndim > 1 and stack.shape[1] == samples
    return stack.reshape(len(stack), samples if known else 1, -1)


def _centred_rows(stack: Tensor, samples: int, options: PathOptions) -> Tensor:
    """The rows of a stack without the means that the options remove from each entry."""
    if options.centre:
        stack = stack - stack.mean(-1, keepdim=True)
    found = _rows(stack, samples)
    return found - found.mean(1, keepdim=True) if options.centre_samples else found


def _side_by_side(found: dict[str, Tensor], samples: int) -> Tensor:
    """The rows of the stacks of all sources in one."""
    longest = max(len(stack) for stack in found.values())
    stacks = [padded(_rows(stack, samples), longest) for stack in found.values()]
    if len({stack.shape[1] for stack in stacks}) > 1:
        stacks = [stack.flatten(1)[:, None] for stack in stacks]
    return torch.cat(stacks, 2)


@dataclass(frozen=True, eq=False)
class Tally:
    """Sums that add up over samples and directions."""

    energies: Float[Tensor, "samples orders"]  # ‖c_r‖² of each sample
    products: Float[Tensor, " orders"]  # ⟨c_r, y⟩
    total: float  # ⟨y, y⟩
    slope: float  # ⟨y′, y⟩, y′ the derivative with respect to a factor common to all branches
    remainder: float  # ‖y − Σ c_r‖² over the orders kept
    block_energy: Float[Tensor, " blocks"]  # ‖paths through block i‖²
    block_products: Float[Tensor, " blocks"]  # ⟨paths through block i, y⟩
    pair_energy: Float[Tensor, "paired paired"]  # ‖paths through blocks i and j‖²
    signed: Float[Tensor, "draws signed_orders"]  # ‖c_r‖² of each draw of random signs
    towers: Float[Tensor, "towers tower_orders"]  # ‖c_r‖² by the branches of each tower alone

    def __add__(self, other: "Tally") -> "Tally":
        """The sums of two runs over the same samples."""
        return Tally(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})

    def beside(self, other: "Tally") -> "Tally":
        """The sums of two runs over different samples."""
        energies = torch.cat([self.energies, other.energies])
        return replace(replace(self, energies=energies) + replace(other, energies=0 * energies), energies=energies)


def tally(expand: Expand, blocks: int, options: PathOptions, randomness: Randomness, towers: Towers = ()) -> Tally:
    """The sums of one chunk and one direction; `towers` are the blocks of each tower that the output multiplies."""
    whole = options.max_order is None or options.max_order >= blocks
    orders = 1 + (blocks if options.max_order is None else min(blocks, options.max_order))
    stack = expand(forward.PathOrders(options.max_order))
    kept = stack.new_zeros(stack.shape[1:], dtype=torch.float64)
    for entry in stack:
        kept += entry
    total = kept if whole else expand(forward.BlockDerivatives(derivatives=False))[0].double()
    energies, products = _energies(stack, orders), _products(stack, total, orders)
    del stack  # it may be as large as all that fits
    if whole:
        slope = float(torch.arange(len(products), dtype=torch.float64) @ products)
    else:
        derivative = expand(forward.TotalDerivative())
        slope = float((derivative[1].double() * total).sum()) if len(derivative) > 1 else 0.0
    through = total.new_zeros(0, 1, 1)
    if options.blocks or options.pairs:
        through = _through_blocks(expand, (1.0,) * blocks)
    generator = randomness.torch()
    drawn = [torch.randint(0, 2, (blocks,), generator=generator).tolist() for _ in range(options.signs)]
    signs = [tuple(2.0 * bit - 1 for bit in bits) for bits in drawn]
    return Tally(
        energies=energies.T,
        products=products,
        total=float(total.square().sum()),
        slope=slope,
        remainder=0.0 if whole else float((total - kept).square().sum()),
        block_energy=_energies(through, len(through)).sum(1),
        block_products=_products(through, total, len(through)),
        pair_energy=_pairs(expand, through) if options.pairs else torch.zeros(0, 0, dtype=torch.float64),
        signed=_by_counting(expand, orders, [forward.PathOrders(options.max_order, row) for row in signs]),
        towers=_by_counting(expand, orders, [forward.PathOrders(options.max_order, counted=tower) for tower in towers]),
    )


def _by_counting(expand: Expand, orders: int, countings: list[forward.PathOrders]) -> Tensor:
    """The energies of paths, a row for each way to count them; a branch that is not counted is held."""
    rows = [_energies(expand(counting), orders).sum(1) for counting in countings]
    return torch.stack(rows) if rows else torch.zeros(0, 0, dtype=torch.float64)


def _energies(stack: Tensor, length: int) -> Tensor:
    """‖·‖² of each entry and sample in double precision; entry by entry, since a stack may fill the memory."""
    found = [entry.double().square().sum(1) for entry in stack]
    return padded(torch.stack(found) if found else stack.new_zeros(0, 1, dtype=torch.float64), length).cpu()


def _products(stack: Tensor, total: Tensor, length: int) -> Tensor:
    """⟨·, total⟩ of each entry in double precision."""
    found = [(entry.double() * total).sum() for entry in stack]
    return padded(torch.stack(found) if found else total.new_zeros(0), length).cpu()


def _through_blocks(expand: Expand, factors: tuple[float, ...]) -> Tensor:
    """For each block the sum of all paths through it, with every branch times its factor."""
    return padded(expand(forward.BlockDerivatives(factors)), len(factors) + 1)[1:]


def _pairs(expand: Expand, through: Tensor) -> Tensor:
    """Through both blocks: what is lost of the paths through one when the other is silenced."""
    blocks, columns = len(through), []
    for silenced in range(blocks):
        factors = tuple(float(block != silenced) for block in range(blocks))
        others = zip(through, _through_blocks(expand, factors), strict=True)
        columns.append([float((every.double() - left.double()).square().sum()) for every, left in others])
    energy = torch.tensor(columns, dtype=torch.float64).T.contiguous()
    energy.diagonal().copy_(_energies(through, blocks).sum(1))
    return energy


def weight_energies(
    chunks: list[Chunk], direction: Tensor | None, randomness: Randomness
) -> tuple[dict[str, Tensor], dict[str, Tensor], tuple[str, ...]]:
    """For each block the energy of its weights' gradient by the branches behind, and by those of the whole path.

    Beside them a sentence about the parameters that whole paths leave out, if there are any. The gradients of all
    samples add up before energies are taken, so the whole batch must fit in one piece.
    """
    if len(chunks) > 1:
        raise InvalidInputError(
            f"weights=True adds up the gradients of all samples, but memory holds them only in {len(chunks)} pieces. "
            "Look at fewer samples."
        )
    chunk = chunks[0]
    network = chunk.network
    wanted = {name for block in network.blocks for name in block.branch.parameters}
    cotangent = _output_gradient(chunk, direction, randomness.child("direction", 0))
    pulled = pull_back(tangent_plan(network, chunk.output, wanted), forward.PathOrders(), cotangent)
    parameters = network.exported.parameters
    behind = {parameters[node]: _energy(stack) for node, stack in pulled if node in parameters}
    whole = {name: _energy(stack) for name, stack in weight_paths(network, wanted, cotangent)}
    left_out = tuple(sorted(behind.keys() - whole.keys()))
    note = (
        f"The gradient by whole paths leaves out {listed(left_out, 3)}: what they read has no frozen form, or they are "
        "computed with before they are used."
    )
    return _by_block(network, behind), _by_block(network, whole), (note,) if left_out else ()


def _energy(stack: Tensor) -> Tensor:
    return stack.double().flatten(1).square().sum(1).cpu()


def _by_block(network: ResidualNetwork, found: dict[str, Tensor]) -> dict[str, Tensor]:
    """The energies of all parameters of each block's branch, added up."""
    length = 1 + len(network.blocks)
    sums = {}
    for block in network.blocks:
        own = (padded(found[name], length) for name in block.branch.parameters if name in found)
        sums[block.name] = sum(own, torch.zeros(length, dtype=torch.float64))
    return sums
