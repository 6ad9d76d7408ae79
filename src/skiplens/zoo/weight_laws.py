"""The laws that weights start from, of the papers and of PyTorch, and how a network is filled with them.

A law gives the float64 weights of one layer, whose shape is (outputs, inputs, *window) as in `nn.Linear` and
`nn.Conv2d`. Every layer draws from a stream of its own, named after its parameter, and the draw is rounded to the
layer's dtype: a layer's numbers depend neither on the other layers nor on device and dtype.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeGuard

import torch
from torch import Tensor, nn

from skiplens.base.randomness import Randomness

Law = Callable[[Sequence[int], torch.Generator], Tensor]
"""From the shape of a layer's weight and a generator to its weights (or, as a law of biases, to its biases)."""

WeightLayer = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d
"""Layers whose weights have the axes (outputs, inputs, *window); see `is_weight_layer` for one more."""


def is_weight_layer(module: nn.Module) -> TypeGuard[WeightLayer]:
    """Whether it is a linear or convolution layer, Hugging Face's `Conv1D` among them."""
    return isinstance(module, WeightLayer) or is_transposed(module)


def is_transposed(module: nn.Module) -> bool:
    """Whether it is the linear layer of GPT-2, `Conv1D`: known by name, so that nothing is imported."""
    kind = type(module)
    return (kind.__module__, kind.__name__) == ("transformers.pytorch_utils", "Conv1D")


def weights_of(layer: WeightLayer) -> Tensor:
    """The weights of a layer with the axes (outputs, inputs, *window), as a view."""
    return layer.weight.detach().T if is_transposed(layer) else layer.weight.detach()


def xavier_weights(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Gaussian weights of variance 2 / (inputs + outputs)."""
    inputs, outputs = fans(shape)
    return gaussian(shape, 2 / (inputs + outputs), generator)


def he_weights(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Gaussian weights of variance 2 / inputs."""
    return gaussian(shape, 2 / fans(shape)[0], generator)


def orthogonal_weights(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Haar orthogonal weights: the outputs × (inputs · window) matrix has orthonormal rows or columns."""
    rows, columns = shape[0], math.prod(shape[1:])
    Q, R = torch.linalg.qr(gaussian((max(rows, columns), min(rows, columns)), 1.0, generator))
    # Without the signs QR's own convention would show and the law would not be Haar's.
    Q = Q * R.diagonal().sign()
    return (Q if rows >= columns else Q.T).reshape(tuple(shape))


def gaussian(shape: Sequence[int], variance: float, generator: torch.Generator) -> Tensor:
    """Independent N(0, variance) numbers in float64, drawn on the generator's device."""
    draw = torch.randn(tuple(shape), generator=generator, dtype=torch.float64, device=generator.device)
    return math.sqrt(variance) * draw


def scaled(law: Law, factor: float) -> Law:
    """The law of `factor` times the weights of `law`."""
    return lambda shape, generator: factor * law(shape, generator)


def zero_biases(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Zero for each output."""
    return torch.zeros(shape[0], dtype=torch.float64, device=generator.device)


def fans(shape: Sequence[int]) -> tuple[int, int]:
    """How many numbers one output of a layer reads, and how many outputs one input goes to (both times the window)."""
    window = math.prod(shape[2:])
    return shape[1] * window, shape[0] * window


def weight_layers(network: nn.Module) -> Iterator[tuple[str, WeightLayer]]:
    """Linear and convolution layers with their names, in order of registration."""
    return ((name, module) for name, module in network.named_modules() if is_weight_layer(module))


def fill_weights_(network: nn.Module, law: Law, randomness: Randomness, bias_law: Law = zero_biases) -> None:
    """Draw the weights of all linear and convolution layers in place; for networks that nobody else holds yet."""
    for name, layer in weight_layers(network):
        weights, bias = weights_of(layer), layer.bias
        for part, filled, part_law in (("weight", weights, law), ("bias", bias, bias_law)):
            if filled is not None:
                stream = randomness.child(f"{name}.{part}").torch()
                filled.detach().copy_(part_law(tuple(weights.shape), stream))


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
