"""Gradients layer by layer: one forward pass, one backward pass an output, the layers' own formulas for the rest."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from skiplens.graph.functional import PureModel
from skiplens.graph.inputs import Samples
from skiplens.tangent.calls import Place, pull_back, record
from skiplens.tangent.coverage import LayerCoverage, Use, calls_of
from skiplens.tangent.gradients import (
    Buffer,
    Deferred,
    GradientForm,
    OuterProducts,
    ParameterSlice,
    Source,
    empty_gradients,
)
from skiplens.tangent.rules import Cotangents


class LayerRows(Source):
    """Never holds the Jacobian of more than the pieces asked for; backward passes end at the lowest of their layers."""

    def __init__(self, pure: PureModel, cover: LayerCoverage, chunk: int, stack: int) -> None:
        """Take how to go about it.

        Args:
            pure: The model.
            cover: Which calls and rules give the gradients.
            chunk: Samples in one forward pass.
            stack: Outputs whose cotangents are kept together, so that the rules work on larger matrices.
        """
        self.pure, self.cover, self.chunk, self.stack = pure, cover, chunk, stack
        self.modules = dict(pure.model.named_modules())

    def fill(
        self, samples: Samples, pieces: Sequence[ParameterSlice], outputs: Sequence[int], buffer: Buffer
    ) -> list[GradientForm]:
        """The gradients of the given outputs of all samples, piece by piece."""
        counts = (samples.count, len(outputs))
        factors: list[GradientForm | None] = [
            empty_gradients(self.pure, piece, counts, buffer) if piece.form == "gradients" else None for piece in pieces
        ]
        for where, chunk in samples.chunks(self.chunk):
            self._fill_chunk(_Part(where, samples.count, outputs, buffer), chunk, pieces, factors)
        return [factor for factor in factors if factor is not None]

    def _fill_chunk(
        self, part: "_Part", chunk: Samples, pieces: Sequence[ParameterSlice], factors: list[GradientForm | None]
    ) -> None:
        """One chunk of samples; its graph is gone when this returns."""
        forward = _Pass(self, chunk, pieces)
        for index, piece in enumerate(pieces):
            if piece.form == "outer":
                factors[index] = forward.with_left(piece, factors[index], part)
            elif piece.form == "deferred":
                factors[index] = forward.with_inputs(piece, factors[index], part)
        for start in range(0, len(part.outputs), self.stack):
            columns = slice(start, min(start + self.stack, len(part.outputs)))
            kept = self._kept(pieces, factors, (part.where, columns))
            cotangents = forward.cotangents(part.outputs[columns], kept, last=columns.stop == len(part.outputs))
            for piece, factor in zip(pieces, factors, strict=True):
                forward.write(piece, factor, (part.where, columns), cotangents)

    def _kept(
        self, pieces: Sequence[ParameterSlice], factors: Sequence[GradientForm | None], where: tuple[slice, slice]
    ) -> dict[Place, Cotangents]:
        """Where the cotangents of deferred pieces stay; they need no other place."""
        kept: dict[Place, Cotangents] = {}
        for piece, factor in zip(pieces, factors, strict=True):
            if isinstance(factor, Deferred):
                use = self.uses(piece)[0]
                kept[use.module, use.call] = (factor.cotangents[where],)
        return kept

    def uses(self, piece: ParameterSlice) -> tuple[Use, ...]:
        """All uses of the piece's parameter."""
        return self.cover.uses[piece.parameter]


@dataclass(frozen=True)
class _Part:
    """Where a chunk stands among all samples, the outputs that are looked at, and where memory comes from."""

    where: slice
    samples: int
    outputs: Sequence[int]
    buffer: Buffer


