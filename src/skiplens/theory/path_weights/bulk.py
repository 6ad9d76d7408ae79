"""Sums over all path lengths at a cost that does not depend on the depth."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from skiplens.core.axes import Float
from skiplens.theory.path_weights.binomial import log_binomial

_NODES_EACH_SIDE = 48


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

    With a step of half a standard deviation, the sum over every step-th j equals the sum over all j to exp(−4 σ²) and
    better: the law is smooth on that scale (Poisson's summation formula). Below four standard deviations' worth of
    spread every j is a node.
    """
    step = torch.floor(spread(blocks, odds) / 2).clamp(min=1)
    offsets = torch.arange(-_NODES_EACH_SIDE, _NODES_EACH_SIDE + 1, device=odds.device)
    centre = mode(blocks, odds).clamp(min=min(fewest, blocks))
    branches = centre[..., None] + offsets * step[..., None]
    log_squares = 2 * log_binomial(branches, blocks, odds[..., None]) + torch.log(step)[..., None]
    return Bulk(branches, log_squares.masked_fill(branches < fewest, -math.inf))
