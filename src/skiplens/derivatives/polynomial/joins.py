"""What happens to a stack where a branch meets its shortcut."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import torch
from torch import Tensor

from skiplens.derivatives.polynomial.stacks import padded, shifted, summed
from skiplens.residual import ResidualNetwork


class Counting(ABC):
    """What the entries of a stack count; each branch is first multiplied by a factor of its own."""

    @abstractmethod
    def enter(self, branch: Tensor, block: int) -> Tensor:
        """The stack that a branch of block number `block` brings to its join."""

    def join(self, shortcut: Tensor, branch: Tensor, block: int) -> Tensor:
        """The stack of the sum of a shortcut and the branch of block number `block`, of one shape."""
        return summed(shortcut, self.enter(branch, block))

    @abstractmethod
    def products(self, entry: int, left: int, right: int) -> list[tuple[int, int]]:
        """Which entries of two stacks, of `left` and `right` entries, make this entry of their product."""


@dataclass(frozen=True)
class PathOrders(Counting):
    """Entry r is the sum over all paths through exactly r branches.

    Attributes:
        most: Highest order that is kept, all of them if None.
        factors: A factor for each branch, such as random signs; ones if not given.
    """

    most: int | None = None
    factors: tuple[float, ...] = field(default=())

    def enter(self, branch: Tensor, block: int) -> Tensor:
        """One branch more on each path."""
        stack = shifted(branch, self.most)
        return stack * self.factors[block] if self.factors else stack

    def join(self, shortcut: Tensor, branch: Tensor, block: int) -> Tensor:
        """The branch is moved by one order as it is added."""
        kept = branch if self.most is None else branch[: self.most]
        return summed(shortcut, kept * self.factors[block] if self.factors else kept, moved=1)

    def products(self, entry: int, left: int, right: int) -> list[tuple[int, int]]:
        """Those whose orders add up."""
        return [(i, entry - i) for i in range(left) if 0 <= entry - i < right]


@dataclass(frozen=True)
class BlockDerivatives(Counting):
    """Entry 0 is the signal with each branch times its factor, entry 1 + i its derivative by the factor of block i.

    The signal is linear in each factor: at factors of one the derivative is the sum over all paths through block i.

    Attributes:
        factors: A factor for each branch; ones if not given.
        derivatives: Whether the derivatives are wanted.
    """

    factors: tuple[float, ...] = field(default=())
    derivatives: bool = True

    def enter(self, branch: Tensor, block: int) -> Tensor:
        """The branch times its factor, and the branch itself in the entry of its own block."""
        factor = self.factors[block] if self.factors else 1.0
        if not self.derivatives:
            return branch * factor
        stack = padded(branch * factor, block + 2)
        own = torch.zeros_like(stack)
        own[block + 1] = branch[0]
        return stack + own

    def products(self, entry: int, left: int, right: int) -> list[tuple[int, int]]:
        """The derivative of one times the other."""
        return first_derivatives(entry, left, right)


@dataclass(frozen=True)
class TotalDerivative(Counting):
    """Entry 0 is the signal, entry 1 its derivative by a factor common to all branches, at one."""

    def enter(self, branch: Tensor, block: int) -> Tensor:
        """The branch, and once more in the derivative."""
        signal, derivative = padded(branch, 2)
        return torch.stack([signal, derivative + signal])

    def products(self, entry: int, left: int, right: int) -> list[tuple[int, int]]:
        """The derivative of one times the other."""
        return first_derivatives(entry, left, right)


def first_derivatives(entry: int, left: int, right: int) -> list[tuple[int, int]]:
    """The entries that make one of a product, where entry 0 is a value and the others are its derivatives."""
    pairs = [(0, 0)] if entry == 0 else [(0, entry), (entry, 0)]
    return [(i, j) for i, j in pairs if i < left and j < right]


def branch_arguments(network: ResidualNetwork) -> dict[str, tuple[int, tuple[int, ...]]]:
    """For each addition that joins: the number of its block and the positions of the branch's arguments."""
    return {
        addition.node: (block.index, addition.branch_arguments)
        for block in network.blocks
        for addition in block.additions
    }
