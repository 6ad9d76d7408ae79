"""Gradients of embedding tables: only the rows that a sample looks up are not zero."""

from dataclasses import dataclass

import torch
from torch import nn

from skiplens.core.axes import Float, Int, Tensor
from skiplens.derivatives.tangent.calls import Call
from skiplens.derivatives.tangent.rules.rule import Cotangents, OuterShape, Rule


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

    def gradient(self, prepared: Tensor, cotangents: Cotangents, part: slice) -> Float[Tensor, "samples params"]:
        """Each sample's table of summed cotangents, rows `part`."""
        start, stop, _ = part.indices(self.layer.num_embeddings)
        inside = (prepared >= start) & (prepared < stop)
        rows = torch.where(inside, prepared - start, 0)
        values = self.right(prepared, cotangents) * inside[..., None]
        table = values.new_zeros((len(prepared), stop - start, self.layer.embedding_dim))
        index = rows[..., None].expand_as(values)
        return table.scatter_add_(1, index, values).flatten(1)

    def outer_shape(self, prepared: Tensor) -> OuterShape:
        """One term a look-up; comparing names costs nothing beside the products."""
        return OuterShape(prepared.shape[1], 1, self.layer.embedding_dim)

    def left(self, prepared: Tensor) -> Int[Tensor, "samples terms"]:
        """The rows looked up: two terms meet where they are equal."""
        return prepared

    def right(self, prepared: Tensor, cotangents: Cotangents) -> Float[Tensor, "samples terms channels"]:
        """Cotangents by look-up; the padding row never learns."""
        values = cotangents[0].reshape(*prepared.shape, self.layer.embedding_dim)
        padding = self.layer.padding_idx
        return values if padding is None else values * (prepared != padding)[..., None]
