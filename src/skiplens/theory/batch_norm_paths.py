"""Path spectra of batch-normalised residual networks at initialisation, in the limit of infinite width.

Block l adds λ_l² to a stream of energy Q_{l−1} = λ_1² + … + λ_{l−1}², so a late block matters little: the mean length
is about log(depth). Only ratios of scales count: a common factor changes nothing, a larger λ_1 makes the network
shallower.
"""

import math

import torch
from torch import Tensor

from skiplens.core.axes import Float
from skiplens.theory.batch_norm_moments import check_scales

MOST_BRANCHES = 96
"""Orders kept: with 10^6 blocks the energy of paths through more branches than this is below 10^−30."""


def linear_branch_energies(scales: Float[Tensor, " layers"]) -> Float[Tensor, " orders"]:
    """The share of energy of paths through 0, 1 .. p−1 branches, for zero-mean linear branches.

    The coefficients of ∏_l (Q_{l−1} + t λ_l²)/Q_l: a sum of independent coins. Equal scales give |s(p, r)|/p! with
    unsigned Stirling numbers of the first kind.

    Examples:
        >>> (6 * linear_branch_energies(torch.ones(3))).round(decimals=12).tolist()
        [2.0, 3.0, 1.0]
    """
    used = _branch_shares(check_scales(scales))
    energies = used.new_zeros(len(used) + 1)
    energies[0] = 1
    for block, share in enumerate(used.tolist(), start=1):
        kept = energies[: min(block, MOST_BRANCHES) + 1]
        kept[1:] = (1 - share) * kept[1:] + share * kept[:-1]
        kept[0] *= 1 - share
    return energies


def linear_mean_length(scales: Float[Tensor, " layers"]) -> float:
    """1 + Σ_{l≥2} λ_l²/(λ_1² + … + λ_l²); the harmonic number H_p for equal scales."""
    return 1 + float(_branch_shares(check_scales(scales)).sum())


def rectified_branch_energies(scales: Float[Tensor, " layers"]) -> Float[Tensor, " orders"]:
    """The same for centred ReLU branches, from the Gram matrix of the orders.

    G ← G + shift[λ_l²/(DQ) (G/2 − Q a aᵀ/(2π))] with a = G1/Q, Q = 1ᵀG1, D = ½ − 1/(2π); the shift moves both indices
    up by one. The energies are the diagonal, divided by its sum: orders of one network are correlated.
    """
    lambdas = check_scales(scales)
    orders = min(len(lambdas), MOST_BRANCHES + 1)
    D = 0.5 - 1 / (2 * math.pi)
    G = lambdas.new_zeros(orders, orders)
    G[0, 0] = 1
    for square in (lambdas[1:] / lambdas[0]).square().tolist():
        Q, row_sums = G.sum(), G.sum(1)
        branch = (square / (D * Q)) * (G / 2 - torch.outer(row_sums, row_sums) / (2 * math.pi * Q))
        G[1:, 1:] += branch[:-1, :-1]
    energies = lambdas.new_zeros(len(lambdas))
    energies[:orders] = G.diagonal()
    return energies / energies.sum()


def _branch_shares(lambdas: Tensor) -> Tensor:
    """λ_l²/Q_l for l = 2..p: how likely a path, drawn by energy, takes the branch."""
    return lambdas[1:].square() / lambdas.square().cumsum(0)[1:]
