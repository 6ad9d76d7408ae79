"""Expectations of functions of two correlated Gaussian variables: what a nonlinearity does to both kernels.

Functions that are linear on both sides of 0, and sines, have closed forms. Any other function f is expanded in
normalised Hermite polynomials h_k: with a_k(σ) = E f(σu) h_k(u), E f(σu) f(σ′u′) = Σ a_k(σ) a_k(σ′) ρ^k (Mehler), a sum
that costs one product per pair and term instead of a two-dimensional integral.
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
from skiplens.base.memory import recycled_empty
from skiplens.kernels.arc_cosine import arc_cosine, correlation_of_cosine
from skiplens.kernels.limit.bends import Bends, bends_of, coefficients, pieces_at, products

_NODES = 512  # on each side of 0, where most kinks are
_RANGE = 32.0  # the density beyond is 1e-222
_TERMS = 192  # of the expansion at most
_NEGLIGIBLE = 1e-17  # share of a function's second moment in terms that are left out
_AT_ONCE = 4096  # standard deviations whose coefficients are computed together
_PIECE = 2**15  # entries of a block that are bent together: a few such arrays stay in the cache
LARGEST_ERROR = 5e-2  # relative to equal inputs; what is less accurate is refused
Function = Callable[[Tensor], Tensor]


class Expectations(NamedTuple):
    """Of f(u) and f(v) for Gaussian u, one per row, and v, one per column, of mean 0."""

    second: tuple[Tensor, Tensor, Tensor]  # E f(u) f(v), E f(u)², E f(v)²
    mean: tuple[Tensor, Tensor]  # E f(u), E f(v)
    slopes: Float[Tensor, "samples other_samples ..."]  # E f′(u) f′(v)


def piecewise_linear(
    rho: Tensor, left: Tensor, right: Tensor, slope: float, other: float | None = None
) -> Expectations:
    """Of f(u) = u above 0 and slope·u below, so of slope·u + (1 − slope)·ReLU(u), by the arc-cosine kernels.

    With `other`, that is the slope below 0 at v.
    """
    other = slope if other is None else other
    kappa1, kappa0 = arc_cosine(correlation_of_cosine(rho))
    bend, line = (1 - slope) * (1 - other) / 2, (slope + other) / 2
    cross = (left * right).sqrt() * (line * rho + bend * kappa1.value)
    ends = (left, slope), (right, other)
    means = [(1 - s) * (variance / (2 * math.pi)).sqrt() for variance, s in ends]
    own = [variance * (1 + s**2) / 2 for variance, s in ends]
    return Expectations((cross, own[0], own[1]), (means[0], means[1]), line + bend * kappa0)


def sinusoid(rho: Tensor, left: Tensor, right: Tensor, frequency: float, phase: float) -> Expectations:
    """Of f(u) = sin(frequency·u + phase), however fast it turns: E cos(n) = exp(−E n²/2) of a Gaussian n.

    With 2 sin a sin b = cos(a − b) − cos(a + b), and 2 cos a cos b = cos(a − b) + cos(a + b) for the slopes.
    """

    def halves(apart: Tensor, together: Tensor) -> tuple[Tensor, Tensor]:
        both = ((-(frequency**2) / 2 * variance).exp() / 2 for variance in (apart, together))
        return next(both), math.cos(2 * phase) * next(both)

    gap = 2 * (left * right).sqrt() * (1 - rho)  # exact for nearly equal inputs, where E(u − v)² cancels
    apart, together = halves((left.sqrt() - right.sqrt()) ** 2 + gap, (left.sqrt() + right.sqrt()) ** 2 - gap)
    own = [0.5 - halves(variance, 4 * variance)[1] for variance in (left, right)]
    means = [math.sin(phase) * (-(frequency**2) / 2 * variance).exp() for variance in (left, right)]
    return Expectations((apart - together, own[0], own[1]), (means[0], means[1]), frequency**2 * (apart + together))


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
    out: list[Any] = [None if part is None else recycled_empty(part, *part.shape) for part in blocks]
    bend, one = (1 - slope) ** 2 / 2, cross.new_ones(())
    scaled = rows * (bend / math.pi)
    for at in _pieces(n, m, count, cross.device.type):
        side = (*at[:2], slice(None))
        rho = (blocks[0][at] * inverse[0][at]).mul_(inverse[1][side])
        sine = torch.addcmul(one, rho, rho, value=-1).clamp_min_(0).sqrt_()
        angle = torch.atan2(sine, rho, out=rho)  # in two thirds of the time of acos
        rest = torch.add(one * (bend + slope), angle, alpha=-bend / math.pi, out=angle)  # bend κ₀ + slope
        if tangent is not None:
            torch.mul(blocks[1][at], rest, out=out[1][at])
        # the covariance times that, and bend/π·sin θ times both deviations
        torch.addcmul(sine.mul_(scaled[at]).mul_(columns[side]), rest, blocks[0][at], out=out[0][at])
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
    rho: Tensor, left: Tensor, right: Tensor, function: Function, other: Function | None = None
) -> tuple[Expectations, float]:
    """The expectations of any function, `other` at v if given, and their estimated error relative to equal inputs.

    The error is the largest share of E f² or E f′² in the terms left out, which bounds what they add to any pair.
    """
    rows, alike = _Expansion.of(function, left), other is None and torch.equal(left.flatten(), right.flatten())
    columns = rows.shaped(right.shape) if alike else _Expansion.of(other or function, right)
    error = max(rows.error, columns.error)
    if not error <= LARGEST_ERROR:
        raise InvalidInputError(
            f"the nonlinearity before it bends too sharply: about {100 * error:.0f} % of its kernel would be wrong"
        )
    bent = products(rho, (rows.bends, left.sqrt()), (columns.bends, right.sqrt()))
    cross, slopes = (part + _mehler(rho, rows, columns, order) for order, part in enumerate(bent))
    return Expectations((cross, rows.own[0], columns.own[0]), (rows.whole[0][0], columns.whole[0][0]), slopes), error


class _Expansion(NamedTuple):
    """A function and its slope in polynomials, for standard deviations of any shape; what bends in closed form."""

    bends: Bends
    smooth: list[Tensor]  # by order, (terms, *shape): E p(σu) h_k(u) without the bends
    whole: list[Tensor]  # with them
    own: list[Tensor]  # E p²
    kept: list[int]  # terms that are not negligible
    error: float  # the largest share of E p² that is left out

    @classmethod
    def of(cls, function: Function, variance: Tensor) -> "_Expansion":
        deviation = variance.flatten().sqrt()
        bends = bends_of(function, 10 * float(deviation.max()) + 1e-3, deviation)
        peaks = products(torch.ones_like(deviation), (bends, deviation), (bends, deviation))
        smooth, whole, own, kept, errors = [], [], [], [], [0.0]
        for order, (a, square) in enumerate(_coefficients(function, bends, deviation)):
            bent = coefficients(bends, order, deviation, _TERMS)
            peak = (square + 2 * (a * bent).sum(dim=1) + peaks[order]).clamp_min(torch.finfo(a.dtype).tiny)
            both = (square, a), (peaks[order], bent)
            rest, beside = ((full - part.square().sum(dim=1)).clamp_min(0) for full, part in both)
            errors.append(float(((rest + 2 * (rest * beside).sqrt()) / peak).max()))
            share = (a.square() / peak[:, None]).flip(1).cumsum(dim=1).flip(1).amax(dim=0)
            kept.append(max(1, int((share > _NEGLIGIBLE).sum())))  # of the terms from k on, one entry per k
            smooth.append(a.T)
            whole.append((a + bent).T)
            own.append(peak)
        return cls(bends, smooth, whole, own, kept, max(errors)).shaped(variance.shape)

    def shaped(self, shape: torch.Size) -> "_Expansion":
        """The same with its standard deviations in another shape."""
        smooth, whole = ([part.reshape(-1, *shape) for part in parts] for parts in (self.smooth, self.whole))
        return self._replace(smooth=smooth, whole=whole, own=[part.view(shape) for part in self.own])


def _coefficients(function: Function, bends: Bends, deviation: Tensor) -> list[tuple[Tensor, Tensor]]:
    """a_k and E p² of what is left of f and of f′ without their bends; one row per standard deviation."""
    points, weights, polynomials = (torch.as_tensor(part, device=deviation.device) for part in hermite_rule())
    weighted, found = weights[:, None] * polynomials, []
    for some in deviation.split(_AT_ONCE):
        with torch.enable_grad():
            arguments = (some[:, None] * points).requires_grad_()
            values = function(arguments)
            (slopes,) = torch.autograd.grad(values.sum(), arguments)
        places = arguments.detach()
        smooth = (part.detach() - pieces_at(bends, order, places) for order, part in enumerate((values, slopes)))
        found.append([(part @ weighted, part.square() @ weights) for part in smooth])
    return [(torch.cat([p[order][0] for p in found]), torch.cat([p[order][1] for p in found])) for order in (0, 1)]


def _mehler(rho: Tensor, one: _Expansion, other: _Expansion, order: int) -> Tensor:
    """Σ_k (s_k b_k + (a_k − s_k) s′_k) ρ^k by Horner's rule: a_k b_k without what bends of both have in it."""
    (s, a), (r, b) = ((part.smooth[order], part.whole[order]) for part in (one, other))
    total = torch.zeros_like(rho)
    for k in reversed(range(max(one.kept[order], other.kept[order]))):
        total = total.mul_(rho).addcmul_(s[k], b[k])
        if len(one.bends.places):
            total.addcmul_(a[k] - s[k], r[k])
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
