"""Which law describes a measured path spectrum, and with which depth ratio."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from scipy.optimize import brentq
from torch import Tensor

from skiplens.base.axes import Float
from skiplens.base.errors import InvalidInputError, did_you_mean
from skiplens.paths.weights import log_binomial, path_weights

_LOG_RANGE = (-25.0, 12.0)  # of a law's parameter


@dataclass(frozen=True)
class PathLaw:
    """A family of path spectra with one positive parameter; the mean number of branches grows with it.

    Attributes:
        name: One word for it.
        meaning: Which networks it describes.
        parameter: What the parameter is.
        energies: Shares of energy for 0..q branches from q and the parameter.
        most_blocks: Up to how many blocks it is fitted.
    """

    name: str
    meaning: str
    parameter: str
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
    for law in LAWS:
        if law.name == name:
            return _fit(law, shares)
    raise InvalidInputError(f"There is no law {name!r}. {did_you_mean(name, [law.name for law in LAWS])}")


def squared_binomial(blocks: int, depth_ratio: float) -> Float[Tensor, " orders"]:
    """C(q,j)² β^{2j}, normalised: the paper's ε²; branches add up in phase."""
    return path_weights(blocks + 1, depth_ratio).square()


def binomial(blocks: int, gain: float) -> Float[Tensor, " orders"]:
    """C(q,j) g^j, normalised: branches are orthogonal, each with g times the power of the stream it reads."""
    odds = torch.tensor(gain, dtype=torch.float64)
    return log_binomial(torch.arange(blocks + 1), blocks, odds).exp()


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


def _positive(weight_variance: float) -> float:
    if not (math.isfinite(weight_variance) and weight_variance > 0):
        raise InvalidInputError(
            f"The weight variance (times the width) must be positive and finite; got {weight_variance:g}. "
            "He initialisation has 2."
        )
    return float(weight_variance)


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
    scales = torch.full((blocks + 1,), math.sqrt(ratio), dtype=torch.float64)
    scales[0] = 1
    return scales


LAWS = (
    PathLaw("squared_binomial", "branches with a positive mean, in phase", "depth ratio", squared_binomial),
    PathLaw("binomial", "zero-mean branches without normalisation", "branch power gain", binomial),
    PathLaw(
        "stirling",
        "zero-mean branches, each normalised to one scale",
        "squared scale of the blocks over that of the first layer",
        lambda blocks, ratio: linear_branch_energies(_equal_scales(blocks, ratio)),
    ),
    PathLaw(
        "batch_norm_mean_field",
        "ReLU branches, each centred and normalised to one scale",
        "squared scale of the blocks over that of the first layer",
        lambda blocks, ratio: rectified_branch_energies(_equal_scales(blocks, ratio)),
    ),
    PathLaw(
        "rectified_mean_field",
        "x + ReLU(Wx) without normalisation",
        "weight variance times width",
        rectified_path_energies,
        most_blocks=200,
    ),
)
"""The laws that are compared."""


def _fit(law: PathLaw, shares: Tensor) -> LawFit:
    blocks = len(shares) - 1
    wanted = _mean(shares)

    def excess(log_parameter: float) -> float:
        return _mean(law.energies(blocks, math.exp(log_parameter))) - wanted

    low, high = _LOG_RANGE
    if excess(high) <= 0:
        log_parameter = high
    elif excess(low) >= 0:
        log_parameter = low
    else:
        log_parameter = brentq(excess, low, high, xtol=1e-12)
    parameter = math.exp(log_parameter)
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


def linear_mean_length(scales: Float[Tensor, " layers"]) -> float:
    """1 + Σ_{l≥2} λ_l²/(λ_1² + … + λ_l²); the harmonic number H_p for equal scales."""
    return 1 + float(_branch_shares(check_scales(scales)).sum())


def second_moments(scales: Float[Tensor, " layers"], normalisation: str = "centred") -> Float[Tensor, " layers"]:
    """E N_l² of an infinitely wide network at initialisation after each layer l = 1..p.

    Args:
        scales: λ_l, the batch-norm scale of each layer; the first layer has no skip connection.
        normalisation: ``"centred"`` subtracts the batch mean and divides by the standard deviation (what batch norm
            does; also any zero-mean branch), ``"uncentred"`` only divides by it (the paper's eq. 20),
            ``"root_mean_square"`` divides by the root of the second moment.

    Examples:
        >>> second_moments(torch.ones(4)).tolist()
        [1.0, 2.0, 3.0, 4.0]
    """
    lambdas = check_scales(scales)
    if normalisation == "centred":
        return lambdas.square().cumsum(0)
    if normalisation == "uncentred":
        return _uncentred(lambdas)
    if normalisation == "root_mean_square":
        # A ReLU divided by its root mean square has mean 1/√π: Q += λ² + 2 λ m/√π, m += λ/√π.
        root = math.sqrt(math.pi)
        before = lambdas.cumsum(0) / root - lambdas / root
        return (lambdas.square() + 2 * lambdas * before / root).cumsum(0)
    known = "centred, uncentred, root_mean_square"
    raise InvalidInputError(f"normalisation must be one of {known}; got {normalisation!r}.")


def _uncentred(lambdas: Tensor) -> Tensor:
    """Q, c, m: second moment, its part common to all inputs, and mean; a ReLU of unit variance has kap of it in common.

    kap(r) = (√(1−r²) + r(π − arccos r))/(2π), D = ½ − kap(r), mu = (2πD)^{−1/2}.
    """
    moments = []
    Q = c = m = r = 0.0
    for scale in lambdas.tolist():
        kap = (math.sqrt(1 - r * r) + r * (math.pi - math.acos(r))) / (2 * math.pi)
        D = 0.5 - kap
        mu = scale / math.sqrt(2 * math.pi * D)
        Q, c, m = Q + 2 * m * mu + scale**2 / (2 * D), c + 2 * m * mu + scale**2 * kap / D, m + mu
        r = min(c / Q, 1.0)
        moments.append(Q)
    return torch.tensor(moments, dtype=torch.float64, device=lambdas.device)
