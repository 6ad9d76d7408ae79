"""The depth-free evaluation: a kernel tabulated once as a function of the angle, whatever the depth.

Both kernels are analytic in θ on [0, π] (not in cos θ), so a polynomial per piece reaches rounding with few pieces. A
second, coarser table reads the cosine itself and is quick enough for millions of entries.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from skiplens.base import DidNotConverge, Float, Int
from skiplens.kernels.arc_cosine import Correlation, correlation_of_angle, correlation_of_supplement
from skiplens.kernels.infinite_network import Stretch

DEGREE = 9
_FIRST_PIECES, _MOST_PIECES = 16, 512
_FOCUSES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003)  # those that a quick table tries
_HALF_PI = math.pi / 2
_LEAST_STRETCH = 1e-3  # below it the logarithm is a straight line to rounding

Evaluate = Callable[[Correlation], Tensor]  # from correlations of any shape to (kernels, *shape)


@dataclass(frozen=True)
class Pieces:
    """Equal pieces in log(1 + κθ) for θ ≤ π/2, then equal pieces in log(1 + μη), η = π − θ, down to η = 0."""

    stretch: Stretch  # κ and μ
    left: int  # how many pieces cover [0, π/2]
    right: int  # how many pieces cover [π/2, π]

    def __len__(self) -> int:
        return self.left + self.right

    def locate(self, angle: Tensor) -> tuple[Int[Tensor, "..."], Float[Tensor, "..."]]:
        """The number of the piece each angle lies in, and its place in that piece, from −1 to 1."""
        kappa, mu = (max(stretch, _LEAST_STRETCH) for stretch in self.stretch)
        from_left = torch.log1p(kappa * angle) * (self.left / math.log1p(kappa * _HALF_PI))
        from_right = torch.log1p(mu * (math.pi - angle)) * (self.right / math.log1p(mu * _HALF_PI))
        position = torch.where(angle <= _HALF_PI, from_left, len(self) - from_right)
        piece = position.detach().floor().clamp(0, len(self) - 1)
        return piece.long(), 2 * (position - piece) - 1

    def correlations(self, places: Float[Tensor, " places"]) -> Correlation:
        """The correlations at `places` in [−1, 1] of every piece, as (pieces, places)."""
        kappa, mu = (max(stretch, _LEAST_STRETCH) for stretch in self.stretch)
        start = torch.arange(len(self), dtype=places.dtype, device=places.device).unsqueeze(1)
        position = start + (places + 1) / 2
        left = torch.expm1(position[: self.left] * (math.log1p(kappa * _HALF_PI) / self.left)) / kappa
        steps_from_pi = (len(self) - position[self.left :]).clamp_min(0)
        right = torch.expm1(steps_from_pi * (math.log1p(mu * _HALF_PI) / self.right)) / mu
        near, far = correlation_of_angle(left), correlation_of_supplement(right)
        return Correlation(*(torch.cat(pair) for pair in zip(near, far, strict=True)))


@dataclass(frozen=True)
class QuickPieces:
    """Equal pieces in q = t/(t + f) in [0, 1], where t = tan(θ/2) = √((1 − ρ)/(1 + ρ)); a last one holds q = 1.

    q is analytic in the angle at both ends and costs a square root and two divisions, with no inverse cosine.
    """

    focus: float  # f; a smaller one puts more pieces near equal inputs
    count: int  # how many pieces there are before the last one

    def locate(self, cosine: Tensor) -> tuple[Int[Tensor, "..."], Float[Tensor, "..."]]:
        """The number of the piece each cosine lies in, and its place in it from 0 to 1; `cosine` is used up."""
        other = (cosine + 1).clamp_min_(_QUICK[cosine.dtype].least)
        tangent = torch.sub(1, cosine, out=cosine).clamp_min_(0).div_(other).sqrt_()
        torch.add(tangent, self.focus, out=other)
        place = tangent.div_(other).mul_(self.count)
        piece = place.to(torch.int32)
        return piece, place.frac_()  # subtracting the pieces, of another type, would take four times as long


@dataclass(frozen=True, eq=False)
class Table:
    """A kernel as a piecewise polynomial: of the angle, or of the cosine where its pieces are the quick ones."""

    pieces: Pieces | QuickPieces
    coefficients: Float[Tensor, "powers pieces"]  # of the power p of the place in each piece
    error: float  # largest one seen between the nodes, relative to the kernel's largest value

    def __call__(self, places: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """The kernel at each angle, differentiable in it and in the coefficients; or at each cosine, used up."""
        piece, place = self.pieces.locate(places)
        return piecewise_polynomial(place, piece, self.coefficients.to(places.device))


def tabulate(evaluate: Evaluate, stretch: Stretch, accuracy: float) -> tuple[Table, ...]:
    """Tables of all kernels of `evaluate` whose error is at most `accuracy`, checked against it between their nodes.

    The number of pieces is found without gradients, each half of [0, π] doubled until it is good enough; the
    coefficients carry the gradient of what `evaluate` depends on.
    """
    pieces = Pieces(stretch, _FIRST_PIECES, _FIRST_PIECES)
    while True:
        with torch.no_grad():
            coefficients, errors = _fit(evaluate, pieces)
        left, right = float(errors[: pieces.left].max()), float(errors[pieces.left :].max())
        if max(left, right) <= accuracy:
            break
        pieces = Pieces(stretch, pieces.left * (1 + (left > accuracy)), pieces.right * (1 + (right > accuracy)))
        if max(pieces.left, pieces.right) > _MOST_PIECES:
            raise DidNotConverge(
                f"The kernel's table reached an error of {max(left, right):.1e}, not the wanted accuracy of "
                f"{accuracy:.1e}. Ask for a larger accuracy, or evaluate by the recursion (evaluation='recursion')."
            )
    if torch.is_grad_enabled():
        coefficients = _interpolate(evaluate(pieces.correlations(torch.cos(_node_angles()))))
    return tuple(Table(pieces, of_a_kernel, max(left, right)) for of_a_kernel in coefficients)


def _fit(evaluate: Evaluate, pieces: Pieces) -> tuple[Float[Tensor, "kernels powers pieces"], Float[Tensor, " pieces"]]:
    """Coefficients on `pieces`, and the error of each piece between its nodes."""
    # both ends and the extrema of Chebyshev's polynomial next to them and in the middle: where errors are largest
    extrema = torch.tensor([0, 1, DEGREE // 2 + 1, DEGREE, DEGREE + 1], dtype=torch.float64)
    nodes, checks = torch.cos(_node_angles()), torch.cos(extrema * (math.pi / (DEGREE + 1)))
    values = evaluate(pieces.correlations(torch.cat([nodes, checks])))
    coefficients = _interpolate(values[..., : len(nodes)])
    seen = checks.unsqueeze(1) ** torch.arange(DEGREE + 1) @ coefficients
    deviation = (seen.transpose(1, 2) - values[..., len(nodes) :]).abs()
    largest = values.abs().amax(dim=(1, 2), keepdim=True)
    relative = deviation / torch.where(largest > 0, largest, 1.0)
    return coefficients, relative.amax(dim=(0, 2)).nan_to_num(nan=math.inf)


def _interpolate(values: Float[Tensor, "kernels pieces nodes"]) -> Float[Tensor, "kernels powers pieces"]:
    # two products, not their product: only the small high-order coefficients meet the large numbers of the second one
    chebyshev_of_values, powers_of_chebyshev = _transforms()
    return powers_of_chebyshev @ (chebyshev_of_values @ values.transpose(1, 2))


@lru_cache(maxsize=1)
def _transforms() -> tuple[Float[Tensor, "orders nodes"], Float[Tensor, "powers orders"]]:
    """The discrete Chebyshev transform, and Chebyshev's polynomials by powers, which are whole numbers."""
    order = torch.arange(DEGREE + 1, dtype=torch.float64).unsqueeze(1)
    weights = torch.cos(order * _node_angles()) * (2 / (DEGREE + 1))
    weights[0] /= 2
    columns = [np.polynomial.chebyshev.cheb2poly(unit) for unit in np.eye(DEGREE + 1)]
    padded = [np.pad(column, (0, DEGREE + 1 - len(column))) for column in columns]
    return weights, torch.tensor(np.stack(padded, axis=1))


