"""The exact expected number of critical points of a mixed spherical spin glass at finite size (Kac–Rice).

Everything depends on the mixture through B = v″/v′ only: at a critical point the Hessian is √v″ (G − s) with G from
GOE(Λ − 1) and s ~ N(0, 1 + 1/B), so the average over the Hessian is one over the GOE and a Gaussian integral over s.
"""

import functools
import math

import numpy as np
import torch
from torch import Tensor

from skiplens.base import Float, InvalidInputError, TooLargeError, refuse_if

LARGEST_RESOLVED = 200  # spins up to which counts are resolved by index: the work grows with the fourth power
LARGEST_TOTAL = 20_000  # spins up to which the total is computed
_PANEL_ORDER = 16
_UNIT_ORDER, _SHIFTS_AT_ONCE = 32, 32
_LARGE = 1e100


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
    refuse_if(dimension < 1, f"The dimension (number of spins) must be at least 1; got {dimension}.")
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


def log_index_determinants(size: int, shifts: Float[Tensor, " shifts"]) -> Float[Tensor, "shifts indices"]:
    """The log of E[|det(G − s)| 1{k eigenvalues of G below s}] for G of GOE(size), each shift s and k = 0..size.

    From Pfaffians (de Bruijn's formula): for eigenvalues ordered, the integral of det[f_i(λ_j)] is the Pfaffian of
    ∬ sgn(y − x) f_i(x) f_j(y). A factor z on (−∞, s) makes it a polynomial in z whose coefficient k is the part with k
    eigenvalues below s. The block that couples both sides has rank two and is u vᵀ − v uᵀ with u, v the integrals of f
    below and above s; that leaves pencils in ζ = z², one for even and one for odd k, with u and v as borders.
    """
    if size == 0:
        return torch.zeros(len(shifts), 1, dtype=torch.float64)
    pieces = [_for_some_shifts(size, some) for some in shifts.split(_SHIFTS_AT_ONCE)]
    return torch.cat(pieces) + math.lgamma(size + 1) - _log_partition_function(size)


