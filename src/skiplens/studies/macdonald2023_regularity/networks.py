"""Small networks of the theorems: a first affine layer, then residual blocks, normalised or not."""

import math
from dataclasses import dataclass
from itertools import pairwise

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.theory.parameterised_systems import (
    NONLINEARITIES,
    Affine,
    Composition,
    Elementwise,
    EntryNormalised,
    Free,
    Residual,
    SkipMap,
    WeightNormalised,
)
from skiplens.theory.parameterised_systems.parameterisation import Parameterisation

WIDTHS = (6, 5, 4, 3)
FEATURES, CLASSES = WIDTHS[0], WIDTHS[-1]
SAMPLES, HIDDEN, MARGIN = 4, 4, 0.1

SCALES = tuple(10 ** (power / 2) for power in range(-3, 4))
"""Sizes of parameters."""


@dataclass(frozen=True)
class ResidualNetwork:
    """en(W) X, then blocks I Z + s_b wn(B) φ(s_a wn(A) Z) with |Jg|₂ < 0.9; free matrices if not `normalised`."""

    widths: tuple[int, ...] = WIDTHS
    hidden: int = HIDDEN
    normalised: bool = True
    nonlinearity: str = "tanh"

    def system(self) -> Composition:
        """The network as layers on a data matrix."""
        features, outputs = self.widths[:2]
        first: Parameterisation = EntryNormalised(outputs, features) if self.normalised else Free(outputs, features)
        blocks = (self._block(number, pair) for number, pair in enumerate(pairwise(self.widths[1:]), start=2))
        return Composition((Affine(first, name="first"), *blocks))

    def _block(self, number: int, widths: tuple[int, int]) -> Residual:
        inputs, outputs = widths
        branch = Composition(
            (
                Affine(self._matrix(self.hidden, inputs, 1.0), name=f"inner {number}"),
                Elementwise(NONLINEARITIES[self.nonlinearity], self.hidden),
                Affine(self._matrix(outputs, self.hidden, 1 - MARGIN), name=f"outer {number}"),
            )
        )
        return Residual(SkipMap.truncation(outputs, inputs), branch, name=f"block {number}")

    def _matrix(self, outputs: int, inputs: int, largest: float) -> Parameterisation:
        """Of norm below `largest` for all parameters, if normalised: rows below 1 alone do not give that."""
        if not self.normalised:
            return Free(outputs, inputs)
        return WeightNormalised(outputs, inputs, factor=largest / math.sqrt(outputs))


def random_data(generator: torch.Generator) -> Float[Tensor, "features samples"]:
    """Normal numbers: independent columns with probability 1."""
    return torch.randn(FEATURES, SAMPLES, dtype=torch.float64, generator=generator)


def random_labels(generator: torch.Generator) -> Tensor:
    """A class for each sample."""
    return torch.randint(CLASSES, (SAMPLES,), generator=generator)


def random_targets(generator: torch.Generator) -> Float[Tensor, "outputs samples"]:
    """Numbers to fit, of about the size of the outputs."""
    return torch.randn(CLASSES, SAMPLES, dtype=torch.float64, generator=generator)


def random_parameters(system: Composition, scale: float, generator: torch.Generator) -> Float[Tensor, " params"]:
    """Normal numbers times `scale`."""
    return scale * torch.randn(system.parameters, dtype=torch.float64, generator=generator)
