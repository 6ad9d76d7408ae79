"""Sums over samples from which a path spectrum is made."""

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from skiplens.core.axes import Float
from skiplens.core.randomness import Randomness
from skiplens.derivatives.polynomial import BlockDerivatives, PathOrders, TotalDerivative
from skiplens.derivatives.polynomial.stacks import padded
from skiplens.lenses.paths.expanders import Expander
from skiplens.lenses.paths.options import PathOptions


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
