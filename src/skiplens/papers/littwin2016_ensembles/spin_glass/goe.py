"""E[|det(G − s)|; exactly k eigenvalues of G below s] for every k, from Pfaffians (de Bruijn's formula).

For eigenvalues ordered, the integral of det[f_i(λ_j)] is the Pfaffian of ∬ sgn(y − x) f_i(x) f_j(y). A factor z on
(−∞, s) makes it a polynomial in z whose coefficient k is the part with k eigenvalues below s. The block that couples
both sides has rank two and is u vᵀ − v uᵀ with u, v the integrals of f below and above s; that leaves pencils in
ζ = z², one for even and one for odd k, with u and v as borders.
"""

import functools
import math

import numpy as np
import torch
from torch import Tensor

from skiplens.base.axes import Float

_PANEL_ORDER = 32
_SHIFTS_AT_ONCE = 32


def log_index_determinants(size: int, shifts: Float[Tensor, " shifts"]) -> Float[Tensor, "shifts indices"]:
    """The log of E[|det(G − s)| 1{k eigenvalues of G below s}] for G of GOE(size), each shift s and k = 0..size."""
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
    nodes, weights, sign_kernel = unit_panels(math.ceil((size + 30) / 10), _PANEL_ORDER)
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
