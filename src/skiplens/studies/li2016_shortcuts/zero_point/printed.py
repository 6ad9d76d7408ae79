"""The Hessians of theorem 2 as the paper prints them, entry by entry."""

import math

import torch

from skiplens.core.axes import Float, Tensor


def printed_permutation(width: int) -> Float[Tensor, "entries entries"]:
    """P of equation (24): P_ij = 1 if and only if i = ((j − 1) mod d) d + ⌈j/d⌉, counted from 1."""
    P = torch.zeros(width**2, width**2, dtype=torch.float64)
    for j in range(1, width**2 + 1):
        i = ((j - 1) % width) * width + math.ceil(j / width)
        P[i - 1, j - 1] = 1.0
    return P


def printed_two_shortcut(
    slope: Float[Tensor, "width width"], factor: float, units: int
) -> Float[Tensor, "params params"]:
    """Equations (8) and (25): blocks [[0, Aᵀ], [A, 0]] with A = s diag(G, …, G) Pᵀ.

    Args:
        slope: G = Σ^{Xσ_pre(X)} − Σ^{Yσ_pre(X)}.
        factor: s = σ_mid'(0) σ_post'(0).
        units: Residual units.
    """
    A = factor * torch.block_diag(*[slope] * len(slope)) @ printed_permutation(len(slope)).T
    zero = torch.zeros_like(A)
    unit = torch.cat([torch.cat([zero, A.T], dim=1), torch.cat([A, zero], dim=1)])
    return torch.block_diag(*[unit] * units)


def printed_one_shortcut(
    inputs: Float[Tensor, "width width"], slope: Float[Tensor, "width width"], units: int
) -> Float[Tensor, "params params"]:
    """Equations (10), (29) and (32): B on the diagonal, A below it, Aᵀ above it.

    Args:
        inputs: Σ^{XX}.
        slope: Σ^{XX} − Σ^{YX}.
        units: Residual units.
    """
    P = printed_permutation(len(slope))
    B = P @ torch.block_diag(*[inputs] * len(slope)) @ P.T
    A = torch.block_diag(*[slope] * len(slope)) @ P.T + B
    rows = [[B if r == c else A if r > c else A.T for c in range(units)] for r in range(units)]
    return torch.cat([torch.cat(row, dim=1) for row in rows])


def printed_condition_number(slope: Float[Tensor, "width width"]) -> float:
    """Equation (9), √cond(GᵀG); from G itself, since GᵀG loses half of the digits."""
    return float(torch.linalg.cond(slope))
