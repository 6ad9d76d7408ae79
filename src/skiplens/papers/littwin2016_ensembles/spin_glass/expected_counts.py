"""The exact expected number of critical points of a mixed spherical spin glass at finite size (Kac–Rice).

Everything depends on the mixture through B = v″/v′ only: at a critical point the Hessian is √v″ (G − s) with G from
GOE(Λ − 1) and s ~ N(0, 1 + 1/B), so the average over the Hessian is one over the GOE and a Gaussian integral over s.
"""

import functools
import math

import torch
from torch import Tensor

from skiplens.base.axes import Float
from skiplens.base.errors import InvalidInputError, TooLargeError
from skiplens.papers.littwin2016_ensembles.spin_glass.goe import (
    growing_breaks,
    log_index_determinants,
    panel_nodes,
    spectrum_edge,
)

LARGEST_RESOLVED = 200  # spins up to which counts are resolved by index: the work grows with the fourth power
LARGEST_TOTAL = 20_000  # spins up to which the total is computed
_PANEL_ORDER = 16


def expected_critical_points(dimension: int, curvature_ratio: float | Tensor) -> Float[Tensor, "*ratios indices"]:
    """E of the number of critical points of index k = 0..Λ−1 on the sphere in R^Λ, linear terms included.

    Args:
        dimension: Λ, the number of spins.
        curvature_ratio: B = v″/v′ of the mixture (`Mixture.curvature_ratio`), one number or a tensor of any shape.

    Examples:
        >>> expected_critical_points(3, 1.0).round(decimals=9).tolist()  # pure 2-spin: the eigenvectors, twice
        [2.0, 2.0, 2.0]
    """
    return log_expected_critical_points(dimension, curvature_ratio).exp()


def log_expected_critical_points(dimension: int, curvature_ratio: float | Tensor) -> Float[Tensor, "*ratios indices"]:
    """The log of `expected_critical_points`, for sizes where the numbers themselves overflow."""
    given = check_curvature_ratio(curvature_ratio)
    B = given.cpu()
    _check_dimension(dimension, LARGEST_RESOLVED, "Counts for each index", "Use log_expected_total or complexity.")
    s, log_weights, log_determinants = _determinants_inside(dimension - 1)
    variance = (1 + 1 / B)[..., None]
    log_gaussian = -s.square() / (2 * variance) - 0.5 * torch.log(2 * math.pi * variance)
    inside = torch.logsumexp((log_weights + log_gaussian)[..., None] + log_determinants, -2)
    outside = _determinants_outside(dimension - 1, variance[..., 0])
    extreme = torch.full_like(inside, -math.inf)
    extreme[..., 0] = outside
    extreme[..., -1] = outside + (math.log(2) if dimension == 1 else 0.0)
    # the sphere's area times the density of a vanishing gradient, in units of the Hessian's scale
    log_area = math.log(2) + dimension / 2 * math.log(math.pi) - math.lgamma(dimension / 2)
    log_constant = log_area + (dimension - 1) / 2 * torch.log(B / (2 * math.pi))
    return (torch.logaddexp(inside, extreme) + log_constant[..., None]).to(given.device)


def log_expected_total(dimension: int, curvature_ratio: float | Tensor) -> Float[Tensor, "*ratios"]:
    """The log of E of the number of critical points of all indices together, from the GOE's mean density (any size).

    E Crt = 2√2 B^{Λ/2} (1+B)^{−1/2} ∫ ρ_Λ(λ) exp(−(B−1)λ²/(4(B+1))) dλ.
    """
    given = check_curvature_ratio(curvature_ratio)
    B = given.cpu()
    _check_dimension(dimension, LARGEST_TOTAL, "The total count", "Use total_complexity, its limit.")
    reach = spectrum_edge(dimension) + 12 * math.sqrt(1 + 1 / B.min().item()) * math.sqrt(dimension)
    x, w = _line(dimension, reach)
    log_density = log_eigenvalue_density(dimension, x) + w.log()
    c = ((B - 1) / (4 * (B + 1)))[..., None]
    log_mean = torch.logsumexp(log_density - c * x.square(), -1)
    return (1.5 * math.log(2) + dimension / 2 * B.log() - 0.5 * torch.log1p(B) + log_mean).to(given.device)


def check_curvature_ratio(curvature_ratio: float | Tensor) -> Tensor:
    """B as a float64 tensor, refused unless positive and finite."""
    B = torch.as_tensor(curvature_ratio, dtype=torch.float64)
    if not bool((torch.isfinite(B) & (B > 0)).all()):
        raise InvalidInputError(
            f"The curvature ratio B = v''/v' must be positive and finite; got {B.min().item():g} to "
            f"{B.max().item():g}. A purely linear mixture (B = 0) has one minimum and one maximum."
        )
    return B


def _check_dimension(dimension: int, largest: int, what: str, instead: str) -> None:
    if dimension < 1:
        raise InvalidInputError(f"The dimension (number of spins) must be at least 1; got {dimension}.")
    if dimension > largest:
        raise TooLargeError(f"{what} are computed up to {largest} spins; got {dimension}. {instead}")


