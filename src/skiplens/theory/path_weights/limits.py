"""Where the path lengths go for a deep network, and how fast (theorems 1 and 2)."""

import torch
from torch import Tensor

from skiplens.core.axes import Float
from skiplens.core.errors import InvalidInputError
from skiplens.theory.path_weights.arguments import Ratio, check_depth, ratio_tensor


def limit_fraction(depth_ratio: Ratio) -> Float[Tensor, "*ratios"]:
    """β/(1+β), where peak and mean length, divided by the depth, go; the peak is never further away than 1/depth."""
    beta = ratio_tensor(depth_ratio)
    return beta / (1 + beta)


def limit_mean_length(depth: int, depth_ratio: Ratio) -> Float[Tensor, "*ratios"]:
    """(p − 1/2) β/(1+β) + 3/4, the mean length up to O(1/depth)."""
    return (check_depth(depth) - 0.5) * limit_fraction(depth_ratio) + 0.75


def limit_variance(depth: int, depth_ratio: Ratio) -> Float[Tensor, "*ratios"]:
    """(p − 1/2) β/(2(1+β)²), the variance of the length up to O(1/depth): half of a binomial's, for the square."""
    beta = ratio_tensor(depth_ratio)
    return (check_depth(depth) - 0.5) * beta / (2 * (1 + beta).square())


def band_rate(depth_ratio: Ratio, lowest: float, highest: float) -> Float[Tensor, "*ratios"]:
    """The rate c of theorem 2: the energy outside lowest·p ≤ r ≤ highest·p decays like exp(−c p), up to a power of p.

    c = 2 min(KL(lowest‖a), KL(highest‖a)) with a = β/(1+β), which must lie inside the band.
    """
    a = limit_fraction(depth_ratio)
    if not 0 < lowest < highest < 1 or not bool(((lowest < a) & (a < highest)).all()):
        raise InvalidInputError(
            f"The band must satisfy 0 < lowest < beta/(1+beta) < highest < 1; got lowest={lowest:g}, "
            f"highest={highest:g} and beta/(1+beta) from {a.min().item():g} to {a.max().item():g}. "
            "Outside such a band the energy does not vanish."
        )
    return 2 * torch.minimum(_relative_entropy(lowest, a), _relative_entropy(highest, a))


def _relative_entropy(u: float, a: Tensor) -> Tensor:
    """KL(u‖a) of two coins."""
    return u * torch.log(u / a) + (1 - u) * torch.log((1 - u) / (1 - a))
