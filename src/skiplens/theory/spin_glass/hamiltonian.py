"""A spin glass with its couplings drawn and kept: energy, gradient and Hessian at any point."""

import functools
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from skiplens.core.axes import Float
from skiplens.core.errors import InvalidInputError
from skiplens.core.memory import budget_bytes, require_fits
from skiplens.theory.spin_glass import monomials
from skiplens.theory.spin_glass.landscape import check_points
from skiplens.theory.spin_glass.mixture import Mixture


@dataclass(frozen=True, eq=False)
class SpinGlass:
    """H(w) = −Σ_r ε_r Λ^{−(r−1)/2} Σ J_{i1..ir} w_{i1}⋯w_{ir} with J drawn once, on points of R^Λ.

    E H(w)H(w′) = Λ ν(⟨w, w′⟩/Λ). The J of one monomial are added up before they are stored, which takes r! times less
    memory than the tensor.

    Attributes:
        mixture: The weights ε_r.
        dimension: Λ, the number of spins.
        couplings: For each order r = 1..p the coefficient of each monomial of degree r in s = w/√Λ, ε_r included.
    """

    mixture: Mixture
    dimension: int
    couplings: tuple[Tensor, ...]  # one axis each, longer for higher orders

    @classmethod
    def sample(
        cls, mixture: Mixture, dimension: int, generator: torch.Generator, dtype: torch.dtype = torch.float64
    ) -> "SpinGlass":
        """A spin glass whose couplings are drawn with the generator, on its device."""
        require_storable(mixture, dimension, generator.device)
        couplings = []
        for r, weight in enumerate(mixture.weights.tolist(), start=1):
            deviation = torch.exp(0.5 * monomials.log_multinomials(dimension, r)).to(generator.device, dtype)
            noise = torch.randn(len(deviation), generator=generator, device=generator.device, dtype=dtype)
            couplings.append(weight * deviation * noise)
        return cls(mixture, dimension, tuple(couplings))

    def energy(self, points: Float[Tensor, "points spins"]) -> Float[Tensor, " points"]:
        """H at each point; differentiable."""
        return self.energy_by_order(points).sum(1)

    def energy_by_order(self, points: Float[Tensor, "points spins"]) -> Float[Tensor, "points orders"]:
        """The part of H of each order r = 1..p at each point, homogeneous of degree r; differentiable."""
        pieces = []
        for some in self._pieces(points):
            tables = monomials.table(some / math.sqrt(self.dimension), self.mixture.order)
            parts = [values @ c.to(values) for values, c in zip(tables[1:], self.couplings, strict=True)]
            pieces.append(-math.sqrt(self.dimension) * torch.stack(parts, 1))
        return torch.cat(pieces)

    def energy_and_gradient(
        self, points: Float[Tensor, "points spins"]
    ) -> tuple[Float[Tensor, " points"], Float[Tensor, "points spins"]]:
        """H and its Euclidean gradient at each point."""
        return self.energy(points), self.gradient(points)

    def gradient(self, points: Float[Tensor, "points spins"]) -> Float[Tensor, "points spins"]:
        """∂H/∂w at each point."""
        return -self._polynomial(points, self._gradient_couplings)

    def hessian(self, points: Float[Tensor, "points spins"]) -> Float[Tensor, "points spins spins"]:
        """∂²H/∂w² at each point, without the sphere."""
        values = self._polynomial(points, self._hessian_couplings) / -math.sqrt(self.dimension)
        return values.reshape(len(points), self.dimension, self.dimension)

    @functools.cached_property
    def _gradient_couplings(self) -> tuple[Tensor, ...]:
        """For each degree 0..p−1 the coefficients of the partial derivatives: (monomials, spins)."""
        return tuple(monomials.derivative(c, self.dimension, r) for r, c in enumerate(self.couplings, start=1))

    @functools.cached_property
    def _hessian_couplings(self) -> tuple[Tensor, ...]:
        """For each degree 0..p−2 those of the second derivatives: (monomials, spins · spins)."""
        twice = [monomials.derivative(c, self.dimension, r) for r, c in enumerate(self._gradient_couplings) if r > 0]
        return tuple(c.flatten(1) for c in twice)

    def _polynomial(self, points: Tensor, coefficients: tuple[Tensor, ...]) -> Tensor:
        """Polynomials in s = w/√Λ with the given coefficients for degree 0, 1 …"""
        if not coefficients:
            return points.new_zeros(len(points), self.dimension**2)
        pieces = []
        for some in self._pieces(points):
            tables = monomials.table(some / math.sqrt(self.dimension), len(coefficients) - 1)
            parts = [values @ c.to(values) for values, c in zip(tables, coefficients, strict=True)]
            pieces.append(torch.stack(parts).sum(0))
        return torch.cat(pieces)

    def _pieces(self, points: Tensor) -> tuple[Tensor, ...]:
        """The points, as many at a time as their monomials fit into the memory budget."""
        check_points(points, self.dimension)
        bytes_per_point = 2 * points.element_size() * _monomials(self.dimension, self.mixture.order)
        return points.split(max(1, budget_bytes(points.device) // (4 * bytes_per_point)))


def require_storable(mixture: Mixture, dimension: int, device: torch.device) -> None:
    """Refuse a spin glass whose couplings do not fit into memory, and say what to use instead."""
    if dimension < 1:
        raise InvalidInputError(f"A spin glass needs at least one spin; got {dimension}.")
    needed = 8 * _monomials(dimension, mixture.order) * (dimension + mixture.order + 4)
    require_fits(
        needed,
        f"Keeping the couplings of {dimension} spins up to order {mixture.order}",
        "Use StreamedSpinGlass, which draws them again at every evaluation in bounded memory, or sample_energies, "
        "which draws the energies of given points for any number of spins.",
        budget_bytes(device),
    )


def _monomials(dimension: int, order: int) -> int:
    """Monomials of all degrees up to the order."""
    return math.comb(dimension + order, order)
