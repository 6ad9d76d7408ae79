"""The mean density of eigenvalues of the Gaussian orthogonal ensemble, in log space for any size."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from skiplens.core.axes import Float

_LARGE = 1e100


def log_eigenvalue_density(size: int, eigenvalues: Float[Tensor, " points"]) -> Float[Tensor, " points"]:
    """The log of the mean number of eigenvalues of GOE(size) per unit length at each point.

    With Hermite functions φ_j of x = λ/√2 (Mehta): Σ_{j<N} φ_j² + √(N/2) φ_{N−1} ½∫ sgn(x − y) φ_N(y) dy, and
    φ_{N−1}/∫φ_{N−1} more for odd N.
    """
    x = eigenvalues.to(torch.float64) / math.sqrt(2)
    last = _hermite(size, x)
    factor = math.sqrt(size / 2) * last.half_sign_integral
    if size % 2:
        factor = factor + 1 / _integral_over_line(size - 1)
    return last.log_unit + torch.log(last.log_unit.exp() * last.squares + last.phi * factor) - 0.5 * math.log(2)


@dataclass(frozen=True)
class _Hermite:
    """φ_{N−1} and Σ_{j<N} φ_j² in units of e^{log_unit} and its square, and ½∫ sgn(x − y) φ_N(y) dy as it is."""

    phi: Tensor
    squares: Tensor
    log_unit: Tensor
    half_sign_integral: Tensor


def _hermite(size: int, x: Tensor) -> _Hermite:
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
    return _Hermite(phi, squares, log_unit, integral[size % 2])


def _integral_over_line(n: int) -> float:
    """∫ φ_n for even n."""
    log_size = 0.5 * math.lgamma(n + 1) - math.lgamma(n // 2 + 1) - n / 2 * math.log(2)
    return math.exp(log_size + 0.5 * math.log(2) + 0.25 * math.log(math.pi))
