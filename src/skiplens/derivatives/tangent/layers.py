"""Gradients layer by layer: one forward pass, one backward pass an output, the layers' own formulas for the rest."""

from collections.abc import Sequence
from typing import Any

import torch

from skiplens.core.axes import Tensor
from skiplens.derivatives.functional import PureModel
from skiplens.derivatives.samples import Samples
from skiplens.derivatives.tangent.calls import Place, pull_back, record
from skiplens.derivatives.tangent.cover import Cover, Use, calls_of
from skiplens.derivatives.tangent.pieces import Factor, OuterProducts, Piece
from skiplens.derivatives.tangent.rules.rule import Cotangents
from skiplens.derivatives.tangent.sources import Source, empty_gradients


class LayerRows(Source):
    """Never holds the Jacobian of more than the pieces asked for; backward passes end at the lowest of their layers."""

    def __init__(self, pure: PureModel, cover: Cover, chunk: int) -> None:
        self.pure, self.cover, self.chunk = pure, cover, chunk
        self.modules = dict(pure.model.named_modules())

    def fill(self, samples: Samples, pieces: Sequence[Piece], outputs: Sequence[int]) -> list[Factor]:
        """The gradients of the given outputs of all samples, piece by piece."""
        factors: list[Factor | None] = [None] * len(pieces)
        plain = [index for index, piece in enumerate(pieces) if not piece.outer]
        for index, room in zip(
            plain, empty_gradients(self.pure, samples.count, [pieces[i] for i in plain], len(outputs)), strict=True
        ):
            factors[index] = room
        for where, chunk in samples.chunks(self.chunk):
            pass_ = _Pass(self, chunk, pieces)
            for index, piece in enumerate(pieces):
                if piece.outer:
                    factors[index] = pass_.with_left(piece, factors[index], where, (samples.count, len(outputs)))
            for column, output in enumerate(outputs):
                cotangents = pass_.cotangents(output, last=column == len(outputs) - 1)
                for piece, factor in zip(pieces, factors, strict=True):
                    pass_.write(piece, factor, where, column, cotangents)
        return [factor for factor in factors if factor is not None]

    def uses(self, piece: Piece) -> tuple[Use, ...]:
        """All uses of the piece's parameter."""
        return self.cover.uses[piece.parameter]


class _Pass:
    """One forward pass over a chunk of samples, with what the rules need of each call."""

    def __init__(self, source: LayerRows, chunk: Samples, pieces: Sequence[Piece]) -> None:
        self.source = source
        uses = [use for piece in pieces for use in source.uses(piece)]
        watched = {use.module: source.modules[use.module] for use in uses}
        leaves = source.pure.leaves(dict.fromkeys(piece.parameter for piece in pieces))
        everything = {**source.pure.parameters, **leaves}
        self.recording = record(source.pure, everything, chunk, watched, source.cover.spread)
        self.calls = calls_of(self.recording, source.cover, uses)
        with torch.no_grad():
            self.prepared = {id(use): self._prepare(use, chunk.count) for use in uses}

    def cotangents(self, output: int, last: bool) -> dict[Place, Cotangents]:
        """Gradients of one output, all samples at once, with respect to the outputs of the calls."""
        with torch.enable_grad():
            total = self.recording.outputs[:, output].sum()
        return pull_back(total, self.calls, keep_graph=not last)

    @torch.no_grad()
    def write(
        self, piece: Piece, factor: Factor | None, where: slice, column: int, cotangents: dict[Place, Cotangents]
    ) -> None:
        """Put one output's gradients of the chunk into their place."""
        known = [(use, self.prepared[id(use)], cotangents[use.module, use.call]) for use in self.source.uses(piece)]
        if isinstance(factor, OuterProducts):
            factor.right[where, column] = torch.cat([use.rule.right(has, gets) for use, has, gets in known], dim=1)
        elif factor is not None:
            gradients = [use.rule.gradient(has, gets, piece.rows) for use, has, gets in known]
            factor.rows[where, column] = gradients[0] if len(gradients) == 1 else torch.stack(gradients).sum(0)

    @torch.no_grad()
    def with_left(self, piece: Piece, factor: Factor | None, where: slice, counts: tuple[int, int]) -> OuterProducts:
        """The factor with the side that all outputs share put into its place; made at the first chunk."""
        left = torch.cat([use.rule.left(self.prepared[id(use)]) for use in self.source.uses(piece)], dim=1)
        if not isinstance(factor, OuterProducts):
            factor = self._empty_outer(piece, left, counts)
        factor.left[where] = left
        return factor

    def _empty_outer(self, piece: Piece, left: Tensor, counts: tuple[int, int]) -> OuterProducts:
        samples, outputs = counts
        use = self.source.uses(piece)[0]
        shape = use.rule.outer_shape(self.prepared[id(use)])
        channels = shape.right if shape is not None else 0
        like = next(iter(self.source.pure.parameters.values()))
        dtype = self.source.pure.dtype if left.is_floating_point() else left.dtype
        return OuterProducts(
            left.new_empty((samples, *left.shape[1:]), dtype=dtype),
            like.new_empty((samples, outputs, left.shape[1], channels), dtype=self.source.pure.dtype),
        )

    def _prepare(self, use: Use, count: int) -> Any:
        return use.rule.prepare(self.calls[use.module, use.call], count)
