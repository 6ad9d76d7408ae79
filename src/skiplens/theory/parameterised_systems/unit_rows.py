"""Rows divided by sqrt(ε + |row|²) with first and second derivatives: what weight and batch normalisation share.

All derivatives between different rows vanish, so they are stored row by row.
"""

import math

import torch

from skiplens.core.axes import Float, Tensor

CURVATURE = 48 / (25 * math.sqrt(5))
"""K2: the largest second derivative of x/sqrt(1 + x²), attained at |x| = 1/2."""


def unit_rows(rows: Float[Tensor, "rows entries"], epsilon: float) -> Float[Tensor, "rows entries"]:
    """Each row w as w/sqrt(ε + |w|²)."""
    return rows * (epsilon + rows.square().sum(1, keepdim=True)).rsqrt()


def unit_rows_derivative(rows: Float[Tensor, "rows entries"], epsilon: float) -> Float[Tensor, "rows entries entries"]:
    """For each row the matrix s^(−1/2) (δ_jk − w_j w_k/s), s = ε + |w|² (equation 30)."""
    s = _squares(rows, epsilon)[:, None, None]
    eye = torch.eye(rows.shape[1], dtype=rows.dtype, device=rows.device)
    return s**-0.5 * (eye - torch.einsum("rj,rk->rjk", rows, rows) / s)


def unit_rows_second_derivative(
    rows: Float[Tensor, "rows entries"], epsilon: float
) -> Float[Tensor, "rows entries entries entries"]:
    """For each row s^(−3/2) (3 w_j w_k w_n/s − δ_jk w_n − δ_kn w_j − δ_jn w_k) (equations 28 and 31)."""
    s = _squares(rows, epsilon)[:, None, None, None]
    eye = torch.eye(rows.shape[1], dtype=rows.dtype, device=rows.device)
    cubic = 3 * torch.einsum("rj,rk,rn->rjkn", rows, rows, rows) / s
    first = torch.einsum("jk,rn->rjkn", eye, rows)
    second = torch.einsum("kn,rj->rjkn", eye, rows)
    third = torch.einsum("jn,rk->rjkn", eye, rows)
    return s**-1.5 * (cubic - first - second - third)


def centring(rows: Float[Tensor, "rows entries"]) -> Float[Tensor, "entries entries"]:
    """The matrix that subtracts the mean from a row (equation 29)."""
    n = rows.shape[1]
    return torch.eye(n, dtype=rows.dtype, device=rows.device) - 1 / n


def _squares(rows: Tensor, epsilon: float) -> Tensor:
    return epsilon + rows.square().sum(1)
