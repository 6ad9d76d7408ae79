"""Gradients of matrices and offsets: linear layers, and the offsets of every other layer."""

from dataclasses import dataclass

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.derivatives.tangent.calls import Call
from skiplens.derivatives.tangent.rules.channels import Channels
from skiplens.derivatives.tangent.rules.rule import Cotangents, OuterShape, Rule


@dataclass(frozen=True)
class LinearWeight(Rule):
    """The matrix of y = x Wᵀ, or of y = x W where `transposed`: Σ over positions of cotangent ⊗ input."""

    inputs: Channels
    outputs: Channels
    transposed: bool = False

    def prepare(self, call: Call, samples: int) -> Float[Tensor, "samples terms features"]:
        """Inputs by sample and position."""
        return call.input.reshape(samples, -1, self.inputs.count)

    def gradients(
        self, prepared: Tensor, cotangents: Cotangents, part: slice
    ) -> Float[Tensor, "samples outputs params"]:
        """Each sample's and output's matrix of sums of outer products."""
        cotangent = self.right(prepared, cotangents)
        if self.transposed:
            return torch.einsum("sti,sotc->soic", prepared[..., part], cotangent).flatten(2)
        return torch.einsum("sotc,sti->soci", cotangent[..., part], prepared).flatten(2)

    @property
    def deferrable(self) -> bool:
        """The input and the cotangent suffice."""
        return True

    def outer_shape(self, prepared: Tensor) -> OuterShape:
        """One term a position."""
        return OuterShape(prepared.shape[1], self.inputs.count, self.outputs.count)

    def left(self, prepared: Tensor) -> Tensor:
        """Inputs by sample and position."""
        return prepared

    def right(self, prepared: Tensor, cotangents: Cotangents) -> Float[Tensor, "samples outputs terms channels"]:
        """Cotangents by sample, output and position."""
        return self.outputs.by_position(cotangents[0], prepared.shape[0])


@dataclass(frozen=True)
class Offset(Rule):
    """What is added to each channel: the sum of the cotangent over positions."""

    channels: Channels

    def prepare(self, call: Call, samples: int) -> int:
        """Only the number of samples matters."""
        return samples

    def gradients(self, prepared: int, cotangents: Cotangents, part: slice) -> Float[Tensor, "samples outputs params"]:
        """Sums over positions."""
        return self.channels.sum_positions(cotangents[0], prepared, part)
