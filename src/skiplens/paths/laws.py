"""Which law describes a measured path spectrum, and with which depth ratio."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from skiplens.base import Float, InvalidInputError, pick, refuse_if
from skiplens.paths.weights import log_binomial, path_weights

_LOG_RANGE = (-25.0, 12.0)  # of a law's parameter
MOST_BRANCHES = 96  # kept: with 10^6 blocks the energy of paths through more branches than this is below 10^−30


@dataclass(frozen=True)
class PathLaw:
    """A family of path spectra with one positive parameter; the mean number of branches grows with it.

    Attributes:
        name: One word for it.
        meaning: Which networks it describes.
        energies: Shares of energy for 0..q branches from q and the parameter.
        most_blocks: Up to how many blocks it is fitted.
    """

    name: str
    meaning: str
    energies: Callable[[int, float], Float[Tensor, " orders"]]
    most_blocks: int = 10**6


@dataclass(frozen=True, eq=False)
class LawFit:
    """The member of a law that has the measured mean number of branches.

    Attributes:
        name: The law.
        depth_ratio: β (squared binomial), the branch power gain g (binomial), or f/(1−f) with f the mean share of
            branches that are used (the others).
        distance: Total variation between the measured shares and the law's: 0 is perfect, 1 is disjoint.
        parameter: The law's own parameter.
        energies: The law's shares of energy for 0..q branches.
    """

    name: str
    depth_ratio: float
    distance: float
    parameter: float
    energies: Float[Tensor, " orders"]


def fit_law(energy: Float[Tensor, " orders"]) -> LawFit:
    """The law nearest to a measured spectrum in total variation.

    Args:
        energy: Energies of all paths through exactly 0, 1 .. q branches, not normalised.

    Examples:
        >>> fit_law(squared_binomial(20, 0.5)).name
        'squared_binomial'
    """
    return fit_laws(energy)[0]


def fit_laws(energy: Float[Tensor, " orders"]) -> list[LawFit]:
    """Every law fitted to a measured spectrum, the nearest first.

    Each law is given the measured mean number of branches, which for the two binomial laws is also the most likely
    parameter; a law that cannot reach the mean is given its nearest member.
    """
    shares = _shares(energy)
    blocks = len(shares) - 1
    fits = [_fit(law, shares) for law in LAWS if blocks <= law.most_blocks]
    return sorted(fits, key=lambda fit: fit.distance)


def fit_named_law(energy: Float[Tensor, " orders"], name: str) -> LawFit:
    """The law called `name` fitted to a measured spectrum, at the price of this one alone."""
    shares = _shares(energy)
    return _fit(pick({law.name: law for law in LAWS}, name, f"There is no law {name!r}."), shares)


def squared_binomial(blocks: int, depth_ratio: float) -> Float[Tensor, " orders"]:
    """C(q,j)² β^{2j}, normalised: the paper's ε²; branches add up in phase."""
    return path_weights(blocks + 1, depth_ratio).square()


def binomial(blocks: int, gain: float) -> Float[Tensor, " orders"]:
    """C(q,j) g^j, normalised: branches are orthogonal, each with g times the power of the stream it reads."""
    return log_binomial(torch.arange(blocks + 1), blocks, torch.tensor(gain, dtype=torch.float64)).exp()


def rectified_path_energies(blocks: int, weight_variance: float) -> Float[Tensor, " orders"]:
    """The share of energy of paths through 0, 1 .. q branches for weights of variance `weight_variance`/width.

    Gram matrix G and means mu of the orders, Q = 1ᵀG1, a = G1/Q, k = √(σ²Q/(2π)), with a shifted by one order:
    G ← G + (σ²/2) shift(G) + k (mu aᵀ + a muᵀ), mu ← mu + k a. The work grows with the cube of the blocks.
    """
    refuse_if(blocks < 0, f"The number of blocks must not be negative; got {blocks}.")
    if not (math.isfinite(weight_variance) and weight_variance > 0):
        raise InvalidInputError(
            f"The weight variance (times the width) must be positive and finite; got {weight_variance:g}. "
            "He initialisation has 2."
        )
    variance = float(weight_variance)
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


