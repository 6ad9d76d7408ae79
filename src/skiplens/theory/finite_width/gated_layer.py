"""A layer of ReLU units of many networks, drawn without its weight matrix.

A Gaussian W enters a network only through its products with what comes in and with the gradients that come back. Given
the Gram matrix of what comes in, the units are independent: V = Z·R with Z normal and RᵀR the Gram matrix. Given
these, the image of a gradient under W is what the forward products fix, plus fresh noise orthogonal to it. So a layer
costs O(width·inputs²) instead of O(width²·inputs), and everything between layers is inputs × inputs.
"""

from typing import NamedTuple

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.theory.finite_width.small_matrices import Draws, factor, gram


class GatedLayer(NamedTuple):
    """The units of a layer: V = directions·R before the ReLU, outputs √2·relu(V)."""

    directions: Float[Tensor, "networks width inputs"]
    outputs: Float[Tensor, "networks width inputs"]
    gram: Float[Tensor, "networks inputs inputs"]
    """Inner products of the outputs."""
    factor: Float[Tensor, "networks inputs inputs"]
    """Upper triangular factor of `gram`."""


class Pulled(NamedTuple):
    """Gradients of one layer, as far as the layers below need to know them."""

    gram: Float[Tensor, "networks inputs inputs"]
    """Inner products of the gradients at the pre-activations."""
    along: Float[Tensor, "networks inputs inputs"]
    """Zᵀ times these gradients, Z the layer's directions."""
    met: Float[Tensor, "networks inputs inputs"]
    """Inner products of the outputs and the gradients at the outputs."""


def draw_layer(preactivation_factor: Tensor, width: int, draws: Draws) -> GatedLayer:
    """A layer whose pre-activations have the Gram matrix FᵀF per unit, F = `preactivation_factor`."""
    directions = draws.wide_normal(width)
    outputs = (directions @ (2**0.5 * preactivation_factor).to(draws.dtype)).relu_()
    inner = gram(outputs)
    return GatedLayer(directions, outputs, inner, factor(inner, draws.dtype))


def pull_back(
    layer: GatedLayer, wanted: Tensor, noise_factor: Tensor, draws: Draws, shared_factor: Tensor | None = None
) -> Pulled:
    """Gradients β = Wb at the layer's outputs U given that Uᵀβ = `wanted`, taken through the gates.

    A draw of the Gaussian without that knowledge is corrected by its conditional mean, which gives the conditional law.

    Args:
        layer: The layer, with outputs U.
        wanted: Inner products of outputs and gradients that the forward pass has fixed.
        noise_factor: Factor C of the covariance CᵀC per unit of the gradients without that knowledge.
        draws: Source of the noise.
        shared_factor: Where the sum of Uᵀβ over several layers is what is fixed, the factor of the sum of their Gram
            matrices; `wanted` is then less the others' part before its correction.
    """
    noise = draws.wide_normal(layer.outputs.shape[1])
    prior = (layer.outputs.mT @ noise).double() @ noise_factor
    shared = layer.factor if shared_factor is None else shared_factor
    correction = torch.cholesky_solve(wanted - prior, shared, upper=True)
    at_outputs = (noise @ noise_factor.to(noise.dtype)).baddbmm_(layer.outputs, correction.to(noise.dtype))
    return through_gates(layer, at_outputs, prior + layer.gram @ correction)


def through_gates(layer: GatedLayer, at_outputs: Tensor, met: Tensor) -> Pulled:
    """Gradients at the pre-activations from those at the outputs."""
    gradients = at_outputs.mul_(layer.outputs > 0).mul_(2**0.5)
    return Pulled(gram(gradients), (layer.directions.mT @ gradients).double(), met)
