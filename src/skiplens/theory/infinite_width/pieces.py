"""Angles cut into pieces that are short where kernels change fast: log-spaced near 0 and near π."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from skiplens.core.axes import Float, Int
from skiplens.theory.infinite_width.arc_cosine import Correlation, correlation_of_angle, correlation_of_supplement
from skiplens.theory.infinite_width.limit import Stretch

_HALF_PI = math.pi / 2
_LEAST_STRETCH = 1e-3  # below it the logarithm is a straight line to rounding


@dataclass(frozen=True)
class Pieces:
    """Equal pieces in log(1 + κθ) for θ ≤ π/2, then equal pieces in log(1 + μη), η = π − θ, down to η = 0.

    Attributes:
        stretch: κ and μ.
        left: How many pieces cover [0, π/2].
        right: How many pieces cover [π/2, π].
    """

    stretch: Stretch
    left: int
    right: int

    def __len__(self) -> int:
        return self.left + self.right

    def locate(self, angle: Tensor) -> tuple[Int[Tensor, "..."], Float[Tensor, "..."]]:
        """The number of the piece each angle lies in, and its place in that piece, from −1 to 1."""
        kappa, mu = self._stretches()
        from_left = torch.log1p(kappa * angle) * (self.left / math.log1p(kappa * _HALF_PI))
        from_right = torch.log1p(mu * (math.pi - angle)) * (self.right / math.log1p(mu * _HALF_PI))
        position = torch.where(angle <= _HALF_PI, from_left, len(self) - from_right)
        piece = position.detach().floor().clamp(0, len(self) - 1)
        return piece.long(), 2 * (position - piece) - 1

    def correlations(self, places: Float[Tensor, " places"]) -> Correlation:
        """The correlations at `places` in [−1, 1] of every piece, as (pieces, places)."""
        kappa, mu = self._stretches()
        start = torch.arange(len(self), dtype=places.dtype, device=places.device).unsqueeze(1)
        position = start + (places + 1) / 2
        left = torch.expm1(position[: self.left] * (math.log1p(kappa * _HALF_PI) / self.left)) / kappa
        steps_from_pi = (len(self) - position[self.left :]).clamp_min(0)
        right = torch.expm1(steps_from_pi * (math.log1p(mu * _HALF_PI) / self.right)) / mu
        near, far = correlation_of_angle(left), correlation_of_supplement(right)
        return Correlation(*(torch.cat(pair) for pair in zip(near, far, strict=True)))

    def _stretches(self) -> tuple[float, float]:
        return max(self.stretch.equal, _LEAST_STRETCH), max(self.stretch.opposite, _LEAST_STRETCH)
