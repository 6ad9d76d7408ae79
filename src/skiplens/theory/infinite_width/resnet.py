"""The infinitely wide ResNet with m matrices per branch (Littwin & Wolf 2020, theorem 1, corrected)."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from skiplens.core.axes import Float
from skiplens.theory.infinite_width.arc_cosine import Correlation, arc_cosine
from skiplens.theory.infinite_width.limit import Layers, Limit, State, Stretch


@dataclass(frozen=True, eq=False)
class ResNetLimit(Limit):
    """y^l = y^{l−1} + branch(y^{l−1}) with one scale a_l = α_l^m per block; m − 1 ReLUs inside a branch.

    Attributes:
        block_scales: a_l = α_l^m for each of the L blocks, float64; further axes belong to the correlations, each of
            which then has scales of its own.
        branch_depth: m, the matrices of a branch.
        outer_layers_trained: Whether the first and the last layer are trained too.
    """

    block_scales: Float[Tensor, "blocks ..."]
    branch_depth: int
    outer_layers_trained: bool = False

    def _shares(self) -> Float[Tensor, "blocks ..."]:
        """b_l = a_l/(1 + a_l): the share of the branch in a block's variance."""
        return self.block_scales / (1 + self.block_scales)

    @property
    def depth(self) -> int:  # type: ignore[override]
        """L, the residual blocks."""
        return len(self.block_scales)

    def layers(self) -> Layers:
        """The block: r + b (c(r) − r) and t + b (S − (1 − P) t)."""
        share_of = self._shares().unbind()

        def block(state: State, layer: int) -> State:
            below_one, above_minus_one, t = state
            c, P, S = _branch(Correlation(below_one, above_minus_one), self.branch_depth)
            b = share_of[layer]
            return (
                below_one + b * (c.below_one - below_one),
                above_minus_one + b * (c.above_minus_one - above_minus_one),
                t + b * (S - (1 - P) * t),
            )

        return block

    def log_scale(self) -> Tensor:
        """The logarithm of ∏(1 + a_l)."""
        return torch.log1p(self.block_scales).sum(dim=0)

    def inner_ntk_at_equal_inputs(self) -> Tensor:
        """Each block contributes m b_l."""
        return self.branch_depth * self._shares().sum(dim=0)

    def stretch(self) -> Stretch:
        """κ = (m − 1) Σ b_l/(3π); the first block smooths the kink at π over a width √(2a)."""
        kappa = (self.branch_depth - 1) * float(self._shares().detach().sum()) / (3 * math.pi)
        scales = self.block_scales.detach()
        active = scales[scales > 0]
        first = float(active[0]) if len(active) else 1.0
        return Stretch(kappa, 1 / math.sqrt(2 * max(first, 1e-14)))


def _branch(correlation: Correlation, branch_depth: int) -> tuple[Correlation, Tensor, Tensor]:
    """Correlation c, derivative P = dc/dr and tangent kernel S of a branch whose input has correlation r."""
    c, P, S = correlation, torch.ones_like(correlation.below_one), correlation.value
    for _ in range(branch_depth - 1):
        c, k0 = arc_cosine(c)
        P, S = P * k0, S * k0 + c.value
    return c, P, S
