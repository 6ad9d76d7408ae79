"""The coefficients of Pf(X + ζ Y) for skew-symmetric X and Y that come from counting eigenvalues."""

import math

import torch
from torch import Tensor

from skiplens.core.axes import Float


def pfaffian_coefficients(
    X: Float[Tensor, "batch size size"], Y: Float[Tensor, "batch size size"], degree: int
) -> Float[Tensor, "batch orders"]:
    """The log of the coefficients of ζ^0 .. ζ^degree of |Pf(X + ζY)|, all of which must be non-negative.

    (X+Y)^{-1} Y has each eigenvalue τ twice and Pf(X + ζY) = Pf(X+Y) ∏ (1 − τ + ζτ). Here all τ lie in [0, 1], so the
    product is the law of a sum of independent coins: no subtraction, hence small coefficients stay accurate.
    """
    whole = X + Y
    eigenvalues = torch.linalg.eigvals(torch.linalg.solve(whole, Y)).real.sort(dim=-1).values
    coins = ((eigenvalues[:, ::2] + eigenvalues[:, 1::2]) / 2).clamp(0, 1)
    log_pfaffian = torch.linalg.slogdet(whole).logabsdet / 2
    return log_pfaffian[:, None] + _sum_of_coins(coins)[:, : degree + 1].log()


def bordered(A: Float[Tensor, "batch size size"], *vectors: Float[Tensor, "batch size"]) -> Tensor:
    """A with one skew row and column more for each vector."""
    size, extra = A.shape[-1], len(vectors)
    out = A.new_zeros(len(A), size + extra, size + extra)
    out[:, :size, :size] = A
    for i, vector in enumerate(vectors, start=size):
        out[:, :size, i], out[:, i, :size] = vector, -vector
    return out


def unit_and_log_norm(vector: Float[Tensor, "batch size"]) -> tuple[Tensor, Tensor]:
    """The vector's direction and the log of its length; a vector that underflowed gets some direction and −∞."""
    norm = vector.norm(dim=-1)
    lost = norm < 1e-150
    direction = vector / torch.where(lost, 1.0, norm)[:, None]
    some = torch.zeros_like(vector)
    some[:, 0] = 1
    return torch.where(lost[:, None], some, direction), torch.where(lost, -math.inf, norm.log())


def _sum_of_coins(probabilities: Float[Tensor, "batch coins"]) -> Float[Tensor, "batch sums"]:
    """The law of the number of heads."""
    law = torch.ones_like(probabilities[:, :1])
    for heads in probabilities.unbind(-1):
        longer = law.new_zeros(len(law), law.shape[1] + 1)
        longer[:, :-1] = law * (1 - heads)[:, None]
        longer[:, 1:] += law * heads[:, None]
        law = longer
    return law