class _Pass:
    """One forward pass over a chunk of samples, with what the rules need of each call."""

    def __init__(self, source: LayerRows, chunk: Samples, pieces: Sequence[ParameterSlice]) -> None:
        self.source = source
        uses = [use for piece in pieces for use in source.uses(piece)]
        watched = {use.module: source.modules[use.module] for use in uses}
        leaves = source.pure.leaves(dict.fromkeys(piece.parameter for piece in pieces))
        everything = {**source.pure.parameters, **leaves}
        self.recording = record(source.pure, everything, chunk, watched, source.cover.spread)
        self.calls = calls_of(self.recording, source.cover, uses)
        self.count = chunk.count

    def cotangents(self, outputs: Sequence[int], kept: dict[Place, Cotangents], last: bool) -> dict[Place, Cotangents]:
        """Gradients of some outputs, all samples at once, with respect to what the calls returned.

        Args:
            outputs: The outputs.
            kept: Where to put the gradients of some calls; the others get memory of their own.
            last: Whether these are the last outputs, so that the graph may be freed.
        """
        stacked = dict(kept)
        for place, call in self.calls.items():
            if place not in stacked:
                shapes = [(zero.shape[0], len(outputs), *zero.shape[1:]) for zero in call.zeros]
                stacked[place] = tuple(z.new_empty(shape) for z, shape in zip(call.zeros, shapes, strict=True))
        for column, output in enumerate(outputs):
            with torch.enable_grad():
                total = self.recording.outputs[:, output].sum()
            keep = not (last and column == len(outputs) - 1)
            for place, gradients in pull_back(total, self.calls, keep_graph=keep).items():
                for room, gradient in zip(stacked[place], gradients, strict=True):
                    room[:, column] = gradient
        return stacked

    @torch.no_grad()
    def write(
        self,
        piece: ParameterSlice,
        factor: GradientForm | None,
        where: tuple[slice, slice],
        cotangents: dict[Place, Cotangents],
    ) -> None:
        """Put the gradients of the chunk into their place among all samples and outputs."""
        if isinstance(factor, Deferred):
            return  # its cotangents are in place already
        uses = self.source.uses(piece)
        known = [(use.rule, self.prepared(use), cotangents[use.module, use.call]) for use in uses]
        if isinstance(factor, OuterProducts):
            factor.right[where] = torch.cat([rule.right(has, gets) for rule, has, gets in known], dim=2)
        elif factor is not None and len(known) == 1:
            rule, has, gets = known[0]
            rule.write(has, gets, piece.rows, factor.rows[where])
        elif factor is not None:
            gradients = [rule.gradients(has, gets, piece.rows) for rule, has, gets in known]
            factor.rows[where] = torch.stack(gradients).sum(0)

    @torch.no_grad()
    def with_left(self, piece: ParameterSlice, factor: GradientForm | None, part: _Part) -> OuterProducts:
        """The factor with the side that all outputs share put into its place; made at the first chunk."""
        left = torch.cat([use.rule.left(self.prepared(use)) for use in self.source.uses(piece)], dim=1)
        if not isinstance(factor, OuterProducts):
            factor = self._empty_outer(piece, left, part)
        factor.left[part.where] = left
        return factor

    @torch.no_grad()
    def with_inputs(self, piece: ParameterSlice, factor: GradientForm | None, part: _Part) -> Deferred:
        """The factor with the layer's inputs put into their place; made at the first chunk."""
        use = self.source.uses(piece)[0]
        call = self.calls[use.module, use.call]
        if not isinstance(factor, Deferred):
            inputs = part.buffer.take(part.samples, *call.input.shape[1:])
            cotangents = part.buffer.take(part.samples, len(part.outputs), *call.zeros[0].shape[1:])
            shape = tuple(self.source.pure.parameters[piece.parameter].shape)
            factor = Deferred(use.rule, call.module, inputs, cotangents, shape, part.buffer)
        factor.inputs[part.where] = call.input
        return factor

    def prepared(self, use: Use) -> Any:
        """What the rule needs of its call; made anew each time, as keeping it for all layers would take most memory."""
        return use.rule.prepare(self.calls[use.module, use.call], self.count)

    def _empty_outer(self, piece: ParameterSlice, left: Tensor, part: _Part) -> OuterProducts:
        use = self.source.uses(piece)[0]
        shape = use.rule.outer_shape(self.prepared(use))
        channels = shape.right if shape is not None else 0
        right = part.buffer.take(part.samples, len(part.outputs), left.shape[1], channels)
        shape_of_left = (part.samples, *left.shape[1:])
        room = part.buffer.take(*shape_of_left) if left.is_floating_point() else left.new_empty(shape_of_left)
        return OuterProducts(room, right)
