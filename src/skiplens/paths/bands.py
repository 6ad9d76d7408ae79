"""The energy Σ ε_r² of bands and tails of path lengths, and its quantiles."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from skiplens.base import Float, Int, InvalidInputError, refuse_if
from skiplens.paths.weights import Ratio, bulk, check_depth, check_positive, log_binomial, mode, ratio_tensor, spread

_ENTRIES_AT_ONCE = 2**21  # float64 entries of a window: 16 MiB each


def log_energy_between(depth: int, depth_ratio: Ratio, first: int, last: int) -> Float[Tensor, "*ratios"]:
    """The log of Σ_{first ≤ r ≤ last} ε_r², also where the sum itself would underflow; −∞ for an empty band."""
    blocks, beta = check_depth(depth) - 1, ratio_tensor(depth_ratio)
    lowest, highest = max(first - 1, 0), min(last - 1, blocks)
    if lowest > highest:
        return torch.full_like(beta, -math.inf)
    return _for_each_ratio(lambda ratios: _log_sum(blocks, ratios, lowest, highest), beta, blocks)


def log_energy_outside(depth: int, depth_ratio: Ratio, first: int, last: int) -> Float[Tensor, "*ratios"]:
    """The log of the energy of all lengths shorter than `first` or longer than `last` (theorem 2)."""
    refuse_if(first > last, f"A band needs first <= last; got first={first}, last={last}.")
    shorter = log_energy_between(depth, depth_ratio, 1, first - 1)
    return torch.logaddexp(shorter, log_energy_between(depth, depth_ratio, last + 1, depth))


def length_quantile(depth: int, depth_ratio: Ratio, level: float) -> Int[Tensor, "*ratios"]:
    """The shortest length r such that paths of length at most r hold the share `level` of the energy."""
    refuse_if(not 0 < level < 1, f"The level of a quantile must lie strictly between 0 and 1; got {level:g}.")
    blocks, beta = check_depth(depth) - 1, ratio_tensor(depth_ratio)
    return _for_each_ratio(lambda ratios: _quantile(blocks, ratios, level), beta, blocks)


def _window(blocks: int, odds: Tensor, anchor: Tensor) -> Tensor:
    """Branch counts around the anchor that hold everything above one rounding of the anchor's own energy.

    The law is log-concave, so it falls from any anchor at least as fast as from its mode: ten standard deviations, and
    some more for the Poisson-like tails of small means.
    """
    reach = int(10 * spread(blocks, odds).max().item()) + 48
    return anchor[..., None] + torch.arange(-reach, reach + 1, device=odds.device)


def _log_sum(blocks: int, odds: Tensor, lowest: int, highest: int) -> Tensor:
    branches = _window(blocks, odds, mode(blocks, odds).clamp(lowest, highest))
    log_squares = 2 * log_binomial(branches, blocks, odds[..., None])
    outside = (branches < lowest) | (branches > highest)
    log_sum = torch.logsumexp(log_squares.masked_fill(outside, -math.inf), -1)
    return torch.clamp(log_sum - bulk(blocks, odds).log_sum, max=0.0)


def _quantile(blocks: int, odds: Tensor, level: float) -> Tensor:
    branches = _window(blocks, odds, mode(blocks, odds))
    cumulative = torch.softmax(2 * log_binomial(branches, blocks, odds[..., None]), -1).cumsum(-1)
    reached = (cumulative >= level).to(torch.int8).argmax(-1, keepdim=True)
    return branches.gather(-1, reached)[..., 0].long() + 1


def _for_each_ratio(function: Callable[[Tensor], Tensor], beta: Tensor, blocks: int) -> Tensor:
    """`function` on a few ratios at a time, so that the windows stay small whatever the number of ratios."""
    width = 20 * math.sqrt(blocks / 8) + 97  # the widest window, at β = 1
    pieces = beta.flatten().split(max(1, int(_ENTRIES_AT_ONCE / width)))
    return torch.cat([function(piece) for piece in pieces]).reshape(beta.shape)


def limit_fraction(depth_ratio: Ratio) -> Float[Tensor, "*ratios"]:
    """β/(1+β), where peak and mean length, divided by the depth, go; the peak is never further away than 1/depth."""
    beta = ratio_tensor(depth_ratio)
    return beta / (1 + beta)


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
    # KL(u‖a) of two coins
    below, above = (u * torch.log(u / a) + (1 - u) * torch.log((1 - u) / (1 - a)) for u in (lowest, highest))
    return 2 * torch.minimum(below, above)


@dataclass(frozen=True)
class BranchStatistics:
    """What turns a weight scale C into the depth ratio β = ρ n C/√Λ (Littwin & Wolf 2016, eq. 16).

    Attributes:
        width: n, the units of every layer.
        gate_probability: ρ, how often a ReLU is open.
        distinct_weights: Λ, how many weights differ; none means as many as the width. The choice is a convention and
            β depends on it.

    Examples:
        >>> round(BranchStatistics(width=64).depth_ratio(branch_scale=1 / 8), 12)
        0.5
    """

    width: int
    gate_probability: float = 0.5
    distinct_weights: int | None = None

    def __post_init__(self) -> None:
        """Refuse statistics that no network has."""
        check_positive(self.width, "The width")
        check_positive(self.distinct_weights if self.distinct_weights is not None else 1, "distinct_weights")
        if not 0 < self.gate_probability <= 1:
            raise InvalidInputError(
                f"The gate probability must lie in (0, 1]; got {self.gate_probability:g}. A ReLU of a symmetric "
                "pre-activation is open with probability 0.5."
            )

    @property
    def _per_scale(self) -> float:
        """β for C = 1."""
        distinct = self.width if self.distinct_weights is None else self.distinct_weights
        return self.gate_probability * self.width / math.sqrt(distinct)

    def depth_ratio(self, branch_scale: float) -> float:
        """β for the weight scale C."""
        return self._per_scale * float(check_positive(branch_scale, "The branch scale"))

    def branch_scale(self, depth_ratio: Ratio) -> Ratio:
        """The weight scale C that gives the depth ratio β."""
        beta = ratio_tensor(depth_ratio) / self._per_scale
        return beta if not isinstance(depth_ratio, float | int) else beta.item()
