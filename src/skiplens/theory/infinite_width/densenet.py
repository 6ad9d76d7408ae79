"""The infinitely wide DenseNet (Littwin & Wolf 2020, theorem 2, corrected): O(L) instead of the printed O(L²)."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from skiplens.theory.infinite_width.arc_cosine import Correlation, arc_cosine
from skiplens.theory.infinite_width.limit import Layers, Limit, State, Stretch


@dataclass(frozen=True)
class DenseNetLimit(Limit):
    """Layer l reads √2·ReLU of all layers before it.

    Attributes:
        depth: L, the dense layers.
        outer_layers_trained: Whether the first and the last layer are trained too.
    """

    depth: int
    outer_layers_trained: bool = False

    def layers(self) -> Layers:
        """An average over all layers before."""
        return _dense_layer

    def log_scale(self) -> Tensor:
        """0: a DenseNet keeps the variance."""
        return torch.zeros((), dtype=torch.float64)

    def inner_ntk_at_equal_inputs(self) -> Tensor:
        """The harmonic number H_L."""
        return torch.arange(1, self.depth + 1, dtype=torch.float64).reciprocal().sum()

    def stretch(self) -> Stretch:
        """Features grow only with log L."""
        return Stretch(math.log(self.depth + 1) / (3 * math.pi), 1.0)


def _dense_layer(state: State, layer: int) -> State:
    """The average over the inputs of layer l = `layer` + 1; the first layer replaces what was there."""
    below_one, above_minus_one, T = state
    k1, k0 = arc_cosine(Correlation(below_one, above_minus_one))
    share = 1 / (layer + 1)
    return (
        below_one + share * (k1.below_one - below_one),
        above_minus_one + share * (k1.above_minus_one - above_minus_one),
        T + share * (k1.value + k0 * T - T),
    )
