"""A layer of ReLU units of many networks, drawn without its weight matrix.

A Gaussian W enters a network only through its products with what comes in and with the gradients that come back. Given
the Gram matrix of what comes in, the units are independent: V = Z·R with Z normal and RᵀR the Gram matrix. Given
these, the image of a gradient under W is what the forward products fix, plus fresh noise orthogonal to it. So a layer
costs O(width·inputs²) instead of O(width²·inputs), and everything between layers is inputs × inputs.

Matrices with an axis of units are kept transposed, (inputs, width): their products are then two to three times faster.
"""

from typing import NamedTuple

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.theory.finite_width.small_matrices import Draws, SlackFactor, relative_slack, slack_factor

_GAIN = 2**0.5  # of the ReLU, so that it keeps the mean squared norm


class GatedLayer(NamedTuple):
    """The units of a layer: V = directions·R before the ReLU, outputs √2·relu(V)."""

    directions: Float[Tensor, "networks inputs width"]
    outputs: Float[Tensor, "networks inputs width"]
    gram: Float[Tensor, "networks inputs inputs"]
    """Inner products of the outputs."""
    factor: SlackFactor
    """Of `gram`."""


class Pulled(NamedTuple):
    """Gradients at a layer's pre-activations, as far as the layers below need to know them."""

    gram: Float[Tensor, "networks inputs inputs"]
    """Inner products of the gradients."""
    along: Float[Tensor, "networks inputs inputs"]
    """Zᵀ times the gradients, Z the layer's directions."""


def draw_layer(preactivation_factor: Tensor, width: int, draws: Draws) -> GatedLayer:
    """A layer whose pre-activations have the Gram matrix FᵀF per unit, F = `preactivation_factor`."""
    directions = draws.wide_normal(width)
    outputs = ((_GAIN * preactivation_factor).mT.to(draws.dtype) @ directions).relu_()
    inner = (outputs @ outputs.mT).double()
    return GatedLayer(directions, outputs, inner, slack_factor(inner, relative_slack(inner, draws.dtype)))


def pull_back(layer: GatedLayer, along: Tensor, noise_factor: Tensor, draws: Draws) -> Pulled:
    """Gradients at a layer that one matrix reads, taken through the gates.

    Args:
        layer: The layer, with outputs U.
        along: The image of the gradients in the directions Z in which the matrix has mapped U = QR forward: √s·Zᵀb.
        noise_factor: Factor C of the covariance CᵀC = s·bᵀb per unit of the gradients without that knowledge.
        draws: Source of the noise.
    """
    upper, slack = layer.factor
    slack_part = slack.sqrt()[..., None] * draws.normal(draws.inputs) @ noise_factor
    return pull_back_shared(layer, upper.mT @ along - slack_part, noise_factor, upper, draws)[0]


def pull_back_shared(
    layer: GatedLayer, wanted: Tensor, noise_factor: Tensor, shared: Tensor, draws: Draws
) -> tuple[Pulled, Tensor]:
    """Gradients β at a layer's outputs U given a sum of Uᵀβ and Gaussian others, taken through the gates; and Uᵀβ.

    A draw without that knowledge is corrected by its conditional mean, which gives a draw of the conditional law.

    Args:
        layer: The layer, with outputs U.
        wanted: What the sum must be, less a draw of the others.
        noise_factor: Factor C of the covariance CᵀC per unit of the gradients without that knowledge.
        shared: Upper triangular factor of the covariance of the whole sum.
        draws: Source of the noise.
    """
    noise = draws.wide_normal(layer.outputs.shape[2])
    prior = (layer.outputs @ noise.mT).double() @ noise_factor
    correction = torch.cholesky_solve(wanted - prior, shared, upper=True)
    at_outputs = (noise_factor.mT.to(noise.dtype) @ noise).baddbmm_(correction.mT.to(noise.dtype), layer.outputs)
    return through_gates(layer, at_outputs), prior + layer.gram @ correction


def through_gates(layer: GatedLayer, at_outputs: Float[Tensor, "networks inputs width"]) -> Pulled:
    """Gradients at the pre-activations from those at the outputs."""
    gradients = at_outputs.mul_(layer.outputs.sign())  # 1 where the gate is open, 0 where it is closed
    inner, along = gradients @ gradients.mT, layer.directions @ gradients.mT
    return Pulled(_GAIN**2 * inner.double(), _GAIN * along.double())