def _for_some_shifts(size: int, s: Tensor) -> Tensor:
    (Y, below), (X, above), log_scale = _sides(size, s)
    (u, log_u), (v, log_v) = unit_and_log_norm(below), unit_and_log_norm(above)
    zero = torch.zeros_like(u)
    out = X.new_empty(len(s), size + 1)
    if size % 2 == 0:
        out[:, 0::2] = pfaffian_coefficients(X, Y, size // 2)
        odd = pfaffian_coefficients(bordered(X, u, v), bordered(Y, zero, zero), size // 2 - 1)
        out[:, 1::2] = odd + (log_u + log_v)[:, None]
    else:
        Y_bordered = bordered(Y, zero)
        out[:, 0::2] = pfaffian_coefficients(bordered(X, v), Y_bordered, size // 2) + log_v[:, None]
        out[:, 1::2] = pfaffian_coefficients(bordered(X, u), Y_bordered, size // 2) + log_u[:, None]
    return out + log_scale[:, None]


def _sides(size: int, s: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor], Tensor]:
    """The skew form below s and the integrals of f there, the same above, and the log of the scale divided out."""
    nodes, weights, sign_kernel = unit_panels(math.ceil((size + 30) / 10), _UNIT_ORDER)
    edge = torch.full_like(s, spectrum_edge(size))
    below, above = s - torch.minimum(-edge, s - 1), torch.maximum(edge, s + 1) - s
    x = s[:, None] + torch.cat([below[:, None] * (nodes - 1), above[:, None] * nodes], 1)
    w = torch.cat([below[:, None] * weights, above[:, None] * weights], 1)
    root = w.sqrt()[:, None]
    f, log_scale = _orthonormal_functions(size, x, s, w)
    values, integrals = (f / root).tensor_split(2, -1), (f * root).tensor_split(2, -1)
    forms = [a @ sign_kernel.T @ b.mT for a, b in zip(values, integrals, strict=True)]  # ∬ sgn(y − x) f_i(x) f_j(y)
    lengths = (below[:, None, None], above[:, None, None])
    skew = [length * ((A - A.mT) / 2) for length, A in zip(lengths, forms, strict=True)]
    return (skew[0], integrals[0].sum(-1)), (skew[1], integrals[1].sum(-1)), log_scale


def _orthonormal_functions(size: int, x: Tensor, s: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """√w π_i(x) |x − s| e^{−x²/4} for polynomials π_i that make them orthonormal, and log ∏ 1/(leading coefficient).

    Lanczos with full reorthogonalisation: monomials would lose every digit.
    """
    log_weight = torch.log((x - s[:, None]).abs()) - x.square() / 4
    shift = log_weight.max(dim=1).values
    f = torch.empty(len(s), size, x.shape[1], dtype=x.dtype)
    direction = torch.exp(log_weight - shift[:, None]) * w.sqrt()
    log_norm, log_scale = torch.zeros_like(s), size * shift
    for i in range(size):
        done = f[:, :i]
        for _ in range(2 if i else 0):
            direction = direction - ((done @ direction[:, :, None]).mT @ done)[:, 0]
        norm = direction.norm(dim=1)
        f[:, i] = direction / norm[:, None]
        log_norm = log_norm + norm.log()
        log_scale = log_scale + log_norm
        direction = x * f[:, i]
    return f, log_scale


def _log_partition_function(size: int) -> float:
    """The log of ∫ ∏ |λ_i − λ_j| ∏ e^{−λ²/4} dλ (Mehta's integral)."""
    gammas = sum(math.lgamma(1 + j / 2) - math.lgamma(1.5) for j in range(1, size + 1))
    return size / 2 * math.log(2 * math.pi) + gammas + (size / 2 + size * (size - 1) / 4) * math.log(2)


def panel_nodes(
    breaks: Float[Tensor, " breaks"], order: int
) -> tuple[Float[Tensor, " nodes"], Float[Tensor, " nodes"]]:
    """Nodes and weights of the `order`-point rule on each interval between neighbouring breaks."""
    x, w = map(torch.from_numpy, np.polynomial.legendre.leggauss(order))
    half = breaks.diff()[:, None] / 2
    middle = (breaks[1:] + breaks[:-1])[:, None] / 2
    return (middle + half * x).flatten(), (half * w).flatten()


def growing_breaks(start: float, end: float, first: float, largest: float) -> Float[Tensor, " breaks"]:
    """Breaks from `start` to `end` whose distances grow by half from `first` up to `largest`."""
    breaks, width = [start], first
    while breaks[-1] + width < end:
        breaks.append(breaks[-1] + width)
        width = min(1.5 * width, largest)
    return torch.tensor([*breaks, end], dtype=torch.float64)


@functools.lru_cache(maxsize=32)
def unit_panels(panels: int, order: int) -> tuple[Tensor, Tensor, Tensor]:
    """Nodes, weights and sign kernel of equal panels on [0, 1]; K f (y) = ∫ sgn(y − x) f(x) dx at the nodes y."""
    nodes, weights = panel_nodes(torch.linspace(0, 1, panels + 1, dtype=torch.float64), order)
    same_panel = torch.block_diag(*[_running_integral(order) / (2 * panels)] * panels)
    panel = torch.arange(panels * order) // order
    up_to = torch.where(panel[:, None] > panel, weights, same_panel)
    return nodes, weights, 2 * up_to - weights


def _running_integral(order: int) -> Tensor:
    """The matrix that takes values at the nodes of [−1, 1] to ∫_{−1}^{x_i}, exact for polynomials of that degree."""
    x, w = np.polynomial.legendre.leggauss(order)
    P = np.polynomial.legendre.legvander(x, order)
    degree = np.arange(order)
    to_series = (degree[:, None] + 0.5) * (P[:, :order] * w[:, None]).T
    integrals = np.empty((order, order))
    integrals[:, 0] = x + 1
    integrals[:, 1:] = (P[:, 2:] - P[:, : order - 1]) / (2 * degree[1:] + 1)
    return torch.from_numpy(integrals @ to_series)


def spectrum_edge(size: int) -> float:
    """The distance from 0 beyond which an eigenvalue has a probability of less than one rounding."""
    return 2 * math.sqrt(size) + 9


def pfaffian_coefficients(
    X: Float[Tensor, "batch size size"], Y: Float[Tensor, "batch size size"], degree: int
) -> Float[Tensor, "batch orders"]:
    """The log of the coefficients of ζ^0 .. ζ^degree of |Pf(X + ζY)|, all of which must be non-negative.

    (X+Y)^{-1} Y has each eigenvalue τ twice and Pf(X + ζY) = Pf(X+Y) ∏ (1 − τ + ζτ). Here all τ lie in [0, 1], so the
    product is the law of a sum of independent coins: no subtraction, hence small coefficients stay accurate.
    """
    whole = X + Y
    eigenvalues = torch.linalg.eigvals(torch.linalg.solve(whole, Y)).real.sort(dim=-1).values
    coins = ((eigenvalues[:, ::2] + eigenvalues[:, 1::2]) / 2).clamp(0, 1)
    log_pfaffian = torch.linalg.slogdet(whole).logabsdet / 2
    return log_pfaffian[:, None] + _sum_of_coins(coins)[:, : degree + 1].log()


def bordered(A: Float[Tensor, "batch size size"], *vectors: Float[Tensor, "batch size"]) -> Tensor:
    """A with one skew row and column more for each vector."""
    size, extra = A.shape[-1], len(vectors)
    out = A.new_zeros(len(A), size + extra, size + extra)
    out[:, :size, :size] = A
    for i, vector in enumerate(vectors, start=size):
        out[:, :size, i], out[:, i, :size] = vector, -vector
    return out


def unit_and_log_norm(vector: Float[Tensor, "batch size"]) -> tuple[Tensor, Tensor]:
    """The vector's direction and the log of its length; a vector that underflowed gets some direction and −∞."""
    norm = vector.norm(dim=-1)
    lost = norm < 1e-150
    direction = vector / torch.where(lost, 1.0, norm)[:, None]
    some = torch.zeros_like(vector)
    some[:, 0] = 1
    return torch.where(lost[:, None], some, direction), torch.where(lost, -math.inf, norm.log())


def _sum_of_coins(probabilities: Float[Tensor, "batch coins"]) -> Float[Tensor, "batch sums"]:
    """The law of the number of heads."""
    law = torch.ones_like(probabilities[:, :1])
    for heads in probabilities.unbind(-1):
        longer = law.new_zeros(len(law), law.shape[1] + 1)
        longer[:, :-1] = law * (1 - heads)[:, None]
        longer[:, 1:] += law * heads[:, None]
        law = longer
    return law
