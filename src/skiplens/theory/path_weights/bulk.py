"""Sums over all path lengths at a cost that does not depend on the depth."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from skiplens.core.axes import Float
from skiplens.theory.path_weights.binomial import log_binomial

_NODES_EACH_SIDE = 34
_NODES_PER_DEVIATION = 1.65
_RATIOS_AT_ONCE = 1000  # so that the temporaries of one piece stay in the cache


@dataclass(frozen=True)
class Bulk:
    """The squared binomial law on a few branch counts around its mode, with the step between them.

    Attributes:
        branches: j, the residual branches of a path, for each ratio and node.
        log_squares: 2 log b(j; q, a) + log(step): adding up exp of it is the sum over all j.
    """

    branches: Float[Tensor, "*ratios nodes"]
    log_squares: Float[Tensor, "*ratios nodes"]

    @property
    def log_sum(self) -> Float[Tensor, "*ratios"]:
        """The log of Σ_j b(j; q, a)²."""
        return torch.logsumexp(self.log_squares, -1)

    def mean(self, values: Float[Tensor, "*ratios nodes"]) -> Float[Tensor, "*ratios"]:
        """Σ_j ε² values."""
        return (torch.softmax(self.log_squares, -1) * values).sum(-1)


def spread(blocks: int, odds: Tensor) -> Tensor:
    """The standard deviation of the squared binomial law for many blocks, √(qβ/2)/(1+β)."""
    return torch.sqrt(blocks * odds / 2) / (1 + odds)


def mode(blocks: int, odds: Tensor) -> Tensor:
    """The most weighted number of branches (either of them in a tie, up to rounding)."""
    return torch.floor((blocks + 1) * (odds / (1 + odds))).clamp(max=blocks)


def bulk(blocks: int, odds: Float[Tensor, "*ratios"], fewest: int = 0) -> Bulk:
    """The nodes that carry the law, `fewest` branches and up.

    The law is smooth on the scale of its standard deviation σ, so a sum over every h-th j equals the sum over all j to
    exp(−4σ²(1 − cos(π/h))) (Poisson's summation formula), which is below one rounding for h ≤ σ/1.65. The outermost
    nodes, at least ten deviations away, carry less than that too.
    """
    step = torch.floor(spread(blocks, odds) / _NODES_PER_DEVIATION).clamp(min=1)
    offsets = torch.arange(-_NODES_EACH_SIDE, _NODES_EACH_SIDE + 1, device=odds.device)
    centre = mode(blocks, odds).clamp(min=min(fewest, blocks))
    branches = centre[..., None] + offsets * step[..., None]
    pieces = zip(
        branches.reshape(-1, len(offsets)).split(_RATIOS_AT_ONCE),
        odds.reshape(-1, 1).split(_RATIOS_AT_ONCE),
        strict=True,
    )
    log_pmf = torch.cat([log_binomial(some, blocks, ratios) for some, ratios in pieces]).reshape(branches.shape)
    log_squares = 2 * log_pmf + torch.log(step)[..., None]
    return Bulk(branches, log_squares.masked_fill(branches < fewest, -math.inf))
