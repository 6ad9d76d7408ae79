"""A layer of ReLU units of many networks, drawn without its weight matrix.

A Gaussian W enters a network only through its products with what comes in and with the gradients that come back. Given
the Gram matrix of what comes in, the units are independent: V = Z·R with Z normal and RᵀR the Gram matrix. Given
these, the image of a gradient under W is what the forward products fix, plus fresh noise orthogonal to it. So a layer
costs O(width·inputs²) instead of O(width²·inputs), and everything between layers is inputs × inputs.

Matrices with an axis of units are kept transposed, (inputs, width): their products are then two to three times faster.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from skiplens.base import DidNotConverge, Float

Small = Float[Tensor, "networks inputs inputs"]
_GAIN = 2**0.5  # of the ReLU, so that it keeps the mean squared norm
_MORE_SLACK = 12  # times ten each: from rounding to anything that is finite
_SMALLEST = 1e-30  # keeps the factor of a dead layer (all gates closed) invertible; its images stay zero


class SlackFactor(NamedTuple):
    """Upper triangular R with RᵀR = gram + diag(slack), which exists also where equal inputs make the gram singular.

    A forward pass with R is a forward pass with a little independent noise, of variance slack, on what a matrix maps.
    The backward pass knows of that noise, so their joint law is that of some network, and off only by the slack.
    """

    upper: Small
    slack: Float[Tensor, "networks inputs"]

    def forward(self) -> Small:
        """R with its columns shortened to the norms that the Gram matrix has without slack."""
        norms_squared = self.upper.square().sum(1)
        return self.upper * ((norms_squared - self.slack).clamp(min=0) / norms_squared).sqrt()[:, None]


class GatedLayer(NamedTuple):
    """The units of a layer: V = directions·R before the ReLU, outputs √2·relu(V)."""

    directions: Float[Tensor, "networks inputs width"]
    outputs: Float[Tensor, "networks inputs width"]
    gram: Small  # inner products of the outputs
    factor: SlackFactor  # of `gram`


class Pulled(NamedTuple):
    """Gradients at a layer's pre-activations, as far as the layers below need to know them."""

    gram: Small  # inner products of the gradients
    along: Small  # Zᵀ times the gradients, Z the layer's directions


@dataclass(frozen=True)
class Draws:
    """Where random numbers come from: a generator, and the number of networks that are drawn at once."""

    generator: torch.Generator  # its device is the device of everything drawn
    networks: int
    inputs: int  # of each network
    dtype: torch.dtype  # of what has an axis of the network's width

    def wide_normal(self, width: int, rows: int | None = None) -> Float[Tensor, "networks rows width"]:
        """Independent standard normal numbers, one column per unit; a row for each input if not given otherwise."""
        shape = (self.networks, self.inputs if rows is None else rows, width)
        return torch.randn(shape, generator=self.generator, dtype=self.dtype, device=self.generator.device)

    def normal(self, rows: int, columns: int | None = None) -> Float[Tensor, "networks rows columns"]:
        """Independent standard normal numbers, drawn with the digits of `dtype` and kept in float64."""
        return self.wide_normal(self.inputs if columns is None else columns, rows).double()

    def chi(self, degrees: Tensor) -> Float[Tensor, "networks degrees"]:
        """Independent chi-distributed numbers, a column for each number of degrees of freedom (0 or less gives 0)."""
        shape = (degrees.clamp(min=1).double() / 2).to(self.generator.device).expand(self.networks, -1).contiguous()
        # torch.distributions draws gamma numbers with this function too, but lets no generator through.
        gamma = torch._standard_gamma(shape, generator=self.generator)
        return torch.where(degrees.to(gamma.device) > 0, (2 * gamma).sqrt(), torch.zeros_like(gamma))

    def wishart_factor(self, degrees: int) -> Small:
        """Upper triangular T with TᵀT of the law of GᵀG, G normal with `degrees` rows (Bartlett's decomposition)."""
        p = self.inputs
        rows = torch.arange(p, device=self.generator.device)
        return self.normal(p).triu(1) * (rows < degrees)[:, None] + torch.diag_embed(self.chi(degrees - rows))


def draw_layer(preactivation_factor: Tensor, width: int, draws: Draws) -> GatedLayer:
    """A layer whose pre-activations have the Gram matrix FᵀF per unit, F = `preactivation_factor`."""
    directions = draws.wide_normal(width)
    outputs = ((_GAIN * preactivation_factor).mT.to(draws.dtype) @ directions).relu_()
    inner = (outputs @ outputs.mT).double()
    return GatedLayer(directions, outputs, inner, slack_factor(inner, relative_slack(inner, draws.dtype)))


def pull_back(layer: GatedLayer, along: Tensor, noise_factor: Tensor, draws: Draws) -> Pulled:
    """Gradients at a layer that one matrix reads, taken through the gates.

    `along` is the image √s·Zᵀb of the gradients in the directions Z in which the matrix has mapped the layer's outputs
    forward, `noise_factor` C the factor of the covariance CᵀC = s·bᵀb per unit without that knowledge.
    """
    upper, slack = layer.factor
    slack_part = slack.sqrt()[..., None] * draws.normal(draws.inputs) @ noise_factor
    return pull_back_shared(layer, upper.mT @ along - slack_part, noise_factor, upper, draws)[0]


def pull_back_shared(
    layer: GatedLayer, wanted: Tensor, noise_factor: Tensor, shared: Tensor, draws: Draws
) -> tuple[Pulled, Tensor]:
    """Gradients β at a layer's outputs U given a sum of Uᵀβ and Gaussian others, taken through the gates; and Uᵀβ.

    A draw without that knowledge, of covariance CᵀC per unit with C = `noise_factor`, is corrected by its conditional
    mean, which gives a draw of the conditional law. `wanted` is what the sum must be, less a draw of the others, and
    `shared` the upper triangular factor of the covariance of the whole sum.
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


def slack_factor(gram: Small, slack: Float[Tensor, "networks inputs"]) -> SlackFactor:
    """The factor of gram + diag(slack), with ten times the slack where rounding has made that indefinite."""
    for _ in range(_MORE_SLACK):
        lower, failed = torch.linalg.cholesky_ex(gram + torch.diag_embed(slack))
        if not bool(failed.any()):
            return SlackFactor(lower.mT, slack)
        slack = torch.where((failed > 0)[:, None], 10 * slack, slack)
    raise DidNotConverge(
        "A Gram matrix of the sampled layers is not finite: the network's values have left the range of its dtype. "
        "Use float64, or a smaller branch_scale or depth."
    )


def relative_slack(gram: Small, dtype: torch.dtype) -> Float[Tensor, "networks inputs"]:
    """A slack just above the rounding of a Gram matrix that was computed in `dtype`."""
    return slack_share(dtype) * gram.diagonal(dim1=-2, dim2=-1) + _SMALLEST


def slack_share(dtype: torch.dtype) -> float:
    """Slack per squared norm: 1e-14 in float64 and 2e-6 in float32."""
    return 1e-14 if dtype == torch.float64 else 2e-6


def square(matrix: Tensor) -> Tensor:
    """matrixᵀ·matrix."""
    return matrix.mT @ matrix


def factor(gram: Small, dtype: torch.dtype) -> Small:
    """Upper triangular R with RᵀR = gram up to the rounding of `dtype`, the diagonal as it is."""
    return slack_factor(gram, relative_slack(gram, dtype)).forward()
