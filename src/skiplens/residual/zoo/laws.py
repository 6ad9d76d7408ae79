"""Laws of weights that the papers' networks start from, beside those of `skiplens.residual.initialisation`."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from skiplens.residual.initialisation import Law, fans, gaussian


def standard_normal(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Independent N(0, 1) weights, as the tangent parameterisation wants them."""
    return gaussian(shape, 1.0, generator)


def normal_over_inputs(scale: float = 1.0) -> Law:
    """The law N(0, scale² / inputs)."""
    return lambda shape, generator: gaussian(shape, scale**2 / fans(shape)[0], generator)


def he_over_outputs(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Gaussian weights of variance 2 / (outputs · window), as in the public code of the pre-activation ResNets."""
    return gaussian(shape, 2 / fans(shape)[1], generator)


def uniform_over_inputs(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Uniform weights on ±1/√inputs: what PyTorch's linear and convolution layers start from."""
    return _uniform(shape, fans(shape)[0], generator)


def uniform_biases_over_inputs(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Uniform biases on ±1/√inputs, one for each output of a layer whose weight has this shape."""
    return _uniform(shape[:1], fans(shape)[0], generator)


def _uniform(shape: Sequence[int], inputs: int, generator: torch.Generator) -> Tensor:
    draw = torch.rand(tuple(shape), generator=generator, dtype=torch.float64, device=generator.device)
    return (2 * draw - 1) / math.sqrt(inputs)
