"""Piecewise polynomials that autograd can differentiate without keeping a coefficient per entry."""

from typing import Any

import torch
from torch import Tensor

from skiplens.core.axes import Float, Int


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
