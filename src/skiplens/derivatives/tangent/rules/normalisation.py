"""Gradients of the scales of normalisation layers: cotangent times normalised input."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn
from torch.nn import functional as F

from skiplens.core.axes import Float, Tensor
from skiplens.derivatives.tangent.calls import Call
from skiplens.derivatives.tangent.rules.channels import Channels
from skiplens.derivatives.tangent.rules.rule import Cotangents, Rule


@dataclass(frozen=True)
class Scale(Rule):
    """What multiplies each channel of a normalised input."""

    channels: Channels
    normalise: Callable[[Tensor], Tensor]

    def prepare(self, call: Call, samples: int) -> tuple[Tensor, int]:
        """The normalised input and the number of samples."""
        return self.normalise(call.input), samples

    def gradients(
        self, prepared: tuple[Tensor, int], cotangents: Cotangents, part: slice
    ) -> Float[Tensor, "samples outputs params"]:
        """Sums over positions of cotangent times normalised input."""
        normalised, samples = prepared
        return self.channels.sum_positions(normalised.unsqueeze(1) * cotangents[0], samples, part)


def layer_normaliser(layer: nn.LayerNorm) -> Callable[[Tensor], Tensor]:
    """Layer norm without scale and offset."""
    return lambda inputs: F.layer_norm(inputs, layer.normalized_shape, eps=layer.eps)


def group_normaliser(layer: nn.GroupNorm) -> Callable[[Tensor], Tensor]:
    """Group norm without scale and offset."""
    return lambda inputs: F.group_norm(inputs, layer.num_groups, eps=layer.eps)


def batch_normaliser(layer: nn.modules.batchnorm._BatchNorm) -> Callable[[Tensor], Tensor]:
    """Batch norm with its running statistics, without scale and offset."""
    return lambda inputs: F.batch_norm(inputs, layer.running_mean, layer.running_var, eps=layer.eps)