@functools.lru_cache(maxsize=8)
def _determinants_inside(size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Shifts s inside the spectrum's reach, log weights and log E[|det(G − s)|; k]; the same for every mixture.

    Only s > 0 is computed: turning G into −G maps s to −s and k to size − k.
    """
    edge = spectrum_edge(size)
    panels = math.ceil(edge * math.sqrt(max(size, 1)) / math.pi * 3.5 / _PANEL_ORDER) + 2
    s, w = panel_nodes(torch.linspace(0, edge, panels + 1, dtype=torch.float64), _PANEL_ORDER)
    log_determinants = log_index_determinants(size, s)
    return (torch.cat([-s, s]), torch.cat([w, w]).log(), torch.cat([log_determinants.flip(1), log_determinants]))


def _determinants_outside(size: int, variance: Tensor) -> Tensor:
    """The log of the part from s < −edge, where no eigenvalue lies below s: there E det(G − s) is He_size(|s|)."""
    edge = spectrum_edge(size)
    scale = math.sqrt(variance.max().item())
    s, w = panel_nodes(growing_breaks(edge, edge + scale * (math.sqrt(size) + 12), 0.5, scale), 2 * _PANEL_ORDER)
    log_terms = _log_hermite(size, s) + w.log()
    log_gaussian = -s.square() / (2 * variance[..., None]) - 0.5 * torch.log(2 * math.pi * variance[..., None])
    return torch.logsumexp(log_terms + log_gaussian, -1)


def _log_hermite(size: int, x: Tensor) -> Tensor:
    """The log of He_size(x) beyond its largest zero, by the ratio of neighbours."""
    ratio, total = x, torch.zeros_like(x)
    for n in range(1, size + 1):
        total = total + ratio.log()
        ratio = x - n / ratio
    return total


def _line(size: int, reach: float) -> tuple[Tensor, Tensor]:
    """Nodes and weights on [−reach, reach]: fine inside the spectrum, growing panels outside."""
    edge = spectrum_edge(size)
    panel = min(1.0, _PANEL_ORDER / 4 * math.pi / math.sqrt(size))
    inside = torch.linspace(0, edge, math.ceil(edge / panel) + 1, dtype=torch.float64)
    outside = growing_breaks(edge, max(reach, edge + 1), 0.5, max(1.0, reach / 60))
    x, w = panel_nodes(torch.cat([inside, outside[1:]]), _PANEL_ORDER)
    return torch.cat([-x, x]), torch.cat([w, w])


_LARGE = 1e100


def log_eigenvalue_density(size: int, eigenvalues: Float[Tensor, " points"]) -> Float[Tensor, " points"]:
    """The log of the mean number of eigenvalues of GOE(size) per unit length at each point.

    With Hermite functions φ_j of x = λ/√2 (Mehta): Σ_{j<N} φ_j² + √(N/2) φ_{N−1} ½∫ sgn(x − y) φ_N(y) dy, and
    φ_{N−1}/∫φ_{N−1} more for odd N.
    """
    x = eigenvalues.to(torch.float64) / math.sqrt(2)
    phi, squares, log_unit, half_sign_integral = _hermite(size, x)
    factor = math.sqrt(size / 2) * half_sign_integral
    if size % 2:
        log_ratio = 0.5 * math.lgamma(size) - math.lgamma((size - 1) // 2 + 1) - (size - 1) / 2 * math.log(2)
        factor = factor + 1 / math.exp(log_ratio + 0.5 * math.log(2) + 0.25 * math.log(math.pi))
    return log_unit + torch.log(log_unit.exp() * squares + phi * factor) - 0.5 * math.log(2)


def _hermite(size: int, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """φ_{N−1} and Σ_{j<N} φ_j² in units of e^{log_unit} and its square, log_unit, and ½∫ sgn(x − y) φ_N(y) dy."""
    before, phi = torch.zeros_like(x), torch.ones_like(x)
    squares, log_unit = torch.ones_like(x), -x.square() / 2 - 0.25 * math.log(math.pi)
    # φ_n' = √(n/2) φ_{n−1} − √((n+1)/2) φ_{n+1} links the integrals of one parity: from 0 for even, from −∞ for odd.
    first_even = math.sqrt(math.pi / 2) * math.pi**-0.25 * torch.erf(x / math.sqrt(2))
    integral = {0: first_even, 1: -math.sqrt(2) * log_unit.exp()}
    for n in range(1, size):
        before, phi = phi, x * math.sqrt(2 / n) * phi - math.sqrt((n - 1) / n) * before
        squares = squares + phi.square()
        shrink = torch.ones_like(x).masked_fill(phi.abs() > _LARGE, 1 / _LARGE)
        before, phi, squares = before * shrink, phi * shrink, squares * shrink.square()
        log_unit = log_unit - shrink.log()
        below = math.sqrt(n / 2) * integral[(n + 1) % 2] - phi * log_unit.exp()
        integral[(n + 1) % 2] = below / math.sqrt((n + 1) / 2)
    return phi, squares, log_unit, integral[size % 2]
