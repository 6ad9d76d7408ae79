"""Loss, gradient and exact Hessian of linear residual networks in closed form, from second moments alone.

With R_k, L_k and M_kk' of `LinearChain`, G = W S_xx − S_yx, and all inputs (c, e) and outputs (b, q) on common axes,

    H[(c, b), (e, q)] = (R S_xx Rᵀ)[c, e] (LᵀL)[b, q] + F[c, q] F[e, b],

where F is M below the diagonal of blocks and R Gᵀ L above it. The first term is the Gauss–Newton part, positive
semidefinite of rank at most outputs × features; the second vanishes with G.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.core.errors import InvalidInputError
from skiplens.core.fresh_memory import fresh_empty
from skiplens.theory.shortcut_hessian.arguments import require_dense_fits
from skiplens.theory.shortcut_hessian.linear_chain import LinearChain, LinearUnit, Places, check_chain, linear_chain
from skiplens.theory.shortcut_hessian.moments import SecondMoments

_INSTEAD = "linear_spectrum counts eigenvalues without the matrix and gives the index and any quantile."


def linear_loss(units: Sequence[LinearUnit], moments: SecondMoments) -> Float[Tensor, ""]:
    """The loss 1/(2m) Σ ‖y − W x‖² of the network."""
    return moments.loss(_checked(units, moments).whole)


def linear_gradient(units: Sequence[LinearUnit], moments: SecondMoments) -> Float[Tensor, " params"]:
    """The gradient Lᵀ_k G Rᵀ_k of the loss in the order of definition 5."""
    chain = _checked(units, moments)
    by_place = chain.into @ moments.slope(chain.whole).T @ chain.onward
    return by_place[chain.places.inputs, chain.places.outputs]


def linear_hessian(
    units: Sequence[LinearUnit], moments: SecondMoments, part: str = "all", out: Tensor | None = None
) -> Float[Tensor, "params params"]:
    """The exact Hessian of the loss in the order of definition 5, or one of its two parts.

    Args:
        units: The network.
        moments: Those of its data.
        part: all, gauss_newton or residual.
        out: A matrix to write into. Being handed memory for a large new one takes about a third of the time of its
            entries, so whoever needs many Hessians keeps one.

    Examples:
        >>> from skiplens.theory.shortcut_hessian import second_moments, shortcut_units
        >>> x = torch.eye(4, dtype=torch.float64)
        >>> linear_hessian(shortcut_units(torch.zeros_like(x)[None], 1), second_moments(x, x)).diagonal().sum().item()
        4.0
    """
    if part not in ("all", "gauss_newton", "residual"):
        raise InvalidInputError(f"part must be all, gauss_newton or residual; got {part!r}.")
    chain = _checked(units, moments)
    params = len(chain.places.inputs)
    hessian = _place(params, chain.whole) if out is None else _checked_place(out, params, chain.whole)
    factors = _factors(chain, moments)
    first = 0
    for number, matrix in enumerate(matrix for unit in units for matrix in unit.matrices):
        rows = hessian[first : first + matrix.numel()].unflatten(0, matrix.T.shape)
        _fill(rows, factors, chain.places, number, part)
        first += matrix.numel()
    return hessian


def _place(params: int, like: Tensor) -> Tensor:
    require_dense_fits(params, like, _INSTEAD)
    return fresh_empty(like, params, params)


def _checked_place(out: Tensor, params: int, like: Tensor) -> Tensor:
    if out.shape != (params, params) or out.dtype != like.dtype or out.device != like.device:
        raise InvalidInputError(
            f"out must be a {params} × {params} matrix of {like.dtype} on {like.device}; "
            f"got {tuple(out.shape)} of {out.dtype} on {out.device}."
        )
    return out


class _Factors(NamedTuple):
    inputs: Tensor  # R S_xx Rᵀ
    outputs: Tensor  # LᵀL
    across: Tensor  # F
    flipped: Tensor  # Fᵀ


def _factors(chain: LinearChain, moments: SecondMoments) -> _Factors:
    inputs = chain.into @ moments.inputs @ chain.into.T
    across = across_factor(chain, chain.into @ moments.slope(chain.whole).T)
    return _Factors(inputs, chain.onward.T @ chain.onward, across, across.T.contiguous())


def across_factor(chain: LinearChain, pulled_slope: Tensor) -> Float[Tensor, "all_inputs all_outputs"]:
    """F: M below the diagonal of blocks, R Gᵀ L above it, zero on it; `pulled_slope` is R Gᵀ."""
    above = chain.places.input_matrices[:, None] < chain.places.output_matrices
    return torch.where(above, pulled_slope @ chain.onward, chain.between)


def _fill(rows: Tensor, factors: _Factors, places: Places, number: int, part: str) -> None:
    """Write the rows (column c, row b, all parameters) of one matrix."""
    c, b = places.input_matrices == number, places.output_matrices == number
    e, q = places.inputs, places.outputs
    inputs, outputs = _spread(factors.inputs[c], e), _spread(factors.outputs[b], q)
    across, flipped = _spread(factors.across[c], q), _spread(factors.flipped[b], e)
    for column, row in enumerate(rows):  # one column of W_k at a time: its factors and its rows stay in the cache
        if part == "residual":
            torch.mul(across[column], flipped, out=row)
            continue
        torch.mul(inputs[column], outputs, out=row)
        if part == "all":
            row.addcmul_(across[column], flipped)


def _spread(rows: Tensor, places: Tensor) -> Tensor:
    """The rows' entry for each parameter (`gather`, because indexing with a tensor is three times slower)."""
    return rows.gather(1, places.expand(len(rows), -1))


def require_same_widths(units: Sequence[LinearUnit], moments: SecondMoments) -> None:
    """Refuse units that make no chain, and moments of data that the network does not take."""
    check_chain(units)
    if (units[-1].outputs, units[0].features) != moments.cross.shape:
        raise InvalidInputError(
            f"The network maps {units[0].features} features to {units[-1].outputs}, but the moments are of "
            f"{moments.cross.shape[1]} features and {moments.cross.shape[0]} targets."
        )


def _checked(units: Sequence[LinearUnit], moments: SecondMoments) -> LinearChain:
    require_same_widths(units, moments)
    return linear_chain(units)
