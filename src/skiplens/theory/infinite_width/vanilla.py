"""The infinitely wide network without skip connections, the papers' point of comparison."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from skiplens.theory.infinite_width.arc_cosine import Correlation, arc_cosine
from skiplens.theory.infinite_width.limit import Layers, Limit, State, Stretch


@dataclass(frozen=True)
class VanillaLimit(Limit):
    """L layers y^l = √2·ReLU(W y^{l−1}/√n).

    Attributes:
        depth: L, the layers with a ReLU.
        outer_layers_trained: Whether the first and the last layer are trained too.
    """

    depth: int
    outer_layers_trained: bool = False

    def layers(self) -> Layers:
        """κ₁(λ) and (T + λ) κ₀(λ)."""
        return _vanilla_layer

    def log_scale(self) -> Tensor:
        """0: √2·ReLU keeps the variance."""
        return torch.zeros((), dtype=torch.float64)

    def inner_ntk_at_equal_inputs(self) -> Tensor:
        """L: each layer contributes 1."""
        return torch.tensor(float(self.depth), dtype=torch.float64)

    def stretch(self) -> Stretch:
        """Angles shrink like θ/(1 + Lθ/(3π))."""
        return Stretch(self.depth / (3 * math.pi), 1.0)


def _vanilla_layer(state: State, layer: int) -> State:
    """κ₁(λ) and (T + λ) κ₀(λ)."""
    below_one, above_minus_one, T = state
    correlation = Correlation(below_one, above_minus_one)
    k1, k0 = arc_cosine(correlation)
    return (*k1, (T + correlation.value) * k0)
