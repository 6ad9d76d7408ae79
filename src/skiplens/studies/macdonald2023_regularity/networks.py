"""Small networks of the theorems: a first affine layer, then residual blocks, normalised or not."""

import math
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

FEATURES, SAMPLES = 6, 4
WIDTHS = (5, 4, 3)
HIDDEN, MARGIN = 4, 0.1
CLASSES = WIDTHS[-1]


def residual_network(normalised: bool = True, nonlinearity: str = "tanh") -> Composition:
    """en(W) X, then blocks I Z + s_b wn(B) φ(s_a wn(A) Z) with |Jg|₂ < 0.9; free matrices if not `normalised`."""
    first: Parameterisation = EntryNormalised(WIDTHS[0], FEATURES) if normalised else Free(WIDTHS[0], FEATURES)
    blocks = (_block(number, pair, normalised, nonlinearity) for number, pair in enumerate(pairwise(WIDTHS), start=2))
    return Composition((Affine(first, name="first"), *blocks))


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


def _block(number: int, widths: tuple[int, int], normalised: bool, nonlinearity: str) -> Residual:
    inputs, outputs = widths
    inner, outer = _matrix(HIDDEN, inputs, normalised, 1.0), _matrix(outputs, HIDDEN, normalised, 1 - MARGIN)
    branch = Composition(
        (
            Affine(inner, name=f"inner {number}"),
            Elementwise(NONLINEARITIES[nonlinearity], HIDDEN),
            Affine(outer, name=f"outer {number}"),
        )
    )
    return Residual(SkipMap.truncation(outputs, inputs), branch, name=f"block {number}")


def _matrix(outputs: int, inputs: int, normalised: bool, largest: float) -> Parameterisation:
    """Of norm below `largest` for all parameters, if normalised: rows below 1 alone do not give that."""
    if not normalised:
        return Free(outputs, inputs)
    return WeightNormalised(outputs, inputs, factor=largest / math.sqrt(outputs))
