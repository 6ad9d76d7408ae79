"""Gradients of embedding tables: only the rows that a sample looks up are not zero."""

from dataclasses import dataclass

import torch
from torch import nn

from skiplens.core.axes import Float, Int, Tensor
from skiplens.derivatives.tangent.calls import Call
from skiplens.derivatives.tangent.rules.rule import Cotangents, OuterShape, Rule, by_sample


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
