"""Rules: the gradient of one parameter, sample by sample, from one call's inputs and its outputs' gradients.

What a rule is, and those of linear layers, offsets, embeddings and norms; `rule_table` has the others and the table.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from skiplens.base.axes import Float, Int
from skiplens.tangent.calls import Call

Cotangents = tuple[Tensor, ...]
"""Gradients with respect to the output tensors of one call: (batch, outputs, …), where the batch axis is the samples
or, where a model folds other axes into it, samples × pieces."""


@dataclass(frozen=True)
class OuterShape:
    """Sizes of a gradient Σ_t left_t ⊗ right_t: the number of terms and the lengths of both sides."""

    terms: int
    left: int
    right: int


class Rule(ABC):
    """Abstract: how one parameter's gradient follows from a call; all samples and several outputs at once."""

    @abstractmethod
    def prepare(self, call: Call, samples: int) -> Any:
        """What the gradient needs of the call's inputs."""

    @abstractmethod
    def gradients(self, prepared: Any, cotangents: Cotangents, part: slice) -> Float[Tensor, "samples outputs params"]:
        """Each sample's and output's gradient of the parameter's rows `part` (its first axis), flattened."""

    def write(
        self, prepared: Any, cotangents: Cotangents, part: slice, out: Float[Tensor, "samples outputs params"]
    ) -> None:
        """Put the gradients into `out`; a rule that can compute them in place saves a copy."""
        out.copy_(self.gradients(prepared, cotangents, part))

    def prepared_bytes(self, prepared: Any) -> int:
        """Memory that `prepared` takes beside the inputs; nothing where it only looks at them."""
        return 0

    @property
    def deferrable(self) -> bool:
        """Whether the gradient follows from the one input tensor and the cotangent, whenever it is asked for."""
        return False

    def outer_shape(self, prepared: Any) -> OuterShape | None:
        """Sizes of the outer products the gradient is a sum of, or None where it is not of that form."""
        return None

    def left(self, prepared: Any) -> Tensor:
        """The side that all outputs share: (samples, terms, features), or (samples, terms) of integer names."""
        raise NotImplementedError(f"{type(self).__name__} is not a sum of outer products.")

    def right(self, prepared: Any, cotangents: Cotangents) -> Float[Tensor, "samples outputs terms channels"]:
        """The side that comes from the output's gradient."""
        raise NotImplementedError(f"{type(self).__name__} is not a sum of outer products.")


def by_sample(cotangent: Tensor, samples: int) -> Float[Tensor, "samples outputs pieces *rest"]:
    """A cotangent (batch, outputs, …) with the pieces that a model folded into its batch axis behind the outputs."""
    if cotangent.shape[0] == samples:
        return cotangent.unsqueeze(2)
    return cotangent.unflatten(0, (samples, -1)).transpose(1, 2)


@dataclass(frozen=True)
class Channels:
    """The channels of a layer's output and their place.

    Attributes:
        shape: Shape of a parameter with one number a channel (layer norm may have several axes).
        last: Whether channels are the last axes, or the axis after the batch.
    """

    shape: tuple[int, ...]
    last: bool

    @property
    def count(self) -> int:
        """How many channels there are."""
        return math.prod(self.shape)

    def by_position(self, cotangent: Tensor, samples: int) -> Float[Tensor, "samples outputs terms channels"]:
        """A cotangent, whose channels are last, with all positions of a sample joined."""
        return by_sample(cotangent, samples).reshape(samples, cotangent.shape[1], -1, self.count)

    def sum_positions(self, cotangent: Tensor, samples: int, part: slice) -> Float[Tensor, "samples outputs params"]:
        """Sums over everything but samples, outputs and channels, for the rows `part` of the channels."""
        if self.last:
            sums = self.by_position(cotangent, samples).sum(2)
        else:
            pieces = by_sample(cotangent, samples)
            sums = pieces.reshape(*pieces.shape[:4], -1).sum((2, 4))
        return sums.unflatten(2, self.shape)[:, :, part].flatten(2)


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


@dataclass(frozen=True)
class EmbeddingTable(Rule):
    """The table of an embedding: row r gets the sum of the cotangents where r was looked up."""

    layer: nn.Embedding

    def prepare(self, call: Call, samples: int) -> Int[Tensor, "samples terms"]:
        """The rows looked up, by sample; an index that all samples share is repeated for each."""
        names = call.input
        if names.shape[0] == 1:
            names = names.expand(samples, *names.shape[1:])
        return names.reshape(samples, -1)

    def gradients(
        self, prepared: Tensor, cotangents: Cotangents, part: slice
    ) -> Float[Tensor, "samples outputs params"]:
        """Each sample's and output's table of summed cotangents, rows `part`."""
        start, stop, _ = part.indices(self.layer.num_embeddings)
        inside = (prepared >= start) & (prepared < stop)
        rows = torch.where(inside, prepared - start, 0)
        values = self.right(prepared, cotangents) * inside[:, None, :, None]
        table = values.new_zeros((*values.shape[:2], stop - start, self.layer.embedding_dim))
        return table.scatter_add_(2, rows[:, None, :, None].expand_as(values), values).flatten(2)

    def outer_shape(self, prepared: Tensor) -> OuterShape:
        """One term a look-up; comparing names costs nothing beside the products."""
        return OuterShape(prepared.shape[1], 1, self.layer.embedding_dim)

    def left(self, prepared: Tensor) -> Int[Tensor, "samples terms"]:
        """The rows looked up: two terms meet where they are equal."""
        return prepared

    def right(self, prepared: Tensor, cotangents: Cotangents) -> Float[Tensor, "samples outputs terms channels"]:
        """Cotangents by look-up; the padding row never learns."""
        samples, terms = prepared.shape
        values = by_sample(cotangents[0], samples)
        values = values.reshape(samples, values.shape[1], terms, self.layer.embedding_dim)
        padding = self.layer.padding_idx
        return values if padding is None else values * (prepared != padding)[:, None, :, None]


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
