"""The energy Σ ε_r² of bands and tails of path lengths, and its quantiles."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from skiplens.core.axes import Float, Int
from skiplens.core.errors import InvalidInputError
from skiplens.theory.path_weights.arguments import Ratio, check_depth, ratio_tensor
from skiplens.theory.path_weights.binomial import log_binomial
from skiplens.theory.path_weights.bulk import bulk, mode, spread

_ENTRIES_AT_ONCE = 2**21  # float64 entries of a window: 16 MiB each


def log_energy_between(depth: int, depth_ratio: Ratio, first: int, last: int) -> Float[Tensor, "*ratios"]:
    """The log of Σ_{first ≤ r ≤ last} ε_r², also where the sum itself would underflow; −∞ for an empty band."""
    blocks, beta = check_depth(depth) - 1, ratio_tensor(depth_ratio)
    lowest, highest = max(first - 1, 0), min(last - 1, blocks)
    if lowest > highest:
        return torch.full_like(beta, -math.inf)
    return _for_each_ratio(lambda ratios: _log_sum(blocks, ratios, lowest, highest), beta, blocks)


def energy_between(depth: int, depth_ratio: Ratio, first: int, last: int) -> Float[Tensor, "*ratios"]:
    """Σ_{first ≤ r ≤ last} ε_r²; whole numbers, because rounding a fraction of the depth can lose a length."""
    return log_energy_between(depth, depth_ratio, first, last).exp()


def log_energy_below(depth: int, depth_ratio: Ratio, length: int) -> Float[Tensor, "*ratios"]:
    """The log of Σ_{r < length} ε_r²."""
    return log_energy_between(depth, depth_ratio, 1, length - 1)


def log_energy_above(depth: int, depth_ratio: Ratio, length: int) -> Float[Tensor, "*ratios"]:
    """The log of Σ_{r > length} ε_r²."""
    return log_energy_between(depth, depth_ratio, length + 1, depth)


def log_energy_outside(depth: int, depth_ratio: Ratio, first: int, last: int) -> Float[Tensor, "*ratios"]:
    """The log of the energy of all lengths shorter than `first` or longer than `last` (theorem 2)."""
    if first > last:
        raise InvalidInputError(f"A band needs first <= last; got first={first}, last={last}.")
    return torch.logaddexp(log_energy_below(depth, depth_ratio, first), log_energy_above(depth, depth_ratio, last))


def length_quantile(depth: int, depth_ratio: Ratio, level: float) -> Int[Tensor, "*ratios"]:
    """The shortest length r such that paths of length at most r hold the share `level` of the energy."""
    if not 0 < level < 1:
        raise InvalidInputError(f"The level of a quantile must lie strictly between 0 and 1; got {level:g}.")
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
