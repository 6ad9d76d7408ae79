"""A spin glass with its couplings drawn and kept: energy, gradient and Hessian at any point."""

import functools
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from skiplens.base import Float, Int, InvalidInputError, budget_bytes, refuse_if, require_fits
from skiplens.papers.littwin2016_ensembles.spin_glass.complexity import Mixture

Points = Float[Tensor, "points spins"]


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
        refuse_if(dimension < 1, f"A spin glass needs at least one spin; got {dimension}.")
        require_fits(
            8 * _monomials(dimension, mixture.order) * (dimension + mixture.order + 4),
            f"Keeping the couplings of {dimension} spins up to order {mixture.order}",
            "Take fewer spins or a lower order; expected_critical_points counts without drawing any coupling.",
            budget_bytes(generator.device),
        )
        couplings = []
        for r, weight in enumerate(mixture.weights.tolist(), start=1):
            deviation = torch.exp(0.5 * log_multinomials(dimension, r)).to(generator.device, dtype)
            noise = torch.randn(len(deviation), generator=generator, device=generator.device, dtype=dtype)
            couplings.append(weight * deviation * noise)
        return cls(mixture, dimension, tuple(couplings))

    def energy(self, points: Points) -> Float[Tensor, " points"]:
        """H at each point; differentiable."""
        return self.energy_by_order(points).sum(1)

    def energy_by_order(self, points: Points) -> Float[Tensor, "points orders"]:
        """The part of H of each order r = 1..p at each point, homogeneous of degree r; differentiable."""
        pieces = []
        for some in self._pieces(points):
            tables = table(some / math.sqrt(self.dimension), self.mixture.order)
            parts = [values @ c.to(values) for values, c in zip(tables[1:], self.couplings, strict=True)]
            pieces.append(-math.sqrt(self.dimension) * torch.stack(parts, 1))
        return torch.cat(pieces)

    def gradient(self, points: Points) -> Points:
        """∂H/∂w at each point."""
        return -self._polynomial(points, self._gradient_couplings)

    def hessian(self, points: Points) -> Float[Tensor, "points spins spins"]:
        """∂²H/∂w² at each point, without the sphere."""
        values = self._polynomial(points, self._hessian_couplings) / -math.sqrt(self.dimension)
        return values.reshape(len(points), self.dimension, self.dimension)

    @functools.cached_property
    def _gradient_couplings(self) -> tuple[Tensor, ...]:
        """For each degree 0..p−1 the coefficients of the partial derivatives: (monomials, spins)."""
        return tuple(derivative(c, self.dimension, r) for r, c in enumerate(self.couplings, start=1))

    @functools.cached_property
    def _hessian_couplings(self) -> tuple[Tensor, ...]:
        """For each degree 0..p−2 those of the second derivatives: (monomials, spins · spins)."""
        twice = [derivative(c, self.dimension, r) for r, c in enumerate(self._gradient_couplings) if r > 0]
        return tuple(c.flatten(1) for c in twice)

    def _polynomial(self, points: Tensor, coefficients: tuple[Tensor, ...]) -> Tensor:
        """Polynomials in s = w/√Λ with the given coefficients for degree 0, 1 …"""
        if not coefficients:
            return points.new_zeros(len(points), self.dimension**2)
        pieces = []
        for some in self._pieces(points):
            tables = table(some / math.sqrt(self.dimension), len(coefficients) - 1)
            parts = [values @ c.to(values) for values, c in zip(tables, coefficients, strict=True)]
            pieces.append(torch.stack(parts).sum(0))
        return torch.cat(pieces)

    def _pieces(self, points: Tensor) -> tuple[Tensor, ...]:
        """The points, as many at a time as their monomials fit into the memory budget."""
        if points.ndim != 2 or points.shape[1] != self.dimension or not points.is_floating_point():
            raise InvalidInputError(
                f"Points must be a floating-point tensor of shape (points, {self.dimension}); got {points.dtype} of "
                f"shape {tuple(points.shape)}. For a single point add an axis: point[None]."
            )
        bytes_per_point = 2 * points.element_size() * _monomials(self.dimension, self.mixture.order)
        return points.split(max(1, budget_bytes(points.device) // (4 * bytes_per_point)))


def _monomials(dimension: int, order: int) -> int:
    """Monomials of all degrees up to the order."""
    return math.comb(dimension + order, order)


def random_points(count: int, dimension: int, generator: torch.Generator, dtype: torch.dtype = torch.float64) -> Points:
    """Points drawn uniformly from the sphere ‖w‖² = Λ, on the generator's device."""
    points = torch.randn(count, dimension, generator=generator, device=generator.device, dtype=dtype)
    return onto_sphere(points)


def onto_sphere(points: Points) -> Points:
    """The points scaled to ‖w‖² = Λ."""
    return points * (math.sqrt(points.shape[1]) / points.norm(dim=1, keepdim=True))


def tangent_part(vectors: Points, points: Points) -> Points:
    """What is left of the vectors without their part along the points: the Riemannian gradient of a gradient."""
    along = (vectors * points).sum(1, keepdim=True) / points.square().sum(1, keepdim=True)
    return vectors - along * points


def count(variables: int, degree: int) -> int:
    """How many monomials of exactly that degree there are."""
    return math.comb(variables + degree - 1, degree)


def table(points: Float[Tensor, "points variables"], degree: int) -> list[Tensor]:
    """Values of all monomials of degree 0, 1 .. `degree`, a (points, monomials) tensor for each; differentiable.

    The tuples that may follow a first index i are those that start at i or later: a suffix of the next lower degree.
    """
    variables = points.shape[1]
    tables = [torch.ones_like(points[:, :1])]
    for r in range(1, degree + 1):
        lower = tables[-1]
        suffixes = [count(variables - i, r - 1) for i in range(variables)]
        tables.append(torch.cat([points[:, i : i + 1] * lower[:, -n:] for i, n in enumerate(suffixes)], 1))
    return tables


@functools.lru_cache(maxsize=32)
def log_multinomials(variables: int, degree: int) -> Float[Tensor, " monomials"]:
    """The log of (r!/∏ a_i!) of each monomial of the degree: in how many orders its factors can stand."""
    tuples = index_tuples(variables, degree)
    run = torch.ones(len(tuples), dtype=torch.float64)
    log_repeats = torch.zeros(len(tuples), dtype=torch.float64)
    for position in range(1, degree):
        run = torch.where(tuples[:, position] == tuples[:, position - 1], run + 1, torch.ones_like(run))
        log_repeats = log_repeats + run.log()
    return math.lgamma(degree + 1) - log_repeats


def derivative(coefficients: Float[Tensor, "monomials ..."], variables: int, degree: int) -> Tensor:
    """Coefficients of the partial derivatives of a form of the degree: (monomials one degree lower, variables, …)."""
    tuples = index_tuples(variables, degree).to(coefficients.device)
    lower = count(variables, degree - 1)
    out = coefficients.new_zeros(lower * variables, *coefficients.shape[1:])
    for position in range(degree):
        rest = torch.cat([tuples[:, :position], tuples[:, position + 1 :]], 1)
        out.index_add_(0, _rank(rest, variables) * variables + tuples[:, position], coefficients)
    return out.reshape(lower, variables, *coefficients.shape[1:])


@functools.lru_cache(maxsize=32)
def index_tuples(variables: int, degree: int) -> Int[Tensor, "monomials degree"]:
    """The sorted index tuples, one for each monomial."""
    if degree == 0:
        return torch.zeros(1, 0, dtype=torch.long)
    return torch.combinations(torch.arange(variables), degree, with_replacement=True).reshape(-1, degree)


def _rank(tuples: Int[Tensor, "monomials degree"], variables: int) -> Int[Tensor, " monomials"]:
    """The place of each sorted tuple in lexicographic order."""
    degree = tuples.shape[1]
    places = variables + degree - 1
    rank = torch.full(tuples.shape[:1], count(variables, degree) - 1, device=tuples.device)
    for position in range(degree):
        later = [math.comb(places - 1 - c, degree - position) for c in range(places)]
        choices = torch.tensor(later, device=tuples.device)
        rank = rank - choices[tuples[:, position] + position]
    return rank
