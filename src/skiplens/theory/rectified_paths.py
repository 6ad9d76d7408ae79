"""Path spectra of the paper's own network, x + ReLU(Wx) without normalisation, in the limit of infinite width.

ReLU branches have a positive mean, so they add up in phase; that, not shared weights, is why the squared binomial law
describes this network. The depth ratio comes out somewhat different from ρ√n C.
"""

import math

import torch
from scipy.optimize import brentq
from torch import Tensor

from skiplens.core.axes import Float
from skiplens.core.errors import InvalidInputError


def rectified_path_energies(blocks: int, weight_variance: float) -> Float[Tensor, " orders"]:
    """The share of energy of paths through 0, 1 .. q branches for weights of variance `weight_variance`/width.

    Gram matrix G and means mu of the orders, Q = 1ᵀG1, a = G1/Q, k = √(σ²Q/(2π)), with a shifted by one order:
    G ← G + (σ²/2) shift(G) + k (mu aᵀ + a muᵀ), mu ← mu + k a. The work grows with the cube of the blocks.
    """
    if blocks < 0:
        raise InvalidInputError(f"The number of blocks must not be negative; got {blocks}.")
    variance = _positive(weight_variance)
    G = torch.zeros(blocks + 1, blocks + 1, dtype=torch.float64)
    G[0, 0] = 1
    mu = torch.zeros(blocks + 1, dtype=torch.float64)
    k = math.sqrt(variance / (2 * math.pi))  # Q is kept at 1, so that nothing overflows
    for _ in range(blocks):
        a = torch.cat([mu.new_zeros(1), G.sum(1)[:-1]])
        cross = k * torch.outer(mu, a)
        G[1:, 1:] += variance / 2 * G[:-1, :-1].clone()
        G += cross + cross.T
        mu = mu + k * a
        Q = G.sum()
        G, mu = G / Q, mu / Q.sqrt()
    energies = G.diagonal()
    return energies / energies.sum()


def rectified_depth_ratio(weight_variance: float) -> float:
    """β_eff = f/(1 − f) with f the fraction of branches that the energy of a deep network uses.

    Compare the paper's ρ√(σ²): 5 % off for σ² ≤ 0.5, 22 % too low at He initialisation (σ² = 2).
    """
    b = math.sqrt(_positive(weight_variance) / (2 * math.pi))
    kappa = brentq(lambda k: 2 * k + b - math.pi * b * k**2 - 2 * k**3, 1e-12, 2 + 2 / b, xtol=1e-15)
    gamma = 1 + b / kappa
    # top eigenvalue of T(t) = [[(1 + t c)/gamma, b/gamma], [t b, 1]] and its derivative at t = 1
    c = math.pi * b**2 + b * kappa
    trace, trace_slope = (1 + c) / gamma + 1, c / gamma
    determinant, determinant_slope = (1 + c - b**2) / gamma, (c - b**2) / gamma
    root = math.sqrt(trace**2 - 4 * determinant)
    top, slope = (trace + root) / 2, (trace_slope + (trace * trace_slope - 2 * determinant_slope) / root) / 2
    return slope / (top - slope)


def _positive(weight_variance: float) -> float:
    if not (math.isfinite(weight_variance) and weight_variance > 0):
        raise InvalidInputError(
            f"The weight variance (times the width) must be positive and finite; got {weight_variance:g}. "
            "He initialisation has 2."
        )
    return float(weight_variance)