def _node_angles() -> Float[Tensor, " nodes"]:
    """Their cosines are Chebyshev's nodes on (−1, 1)."""
    return (torch.arange(DEGREE + 1, dtype=torch.float64) + 0.5) * (math.pi / (DEGREE + 1))


@dataclass(frozen=True)
class _QuickTable:
    """How a quick table is made for a dtype."""

    degree: int  # of the polynomials
    pieces: tuple[int, ...]  # numbers of them that are tried; up to 512 KiB of coefficients stay in a core's cache
    wanted: float  # error at which the search stops, relative to the largest value
    least: float  # keeps opposite inputs from a division by zero; q is then 1 to rounding


_QUICK = {
    # less than the rounding of a float32 cosine moves the kernel
    torch.float32: _QuickTable(1, (2**12, 2**14, 2**16), 3e-7, 1e-14),
    torch.float64: _QuickTable(3, (2**10, 2**12, 2**14), 1e-13, 1e-30),
}


def quick_table(kernel: Callable[[Tensor], Tensor], dtype: torch.dtype) -> Table:
    """The smallest quick table of a function of the angle that is good to rounding, or else the most accurate one."""
    tables: list[Table] = []
    for count in _QUICK[dtype].pieces:
        tables += [_quick_with(kernel, QuickPieces(focus, count), dtype) for focus in _FOCUSES]
        best = min(tables, key=lambda table: table.error)
        if best.error <= _QUICK[dtype].wanted:
            break
    return best


