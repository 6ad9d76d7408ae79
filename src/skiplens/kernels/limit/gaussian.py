"""Expectations of functions of two correlated Gaussian variables: what a nonlinearity does to both kernels.

Functions that are linear on both sides of 0 have closed forms. Any other function f is expanded in normalised Hermite
polynomials h_k: with a_k(σ) = E f(σu) h_k(u), E f(σu) f(σ′u′) = Σ a_k(σ) a_k(σ′) ρ^k (Mehler), a sum that costs one
product per pair and term instead of a two-dimensional integral.
"""

import math
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from skiplens.base.axes import Float
from skiplens.base.errors import InvalidInputError
from skiplens.kernels.arc_cosine import arc_cosine, correlation_of_cosine

_NODES = 512  # on each side of 0, where most kinks are
_RANGE = 32.0  # the density beyond is 1e-222
_TERMS = 192  # of the expansion at most
_NEGLIGIBLE = 1e-17  # share of a function's second moment in terms that are left out
_AT_ONCE = 4096  # standard deviations whose coefficients are computed together
_PIECE = 2**15  # entries of a block that are bent together: a few such arrays stay in the cache
_LARGEST_ERROR = 5e-2  # relative to equal inputs; what is less accurate is refused


class Expectations(NamedTuple):
    """Of f(u) and f(v) for Gaussian u, one per row, and v, one per column, of mean 0."""

    second: tuple[Tensor, Tensor, Tensor]  # E f(u) f(v), E f(u)², E f(v)²
    mean: tuple[Tensor, Tensor]  # E f(u), E f(v)
    slopes: Float[Tensor, "samples other_samples ..."]  # E f′(u) f′(v)


def piecewise_linear(rho: Tensor, left: Tensor, right: Tensor, slope: float) -> Expectations:
    """Of f(u) = u above 0 and slope·u below, so of slope·u + (1 − slope)·ReLU(u), by the arc-cosine kernels."""
    kappa1, kappa0 = arc_cosine(correlation_of_cosine(rho))
    bend = (1 - slope) ** 2 / 2
    cross = (left * right).sqrt() * (slope * rho + bend * kappa1.value)
    means = [(1 - slope) * (variance / (2 * math.pi)).sqrt() for variance in (left, right)]
    second = cross, left * (slope + bend), right * (slope + bend)
    return Expectations(second, (means[0], means[1]), slope + bend * kappa0)


