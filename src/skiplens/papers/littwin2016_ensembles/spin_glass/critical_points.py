"""All critical points of a spin glass with few spins: found, classified, checked by the Euler characteristic."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from skiplens.base import Float, Int, TooLargeError
from skiplens.papers.littwin2016_ensembles.spin_glass import hamiltonian
from skiplens.papers.littwin2016_ensembles.spin_glass.expected_counts import log_expected_total
from skiplens.papers.littwin2016_ensembles.spin_glass.hamiltonian import SpinGlass, onto_sphere, tangent_part

LARGEST_SEARCH = 3000  # the most critical points, on average, that a search is started for
_STARTS_PER_POINT = 30
_ROUNDS = 4
_SAME_POINT = 1e-5  # in units of the sphere's radius
_ON_CIRCLE = 1e-7  # how far from modulus 1 a root may lie: rounding moves it by about the root of an ulp at near-ties
_ITERATIONS = 40
_LONGEST_STEP = 0.5  # on the unit sphere; longer ones leave the region where the quadratic model means anything
_RESIDUAL = 1e-9  # of the Riemannian gradient, whose natural size is √(Λ v′)


@dataclass(frozen=True, eq=False)
class CriticalPoints:
    """The critical points of one spin glass on ‖w‖² = Λ.

    Attributes:
        points: The points.
        energies: H there.
        indices: Descending directions of each: 0 is a minimum, Λ − 1 a maximum.
    """

    points: Float[Tensor, "critical spins"]
    energies: Float[Tensor, " critical"]
    indices: Int[Tensor, " critical"]

    @property
    def euler_sum(self) -> int:
        """Σ (−1)^index, which must equal the Euler characteristic of the sphere if no point is missing."""
        return int((1 - 2 * (self.indices % 2)).sum())

    @property
    def is_consistent(self) -> bool:
        """Whether the Euler sum is right: 2 for an odd number of spins, 0 for an even one."""
        return len(self.points) > 0 and self.euler_sum == 2 * (self.points.shape[1] % 2)

    def count_by_index(self) -> Int[Tensor, " indices"]:
        """How many points there are of index 0..Λ−1."""
        return torch.bincount(self.indices, minlength=self.points.shape[1])


def find_critical_points(glass: SpinGlass, generator: torch.Generator, starts: int | None = None) -> CriticalPoints:
    """All critical points on the sphere; look at `is_consistent` before you count them.

    Two spins: roots of a trigonometric polynomial. More: Newton's method from random starts, and more starts while the
    Euler sum is wrong.

    Args:
        glass: A spin glass with few spins.
        generator: Draws the starts, on the device of the couplings.
        starts: Random starts of the first round; none means thirty for each critical point expected.
    """
    if glass.dimension == 1:
        return _classified(glass, torch.tensor([[-1.0], [1.0]], dtype=torch.float64, device=generator.device))
    if glass.dimension == 2:
        angles = critical_angles(glass)
        return _classified(glass, math.sqrt(2) * torch.stack([angles.cos(), angles.sin()], 1))
    count = starts if starts is not None else _default_starts(glass)
    found = torch.empty(0, glass.dimension, dtype=torch.float64, device=generator.device)
    for _ in range(_ROUNDS):
        first = torch.cat([hamiltonian.random_points(count, glass.dimension, generator), -found])
        found = _distinct(torch.cat([found, newton_critical_points(glass, first)]))
        result = _classified(glass, found)
        if result.is_consistent:
            return result
        count *= 2
    return result


def _default_starts(glass: SpinGlass) -> int:
    ratio = glass.mixture.curvature_ratio
    expected = 2.0 if ratio == 0 else math.exp(min(log_expected_total(glass.dimension, ratio).item(), 50))
    if expected > LARGEST_SEARCH:
        raise TooLargeError(
            f"A spin glass of {glass.dimension} spins with B = {ratio:.4g} has about {expected:.3g} critical points; "
            f"a search is started for at most {LARGEST_SEARCH}. Use expected_critical_points for their number."
        )
    return max(200, math.ceil(_STARTS_PER_POINT * expected))


def _distinct(points: Tensor) -> Tensor:
    """The points without repetitions."""
    if not len(points):
        return points
    near = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist") < _SAME_POINT * math.sqrt(
        points.shape[1]
    )
    return points[near.to(torch.int8).argmax(1) == torch.arange(len(points), device=points.device)]


def _classified(glass: SpinGlass, points: Tensor) -> CriticalPoints:
    points = onto_sphere(points)
    energies, gradient = glass.energy(points), glass.gradient(points)
    eigenvalues = torch.linalg.eigvalsh(riemannian_hessian(glass, points, gradient))
    return CriticalPoints(points, energies, (eigenvalues < 0).sum(1))


def riemannian_hessian(
    glass: SpinGlass, points: Float[Tensor, "points spins"], gradient: Float[Tensor, "points spins"]
) -> Float[Tensor, "points spins spins"]:
    """P (∂²H − (⟨w, ∂H⟩/Λ) I) P with P the projection onto the tangent space; the normal direction has eigenvalue 0.

    The zero is lifted to the largest row sum, so that it counts as no descending direction whatever the rounding.
    """
    dimension = glass.dimension
    identity = torch.eye(dimension, dtype=points.dtype, device=points.device)
    normal = points[:, :, None] * points[:, None, :] / dimension
    P = identity - normal
    pull = (points * gradient).sum(1) / dimension
    H = P @ (glass.hessian(points) - pull[:, None, None] * identity) @ P
    return H + H.abs().sum(2).amax(1).clamp(min=1e-300)[:, None, None] * normal


def critical_angles(glass: SpinGlass) -> Float[Tensor, " critical"]:
    """Angles φ at which the energy of √2 (cos φ, sin φ) is stationary, ascending in [0, 2π)."""
    order = glass.mixture.order
    samples = 2 * order + 1
    angles = 2 * math.pi * torch.arange(samples, dtype=torch.float64) / samples
    points = math.sqrt(2) * torch.stack([angles.cos(), angles.sin()], 1).to(glass.couplings[0].device)
    spectrum = np.fft.fft(glass.energy(points).cpu().numpy()) / samples
    frequency = np.arange(-order, order + 1)
    slope = 1j * frequency * spectrum[frequency]  # Fourier coefficients of dH/dφ; times z^p, a polynomial in z = e^{iφ}
    roots = np.roots(slope[::-1])
    on_circle = roots[np.abs(np.abs(roots) - 1) < _ON_CIRCLE]
    return torch.from_numpy(np.sort(np.angle(on_circle) % (2 * math.pi))).to(points.device)


def newton_critical_points(glass: SpinGlass, starts: Float[Tensor, "starts spins"]) -> Float[Tensor, "critical spins"]:
    """Where Newton's method converged to, as often as it did; the bordered system keeps the step tangent."""
    w = onto_sphere(starts)
    for _ in range(_ITERATIONS):
        w = onto_sphere(w + _step(glass, w))
    residual = tangent_part(glass.gradient(w), w).norm(dim=1)
    good = residual < _RESIDUAL * math.sqrt(glass.dimension * glass.mixture.slope)
    return w[good]


def _step(glass: SpinGlass, w: Tensor) -> Tensor:
    gradient = glass.gradient(w)
    pull = (w * gradient).sum(1) / glass.dimension
    size = glass.dimension
    system = w.new_zeros(len(w), size + 1, size + 1)
    system[:, :size, :size] = glass.hessian(w)
    system[:, :size, :size].diagonal(dim1=1, dim2=2).sub_(pull[:, None])
    system[:, :size, size], system[:, size, :size] = -w, w
    right = torch.cat([-tangent_part(gradient, w), torch.zeros_like(w[:, :1])], 1)
    solution, singular = torch.linalg.solve_ex(system, right)
    step = solution[:, :size].masked_fill(singular[:, None] != 0, 0.0).nan_to_num(0.0, 0.0, 0.0)
    longest = _LONGEST_STEP * math.sqrt(size)
    return step * (longest / step.norm(dim=1, keepdim=True).clamp(min=longest))
