"""Gradients of convolution kernels in one, two or three dimensions: patches of the input times cotangents."""

from dataclasses import dataclass

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.derivatives.patches import Convolution, patches
from skiplens.derivatives.tangent.calls import Call
from skiplens.derivatives.tangent.rules.rule import Cotangents, OuterShape, Rule, by_sample


@dataclass(frozen=True)
class Patches:
    """Input patches (samples × pieces, groups, kernel entries, positions) and the number of samples."""

    tensor: Tensor
    samples: int


@dataclass(frozen=True)
class ConvolutionWeight(Rule):
    """The kernel of a convolution with any stride, padding, dilation and number of groups."""

    layer: Convolution

    def prepare(self, call: Call, samples: int) -> Patches:
        """The patches that each output position sees."""
        return Patches(patches(self.layer, call.input), samples)

    def gradients(
        self, prepared: Patches, cotangents: Cotangents, part: slice
    ) -> Float[Tensor, "samples outputs params"]:
        """Cotangents times patches, summed over positions and over the pieces of each sample."""
        batch, groups, entries, positions = prepared.tensor.shape
        B = cotangents[0].reshape(batch, -1, groups, self.layer.out_channels // groups, positions)
        G = B @ prepared.tensor.transpose(2, 3).unsqueeze(1)
        G = G.reshape(batch, -1, self.layer.out_channels, entries)[:, :, part]
        return by_sample(G, prepared.samples).sum(2).flatten(2)

    def write(
        self, prepared: Patches, cotangents: Cotangents, part: slice, out: Float[Tensor, "samples outputs params"]
    ) -> None:
        """One matrix product a sample, all outputs together, straight into its place."""
        batch, groups, entries, positions = prepared.tensor.shape
        if groups > 1 or batch != prepared.samples or out.dtype != prepared.tensor.dtype:
            super().write(prepared, cotangents, part, out)
            return
        B = cotangents[0].flatten(3)[:, :, part].reshape(batch, -1, positions)
        torch.bmm(B, prepared.tensor[:, 0].transpose(1, 2), out=out.view(batch, -1, entries))

    def prepared_bytes(self, prepared: Patches) -> int:
        """A copy of the input for each entry of the kernel."""
        return prepared.tensor.nbytes

    @property
    def deferrable(self) -> bool:
        """The input and the cotangent suffice."""
        return True

    def outer_shape(self, prepared: Patches) -> OuterShape | None:
        """One term a position, where there are no groups."""
        batch, groups, entries, positions = prepared.tensor.shape
        terms = batch // prepared.samples * positions
        return OuterShape(terms, entries, self.layer.out_channels) if groups == 1 else None

    def left(self, prepared: Patches) -> Tensor:
        """Patches by sample and position."""
        return prepared.tensor[:, 0].transpose(1, 2).reshape(prepared.samples, -1, prepared.tensor.shape[2])

    def right(self, prepared: Patches, cotangents: Cotangents) -> Float[Tensor, "samples outputs terms channels"]:
        """Cotangents by sample, output and position."""
        B = by_sample(cotangents[0].flatten(3), prepared.samples).transpose(3, 4)
        return B.reshape(prepared.samples, B.shape[1], -1, self.layer.out_channels)