def bend_blocks(cross: Tensor, tangent: Tensor | None, ends: tuple[Any, ...], slope: float) -> tuple[Tensor, Any]:
    """E f(u) f(v), and the tangent kernel times E f′(u) f′(v), of blocks with all pairs of positions.

    Blocks are (samples, other samples, *grid, *grid), and `ends` the variances of u and v in shapes that broadcast to
    them. In pieces that stay in the cache, with the angle from a rounded cosine: 1e-8 for nearly equal positions.
    """
    count, (n, m) = math.prod(cross.shape[2 : 2 + (cross.ndim - 2) // 2]), cross.shape[:2]
    rows, columns = (end.sqrt().expand(n, m, *end.shape[2:]) for end in ends)
    rows, columns = rows.reshape(n, m, count, 1), columns.reshape(n, m, 1, count)
    inverse = [torch.where(part > 0, 1 / part, 0.0) for part in (rows, columns)]
    blocks: list[Any] = [None if part is None else part.reshape(n, m, count, count) for part in (cross, tangent)]
    out: list[Any] = [
        None if part is None else torch.empty_like(part, memory_format=torch.contiguous_format) for part in blocks
    ]
    bend = (1 - slope) ** 2 / 2
    for at in _pieces(n, m, count, cross.device.type):
        side = (*at[:2], slice(None))
        rho = (blocks[0][at] * inverse[0][at]).mul_(inverse[1][side]).clamp_(-1, 1)
        rest = rho.acos().neg_().add_(math.pi).mul_(1 / math.pi)  # κ₀ = 1 − θ/π
        if tangent is not None:
            torch.mul(blocks[1][at], rest * bend + slope, out=out[1][at])
        sine = torch.addcmul(rest.new_ones(()), rho, rho, value=-1).clamp_min_(0).sqrt_()
        value = rest.mul_(rho).add_(sine, alpha=1 / math.pi).mul_(bend).add_(rho, alpha=slope)
        torch.mul(value.mul_(rows[at]), columns[side], out=out[0][at])
    return out[0].view(cross.shape), None if tangent is None else out[1].view(cross.shape)


def _pieces(n: int, m: int, count: int, device: str) -> Iterator[tuple[slice, slice, slice]]:
    """Places in a block (n, m, count, count): some rows of a pair on the CPU, all of it elsewhere."""
    if device != "cpu":
        yield slice(None), slice(None), slice(None)
        return
    step = max(1, min(count, _PIECE // count))
    for i, j, start in product(range(n), range(m), range(0, count, step)):
        yield slice(i, i + 1), slice(j, j + 1), slice(start, start + step)


def expanded(
    rho: Tensor, left: Tensor, right: Tensor, function: Callable[[Tensor], Tensor]
) -> tuple[Expectations, float]:
    """The expectations of any function, and their estimated error relative to equal inputs.

    The error is the largest share of E f² or E f′² in the terms left out, which bounds what they add to any pair.
    """
    rows, columns = (_coefficients(function, variance.flatten().sqrt()) for variance in (left, right))
    shares = [a.square() / second.clamp_min(torch.finfo(a.dtype).tiny) for a, second in (*rows, *columns)]
    tail = torch.stack([share.flip(1).cumsum(dim=1).flip(1).amax(dim=0) for share in shares]).amax(dim=0)
    error = max(float((1 - share.sum(dim=1)).amax().clamp_min(0)) for share in shares)
    if not error <= _LARGEST_ERROR:
        raise InvalidInputError(
            f"the nonlinearity before it bends too sharply: about {error:.0%} of its kernel would be wrong"
        )
    terms = max(1, int((tail > _NEGLIGIBLE).sum()))  # of the terms from k on, one entry per k
    cross, slopes = (
        _mehler(rho, one[:, :terms].T.reshape(-1, *left.shape), other[:, :terms].T.reshape(-1, *right.shape))
        for (one, _), (other, _) in zip(rows, columns, strict=True)
    )
    ends = list(zip((rows, columns), (left.shape, right.shape), strict=True))
    own = [part[0][1].view(shape) for part, shape in ends]
    means = [part[0][0][:, 0].reshape(shape) for part, shape in ends]
    return Expectations((cross, own[0], own[1]), (means[0], means[1]), slopes), error


def _coefficients(function: Callable[[Tensor], Tensor], deviation: Tensor) -> list[tuple[Tensor, Tensor]]:
    """a_k and the sum of all a_k², E f², of f and of f′; one row per standard deviation."""
    points, weights, polynomials = (torch.as_tensor(part, device=deviation.device) for part in hermite_rule())
    weighted, found = weights[:, None] * polynomials, []
    for some in deviation.split(_AT_ONCE):
        with torch.enable_grad():
            arguments = (some[:, None] * points).requires_grad_()
            values = function(arguments)
            (slopes,) = torch.autograd.grad(values.sum(), arguments)
        found.append([(part @ weighted, part.square() @ weights) for part in (values.detach(), slopes)])
    return [
        (torch.cat([part[which][0] for part in found]), torch.cat([part[which][1] for part in found])[:, None])
        for which in (0, 1)
    ]


def _mehler(rho: Tensor, one: Tensor, other: Tensor) -> Tensor:
    """Σ_k a_k b_k ρ^k by Horner's rule, with a_k and b_k that broadcast to ρ."""
    total = torch.zeros_like(rho)
    for a, b in zip(one.flip(0), other.flip(0), strict=True):
        total = total.mul_(rho).addcmul_(a, b)
    return total


@cache
def hermite_rule() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points and weights of an integral over the Gaussian density, and h_k at the points, one column per k.

    Gauss-Legendre on each side of 0: the Gauss-Hermite rule would not see a kink there.
    """
    half, weights = np.polynomial.legendre.leggauss(_NODES)
    half = (half + 1) * _RANGE / 2
    points = np.concatenate([-half[::-1], half])
    weights = np.concatenate([weights[::-1], weights]) * np.exp(-(points**2) / 2)
    columns = [np.ones(2 * _NODES), points]
    for k in range(1, _TERMS - 1):  # normalised, because He_k itself overflows
        columns.append((points * columns[k] - math.sqrt(k) * columns[k - 1]) / math.sqrt(k + 1))
    return points, weights / weights.sum(), np.stack(columns, axis=1)
