"""The depth-free evaluation: a kernel tabulated once as a function of the angle, whatever the depth.

Both kernels are analytic in θ on [0, π] (not in cos θ), so a polynomial per piece reaches rounding with few pieces.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from skiplens.base.axes import Float, Int
from skiplens.base.errors import DidNotConverge
from skiplens.kernels.arc_cosine import Correlation, correlation_of_angle, correlation_of_supplement
from skiplens.kernels.infinite_network import Stretch

DEGREE = 9

_FIRST_PIECES = 16

_MOST_PIECES = 512

Evaluate = Callable[[Correlation], Tensor]
"""From correlations of any shape to (kernels, *shape)."""


@dataclass(frozen=True)
class Pieces:
    """Equal pieces in log(1 + κθ) for θ ≤ π/2, then equal pieces in log(1 + μη), η = π − θ, down to η = 0.

    Attributes:
        stretch: κ and μ.
        left: How many pieces cover [0, π/2].
        right: How many pieces cover [π/2, π].
    """

    stretch: Stretch
    left: int
    right: int

    def __len__(self) -> int:
        return self.left + self.right

    def locate(self, angle: Tensor) -> tuple[Int[Tensor, "..."], Float[Tensor, "..."]]:
        """The number of the piece each angle lies in, and its place in that piece, from −1 to 1."""
        kappa, mu = self._stretches()
        from_left = torch.log1p(kappa * angle) * (self.left / math.log1p(kappa * _HALF_PI))
        from_right = torch.log1p(mu * (math.pi - angle)) * (self.right / math.log1p(mu * _HALF_PI))
        position = torch.where(angle <= _HALF_PI, from_left, len(self) - from_right)
        piece = position.detach().floor().clamp(0, len(self) - 1)
        return piece.long(), 2 * (position - piece) - 1

    def correlations(self, places: Float[Tensor, " places"]) -> Correlation:
        """The correlations at `places` in [−1, 1] of every piece, as (pieces, places)."""
        kappa, mu = self._stretches()
        start = torch.arange(len(self), dtype=places.dtype, device=places.device).unsqueeze(1)
        position = start + (places + 1) / 2
        left = torch.expm1(position[: self.left] * (math.log1p(kappa * _HALF_PI) / self.left)) / kappa
        steps_from_pi = (len(self) - position[self.left :]).clamp_min(0)
        right = torch.expm1(steps_from_pi * (math.log1p(mu * _HALF_PI) / self.right)) / mu
        near, far = correlation_of_angle(left), correlation_of_supplement(right)
        return Correlation(*(torch.cat(pair) for pair in zip(near, far, strict=True)))

    def _stretches(self) -> tuple[float, float]:
        return max(self.stretch.equal, _LEAST_STRETCH), max(self.stretch.opposite, _LEAST_STRETCH)


@dataclass(frozen=True, eq=False)
class Table:
    """Kernels as piecewise polynomials of the angle.

    Attributes:
        pieces: Where the pieces lie.
        coefficients: Coefficient of the power p of the place in each piece.
        error: Largest deviation from the recursion seen between the nodes, relative to each kernel's largest value.
    """

    pieces: Pieces
    coefficients: Float[Tensor, "kernels powers pieces"]
    error: float

    def __call__(self, angle: Float[Tensor, "..."], kernel: int) -> Float[Tensor, "..."]:
        """Kernel number `kernel` at each angle, differentiable in the angle and in the coefficients."""
        piece, place = self.pieces.locate(angle)
        return piecewise_polynomial(place, piece, self.coefficients[kernel].to(angle.device))


def tabulate(evaluate: Evaluate, stretch: Stretch, accuracy: float) -> Table:
    """A table of `evaluate` whose error is at most `accuracy`, checked against `evaluate` between its nodes.

    The number of pieces is found without gradients; the coefficients carry the gradient of what `evaluate` depends on.

    Raises:
        DidNotConverge: If `accuracy` cannot be reached.
    """
    with torch.no_grad():
        table = _refined(evaluate, stretch, accuracy)
    if torch.is_grad_enabled():
        nodes = table.pieces.correlations(_nodes())
        return replace(table, coefficients=_interpolate(evaluate(nodes)))
    return table


def _refined(evaluate: Evaluate, stretch: Stretch, accuracy: float) -> Table:
    pieces = Pieces(stretch, _FIRST_PIECES, _FIRST_PIECES)
    while True:
        coefficients, errors = _fit(evaluate, pieces)
        left, right = float(errors[: pieces.left].max()), float(errors[pieces.left :].max())
        table = Table(pieces, coefficients, max(left, right))
        if table.error <= accuracy:
            return table
        pieces = Pieces(
            stretch, pieces.left * (2 if left > accuracy else 1), pieces.right * (2 if right > accuracy else 1)
        )
        if max(pieces.left, pieces.right) > _MOST_PIECES:
            raise DidNotConverge(
                f"The kernel's table reached an error of {table.error:.1e}, not the wanted accuracy of {accuracy:.1e}. "
                "Ask for a larger accuracy, or evaluate by the recursion (evaluation='recursion')."
            )


def _fit(evaluate: Evaluate, pieces: Pieces) -> tuple[Float[Tensor, "kernels powers pieces"], Float[Tensor, " pieces"]]:
    """Coefficients on `pieces`, and the error of each piece between its nodes."""
    nodes, checks = _nodes(), _places_between_nodes()
    values = evaluate(pieces.correlations(torch.cat([nodes, checks])))
    coefficients = _interpolate(values[..., : len(nodes)])
    seen = _powers(checks) @ coefficients
    deviation = (seen.transpose(1, 2) - values[..., len(nodes) :]).abs()
    largest = values.abs().amax(dim=(1, 2), keepdim=True)
    relative = deviation / torch.where(largest > 0, largest, 1.0)
    return coefficients, relative.amax(dim=(0, 2)).nan_to_num(nan=math.inf)


def _interpolate(values: Float[Tensor, "kernels pieces nodes"]) -> Float[Tensor, "kernels powers pieces"]:
    # two products, not their product: only the small high-order coefficients meet the large numbers of the second one
    chebyshev = _chebyshev_of_values() @ values.transpose(1, 2)
    return _powers_of_chebyshev() @ chebyshev


@lru_cache(maxsize=1)
def _chebyshev_of_values() -> Float[Tensor, "orders nodes"]:
    """The discrete Chebyshev transform."""
    order = torch.arange(DEGREE + 1, dtype=torch.float64).unsqueeze(1)
    weights = torch.cos(order * _node_angles()) * (2 / (DEGREE + 1))
    weights[0] /= 2
    return weights


@lru_cache(maxsize=1)
def _powers_of_chebyshev() -> Float[Tensor, "powers orders"]:
    """Chebyshev's polynomials by powers: whole numbers."""
    rows = [np.polynomial.chebyshev.cheb2poly(row) for row in np.eye(DEGREE + 1)]
    return torch.tensor(np.stack([np.pad(row, (0, DEGREE + 1 - len(row))) for row in rows], axis=1))


