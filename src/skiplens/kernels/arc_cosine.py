"""The two arc-cosine kernels of ReLU, without the loss of digits that arccos of a rounded cosine brings.

A correlation ρ = cos θ is carried as the pair (1 − ρ, 1 + ρ): both stay accurate where they are small, so θ is accurate
for nearly equal and for nearly opposite inputs, layer after layer.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor


class Correlation(NamedTuple):
    """A correlation ρ as its distances from 1 and from −1."""

    below_one: Tensor  # δ = 1 − ρ
    above_minus_one: Tensor  # s = 1 + ρ

    @property
    def value(self) -> Tensor:
        """ρ itself, rounded once."""
        return torch.where(_near_one(self), 1 - self.below_one, self.above_minus_one - 1)


def correlation_of_cosine(cosine: Tensor) -> Correlation:
    """The correlation ρ = `cosine`; rounding outside [−1, 1] is cut off."""
    return Correlation((1 - cosine).clamp_min(0), (1 + cosine).clamp_min(0))


def correlation_of_angle(angle: Tensor) -> Correlation:
    """The correlation cos θ; accurate near θ = 0, use `correlation_of_supplement` near π."""
    return Correlation(2 * torch.sin(angle / 2).square(), 2 * torch.cos(angle / 2).square())


def correlation_of_supplement(supplement: Tensor) -> Correlation:
    """The correlation cos(π − η), accurate near η = 0."""
    mirrored = correlation_of_angle(supplement)
    return Correlation(mirrored.above_minus_one, mirrored.below_one)


def angle_of(correlation: Correlation) -> Tensor:
    """θ in [0, π]; its gradient is taken as 0 at both ends, where the angle has a kink."""
    folded = folded_angle(correlation)
    return torch.where(_near_one(correlation), folded, math.pi - folded)


def folded_angle(correlation: Correlation) -> Tensor:
    """θ or π − θ, whichever is smaller."""
    smaller = torch.where(_near_one(correlation), *correlation)  # minimum would halve the gradient where both are 1
    # sqrt has no finite derivative at 0; the clamp gives the derivative 0 there and an angle of about 1e-154 or 1e-19
    return 2 * torch.asin(torch.sqrt(smaller.clamp_min(torch.finfo(smaller.dtype).tiny) / 2))


def arc_cosine(correlation: Correlation) -> tuple[Correlation, Tensor]:
    """κ₁(ρ) as a correlation, and κ₀(ρ): covariances of √2·ReLU and of √2·step for Gaussians of correlation ρ.

    κ₀ = 1 − θ/π and κ₁ = (sin θ + (π − θ) cos θ)/π, both in [0, 1].
    """
    near_one, t = _near_one(correlation), folded_angle(correlation)
    below_one = torch.where(near_one, correlation.below_one, 1.0) - _sine_minus_t_cosine(t) / math.pi
    return Correlation(below_one, 2 - below_one), torch.where(near_one, 1 - t / math.pi, t / math.pi)


def _near_one(correlation: Correlation) -> Tensor:
    return correlation.below_one <= correlation.above_minus_one


# sin t − t cos t = t³ Σ_k (−1)^(k+1) 2k t^(2k−2)/(2k+1)!; eleven terms reach 1e-17 on [0, π/2]
_SERIES = [(-1) ** (k + 1) * 2 * k / math.factorial(2 * k + 1) for k in range(11, 0, -1)]


def _sine_minus_t_cosine(t: Tensor) -> Tensor:
    square = t * t
    total = torch.full_like(t, _SERIES[0])
    for coefficient in _SERIES[1:]:
        total = total * square + coefficient
    return total * square * t
