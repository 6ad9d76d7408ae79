"""Which law describes a measured path spectrum, and with which depth ratio."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from scipy.optimize import brentq
from torch import Tensor

from skiplens.core.axes import Float
from skiplens.core.errors import InvalidInputError
from skiplens.core.nearest import did_you_mean
from skiplens.theory.batch_norm_paths import linear_branch_energies, rectified_branch_energies
from skiplens.theory.path_weights import path_weights
from skiplens.theory.path_weights.binomial import log_binomial
from skiplens.theory.rectified_paths import rectified_path_energies

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


def _scales(blocks: int, ratio: float) -> Tensor:
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
        lambda blocks, ratio: linear_branch_energies(_scales(blocks, ratio)),
    ),
    PathLaw(
        "batch_norm_mean_field",
        "ReLU branches, each centred and normalised to one scale",
        "squared scale of the blocks over that of the first layer",
        lambda blocks, ratio: rectified_branch_energies(_scales(blocks, ratio)),
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