def _powers(places: Float[Tensor, " places"]) -> Float[Tensor, "places powers"]:
    return places.unsqueeze(1) ** torch.arange(DEGREE + 1)


def _nodes() -> Float[Tensor, " nodes"]:
    """Chebyshev's nodes on (−1, 1)."""
    return torch.cos(_node_angles())


def _node_angles() -> Float[Tensor, " nodes"]:
    return (torch.arange(DEGREE + 1, dtype=torch.float64) + 0.5) * (math.pi / (DEGREE + 1))


def _places_between_nodes() -> Float[Tensor, " places"]:
    """Both ends and the extrema of Chebyshev's polynomial next to them and in the middle: where errors are largest."""
    extrema = torch.tensor([0, 1, DEGREE // 2 + 1, DEGREE, DEGREE + 1], dtype=torch.float64)
    return torch.cos(extrema * (math.pi / (DEGREE + 1)))


_HALF_PI = math.pi / 2

_LEAST_STRETCH = 1e-3  # below it the logarithm is a straight line to rounding


def piecewise_polynomial(
    place: Float[Tensor, "..."], piece: Int[Tensor, "..."], coefficients: Float[Tensor, "powers pieces"]
) -> Float[Tensor, "..."]:
    """Σ_p coefficients[p, piece] · place^p at each entry, differentiable (twice, too) in place and coefficients."""
    return _PiecewisePolynomial.apply(place, piece, coefficients)


class _PiecewisePolynomial(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, place: Tensor, piece: Tensor, coefficients: Tensor) -> Tensor:
        ctx.save_for_backward(place, piece, coefficients)
        return _horner(place, piece, coefficients)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None, Tensor | None]:
        (gradient,) = gradients
        place, piece, coefficients = ctx.saved_tensors
        for_place = for_coefficients = None
        if ctx.needs_input_grad[0]:
            for_place = gradient * piecewise_polynomial(place, piece, _derivative(coefficients))
        if ctx.needs_input_grad[2]:
            for_coefficients = _moments(gradient, place, piece, coefficients.shape)
        return for_place, None, for_coefficients


def _horner(place: Tensor, piece: Tensor, coefficients: Tensor) -> Tensor:
    index, flat = piece.flatten(), place.flatten()
    total = coefficients[-1].index_select(0, index)
    for coefficient in reversed(coefficients[:-1].unbind()):
        total = torch.addcmul(coefficient.index_select(0, index), total, flat)
    return total.view(place.shape)


def _derivative(coefficients: Tensor) -> Tensor:
    powers = torch.arange(1, len(coefficients), dtype=coefficients.dtype, device=coefficients.device)
    return coefficients[1:] * powers.unsqueeze(1) if len(powers) else torch.zeros_like(coefficients)


def _moments(gradient: Tensor, place: Tensor, piece: Tensor, shape: torch.Size) -> Tensor:
    """Σ gradient · place^p over the entries of each piece."""
    index, power, flat = piece.flatten(), gradient.flatten(), place.flatten()
    rows = []
    for _ in range(shape[0]):
        rows.append(power.new_zeros(shape[1]).index_add(0, index, power))
        power = power * flat
    return torch.stack(rows)
