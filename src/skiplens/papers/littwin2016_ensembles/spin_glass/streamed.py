"""A spin glass too large to keep: its couplings are drawn again, block by block, at every evaluation."""

import itertools
import math
from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor

from skiplens.base.axes import Float
from skiplens.base.errors import InvalidInputError
from skiplens.base.randomness import Randomness
from skiplens.papers.littwin2016_ensembles.spin_glass.complexity import Mixture
from skiplens.papers.littwin2016_ensembles.spin_glass.hamiltonian import check_points


@dataclass(frozen=True, eq=False)
class StreamedSpinGlass:
    """The same law as `SpinGlass` in memory for one Λ × Λ block; the time of an evaluation is that of all couplings.

    Attributes:
        mixture: The weights ε_r.
        dimension: Λ, the number of spins.
        randomness: Names the couplings: the same randomness is the same spin glass.
    """

    mixture: Mixture
    dimension: int
    randomness: Randomness

    def __post_init__(self) -> None:
        """Refuse a spin glass without spins."""
        if self.dimension < 1:
            raise InvalidInputError(f"A spin glass needs at least one spin; got {self.dimension}.")

    def energy_and_gradient(
        self, points: Float[Tensor, "points spins"]
    ) -> tuple[Float[Tensor, " points"], Float[Tensor, "points spins"]]:
        """H and its Euclidean gradient at each point."""
        s = check_points(points, self.dimension) / math.sqrt(self.dimension)
        energy, gradient = torch.zeros_like(s[:, 0]), torch.zeros_like(s)
        for r, weight in enumerate(self.mixture.weights.tolist(), start=1):
            if weight:
                value, slope = self._linear(s) if r == 1 else self._order(r, s)
                energy, gradient = energy + weight * value, gradient + weight * slope
        return -math.sqrt(self.dimension) * energy, -gradient

    def energy(self, points: Float[Tensor, "points spins"]) -> Float[Tensor, " points"]:
        """H at each point."""
        return self.energy_and_gradient(points)[0]

    def _linear(self, s: Tensor) -> tuple[Tensor, Tensor]:
        J = self._couplings(1, 0, s, (self.dimension,))
        return s @ J, J.expand_as(s)

    def _order(self, r: int, s: Tensor) -> tuple[Tensor, Tensor]:
        """Σ over the first r − 2 indices, sorted, of a monomial times the quadratic form of a block of its own."""
        value, slope = torch.zeros_like(s[:, 0]), torch.zeros_like(s)
        leading = itertools.combinations_with_replacement(range(self.dimension), r - 2)
        for number, indices in enumerate(leading):
            J = self._couplings(r, number, s, (self.dimension, self.dimension))
            factor, factor_slope = _monomial(s, indices)
            Js = s @ J.T
            form = (s * Js).sum(1)
            value = value + factor * form
            slope = slope + factor[:, None] * (Js + s @ J) + form[:, None] * factor_slope
        return value, slope

    def _couplings(self, r: int, number: int, s: Tensor, shape: tuple[int, ...]) -> Tensor:
        # drawn on the processor in float64 whatever the points are, so that every device sees the same spin glass
        stream = self.randomness.child("order", r, "block", number).torch()
        return torch.randn(shape, generator=stream, dtype=torch.float64).to(s)


def _monomial(s: Tensor, indices: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """The monomial of the indices times √(number of their orders), and its gradient."""
    orders = math.factorial(len(indices))
    for repeats in Counter(indices).values():
        orders //= math.factorial(repeats)
    slope = torch.zeros_like(s)
    for position, i in enumerate(indices):
        others = indices[:position] + indices[position + 1 :]
        slope[:, i] += s[:, list(others)].prod(1)
    scale = math.sqrt(orders)
    return scale * s[:, list(indices)].prod(1), scale * slope