def linear_branch_energies(scales: Float[Tensor, " layers"]) -> Float[Tensor, " orders"]:
    """The share of energy of paths through 0, 1 .. p−1 branches, for zero-mean linear branches.

    The coefficients of ∏_l (Q_{l−1} + t λ_l²)/Q_l: a sum of independent coins. Equal scales give |s(p, r)|/p! with
    unsigned Stirling numbers of the first kind.

    Examples:
        >>> (6 * linear_branch_energies(torch.ones(3))).round(decimals=12).tolist()
        [2.0, 3.0, 1.0]
    """
    squares = check_scales(scales).square()
    used = squares[1:] / squares.cumsum(0)[1:]  # λ_l²/Q_l: how likely a path, drawn by energy, takes the branch
    energies = used.new_zeros(len(used) + 1)
    energies[0] = 1
    for block, share in enumerate(used.tolist(), start=1):
        kept = energies[: min(block, MOST_BRANCHES) + 1]
        kept[1:] = (1 - share) * kept[1:] + share * kept[:-1]
        kept[0] *= 1 - share
    return energies


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


def check_scales(scales: Tensor) -> Float[Tensor, " layers"]:
    """Scales as float64, refused unless there is at least one, all finite and the first one not zero."""
    lambdas = torch.as_tensor(scales, dtype=torch.float64)
    if lambdas.ndim != 1 or not len(lambdas) or not bool(torch.isfinite(lambdas).all()) or lambdas[0] == 0:
        raise InvalidInputError(
            f"Scales must be a list of finite numbers, one for each layer, the first of them not 0; got shape "
            f"{tuple(lambdas.shape)}. Without the first layer no signal enters the stream."
        )
    return lambdas


def _equal_scales(blocks: int, ratio: float) -> Tensor:
    """Batch-norm scales with λ_l²/λ_1² = ratio."""
    return torch.tensor([1.0, math.sqrt(ratio)], dtype=torch.float64).repeat_interleave(torch.tensor([1, blocks]))


_IN_PHASE = "branches add up in phase, as those with a positive mean do (the paper's law)"
LAWS = (
    PathLaw("squared_binomial", _IN_PHASE, squared_binomial),
    PathLaw(
        "binomial", "branches are independent of each other, as zero-mean branches without normalisation are", binomial
    ),
    PathLaw(
        "stirling",
        "each branch is normalised to one scale, so that later blocks count for less",
        lambda blocks, ratio: linear_branch_energies(_equal_scales(blocks, ratio)),
    ),
    PathLaw(
        "batch_norm_mean_field",
        "ReLU branches, each centred and normalised to one scale",
        lambda blocks, ratio: rectified_branch_energies(_equal_scales(blocks, ratio)),
    ),
    PathLaw("rectified_mean_field", "x + ReLU(Wx) without normalisation", rectified_path_energies, most_blocks=200),
)
"""The laws that are compared."""


def _fit(law: PathLaw, shares: Tensor) -> LawFit:
    from scipy.optimize import brentq  # it takes longer to load than all of Skiplens

    blocks = len(shares) - 1
    wanted = _mean(shares)

    def excess(log_parameter: float) -> float:
        return _mean(law.energies(blocks, math.exp(log_parameter))) - wanted

    low, high = _LOG_RANGE
    if excess(high) <= 0:
        parameter = math.exp(high)
    else:
        parameter = math.exp(low if excess(low) >= 0 else brentq(excess, low, high, xtol=1e-12))
    energies = law.energies(blocks, parameter).to(shares.device)
    distance = 0.5 * (energies - shares).abs().sum().item()
    own = law.name in ("squared_binomial", "binomial")
    return LawFit(law.name, parameter if own else wanted / (blocks - wanted), distance, parameter, energies)


def _mean(shares: Tensor) -> float:
    return float(shares @ torch.arange(len(shares), dtype=shares.dtype, device=shares.device))


def _shares(energy: Tensor) -> Tensor:
    """Energies as shares that add up to 1, refused if no law can be told from them."""
    energy = torch.as_tensor(energy).to(torch.float64)
    if energy.ndim != 1 or len(energy) < 3:
        raise InvalidInputError(
            f"A law is fitted to the energies of paths through 0, 1 .. q branches with q >= 2; got shape "
            f"{tuple(energy.shape)}. With fewer blocks every law fits."
        )
    if not bool((torch.isfinite(energy) & (energy >= 0)).all()):
        raise InvalidInputError("Energies must be finite and not negative; got one that is not.")
    if energy[1:].sum() == 0 or energy[:-1].sum() == 0:
        raise InvalidInputError(
            "All the energy is in a single extreme order (no branch, or every branch, is used), so no law can be told "
            "from it."
        )
    return energy / energy.sum()