def _quick_with(kernel: Callable[[Tensor], Tensor], pieces: QuickPieces, dtype: torch.dtype) -> Table:
    """The table that takes the kernel's values at both ends of a piece and, if its degree asks, in between."""
    degree, count, focus = _QUICK[dtype].degree, pieces.count, pieces.focus
    q = torch.linspace(0, 1, 2 * degree * count + 1, dtype=torch.float64)
    k = kernel(2 * torch.atan2(focus * q, 1 - q))
    places = torch.arange(2 * degree + 1, dtype=torch.float64) / (2 * degree)
    powers = places.unsqueeze(1) ** torch.arange(degree + 1)
    coefficients = k[::2].unfold(0, degree + 1, degree) @ torch.linalg.inv(powers[::2]).T
    halfway = k[1::2].reshape(count, degree)
    largest = float(k.abs().max()) or 1.0
    error = float((coefficients @ powers[1::2].T - halfway).abs().max()) / largest
    last = torch.cat([k[-1:], k.new_zeros(degree)]).unsqueeze(0)
    return Table(pieces, torch.cat([coefficients, last]).to(dtype).T.contiguous(), error)


def piecewise_polynomial(
    place: Float[Tensor, "..."], piece: Int[Tensor, "..."], coefficients: Float[Tensor, "powers pieces"]
) -> Float[Tensor, "..."]:
    """Σ_p coefficients[p, piece] · place^p at each entry, differentiable (twice, too) in place and coefficients."""
    return _PiecewisePolynomial.apply(place, piece, coefficients)


class _PiecewisePolynomial(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, place: Tensor, piece: Tensor, coefficients: Tensor) -> Tensor:
        ctx.save_for_backward(place, piece, coefficients)
        index, flat = piece.flatten(), place.flatten()
        total = coefficients[-1].index_select(0, index)
        for coefficient in reversed(coefficients[:-1].unbind()):  # Horner's rule
            total = coefficient.index_select(0, index).addcmul_(total, flat)
        return total.view(place.shape)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None, Tensor | None]:
        (gradient,) = gradients
        place, piece, coefficients = ctx.saved_tensors
        for_place = for_coefficients = None
        if ctx.needs_input_grad[0]:
            powers = torch.arange(1, len(coefficients), dtype=coefficients.dtype, device=coefficients.device)
            slopes = coefficients[1:] * powers.unsqueeze(1) if len(powers) else torch.zeros_like(coefficients)
            for_place = gradient * piecewise_polynomial(place, piece, slopes)
        if ctx.needs_input_grad[2]:
            for_coefficients = _moments(gradient, place, piece, coefficients.shape)
        return for_place, None, for_coefficients


def _moments(gradient: Tensor, place: Tensor, piece: Tensor, shape: torch.Size) -> Tensor:
    """Σ gradient · place^p over the entries of each piece."""
    index, power, flat = piece.flatten(), gradient.flatten(), place.flatten()
    rows = []
    for _ in range(shape[0]):
        rows.append(power.new_zeros(shape[1]).index_add(0, index, power))
        power = power * flat
    return torch.stack(rows)
