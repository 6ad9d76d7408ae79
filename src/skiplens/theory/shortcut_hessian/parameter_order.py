"""The order of parameters (definition 5): unit, matrix in the unit, column, row; the row is fastest."""

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.core.errors import InvalidInputError


def flatten(weights: Float[Tensor, "*batch matrices outputs features"]) -> Float[Tensor, "*batch params"]:
    """The weights as one vector vec(W_1), vec(W_2), …, columns stacked."""
    return weights.transpose(-2, -1).flatten(-3)


def unflatten(params: Float[Tensor, "*batch params"], width: int) -> Float[Tensor, "*batch matrices width width"]:
    """The stack of square matrices whose vector is `params`."""
    if params.shape[-1] % width**2:
        raise InvalidInputError(
            f"{params.shape[-1]} parameters are not whole matrices of width {width} ({width**2} entries each)."
        )
    return params.unflatten(-1, (-1, width, width)).transpose(-2, -1)


def commutation_matrix(rows: int, columns: int | None = None) -> Float[Tensor, "entries entries"]:
    """The permutation K with K vec(V) = vec(Vᵀ) for every V of `rows` × `columns` (square by default)."""
    columns = rows if columns is None else columns
    place = torch.arange(rows * columns).reshape(columns, rows)
    return torch.eye(rows * columns, dtype=torch.float64)[place.T.reshape(-1)]
