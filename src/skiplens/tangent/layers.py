"""Gradients layer by layer: one forward pass, one backward pass an output, the layers' own formulas for the rest."""

from collections.abc import Sequence
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
        """`chunk` samples go through at once; the cotangents of `stack` outputs make larger matrices for the rules."""
        self.pure, self.cover, self.chunk, self.stack = pure, cover, chunk, stack
        self.modules = dict(pure.model.named_modules())

    def fill(
        self, samples: Samples, pieces: Sequence[ParameterSlice], outputs: Sequence[int], buffer: Buffer
    ) -> list[GradientForm]:
        """The gradients of the given outputs of all samples, piece by piece."""
        counts = (samples.count, len(outputs))
        forms: dict[int, GradientForm] = {}
        for index, piece in enumerate(pieces):
            if piece.form == "gradients":
                forms[index] = empty_gradients(self.pure, piece, counts, buffer)
        for where, chunk in samples.chunks(self.chunk):
            self._fill_chunk(_Pass(self, chunk, pieces, where), outputs, forms, (counts, buffer))
        return [forms[index] for index in range(len(pieces))]

    def _fill_chunk(
        self,
        forward: "_Pass",
        outputs: Sequence[int],
        forms: dict[int, GradientForm],
        memory: tuple[tuple[int, int], Buffer],
    ) -> None:
        """One chunk of samples; its graph is gone when this returns. Forms not there yet are made in `memory`."""
        for index, piece in enumerate(forward.pieces):
            if piece.form != "gradients":
                if index not in forms:
                    forms[index] = forward.empty(piece, *memory)
                forward.write_inputs(piece, forms[index])
        for start in range(0, len(outputs), self.stack):
            columns = slice(start, min(start + self.stack, len(outputs)))
            place = (forward.where, columns)
            kept: dict[Place, Cotangents] = {}  # the cotangents of deferred pieces stay there and need no other place
            for index, piece in enumerate(forward.pieces):
                form, use = forms[index], self.cover.uses[piece.parameter][0]
                if isinstance(form, Deferred):
                    kept[use.module, use.call] = (form.cotangents[place],)
            cotangents = forward.cotangents(outputs[columns], kept, last=columns.stop == len(outputs))
            for index, piece in enumerate(forward.pieces):
                forward.write(piece, forms[index], place, cotangents)


class _Pass:
    """One forward pass over a chunk of samples, with what the rules need of each call."""

    def __init__(self, source: LayerRows, chunk: Samples, pieces: Sequence[ParameterSlice], where: slice) -> None:
        self.pure, self.uses, self.pieces, self.where = source.pure, source.cover.uses, pieces, where
        self.count = chunk.count
        uses = [use for piece in pieces for use in self.uses[piece.parameter]]
        watched = {use.module: source.modules[use.module] for use in uses}
        leaves = self.pure.leaves(dict.fromkeys(piece.parameter for piece in pieces))
        self.recording = record(self.pure, {**self.pure.parameters, **leaves}, chunk, watched, source.cover.spread)
        self.calls = calls_of(self.recording, source.cover, uses)

    def prepared(self, use: Use) -> Any:
        """What the rule needs of its call; made anew each time, as keeping it for all layers would take most memory."""
        return use.rule.prepare(self.calls[use.module, use.call], self.count)

    @torch.no_grad()
    def empty(self, piece: ParameterSlice, counts: tuple[int, int], buffer: Buffer) -> OuterProducts | Deferred:
        """Room for the factors, or for the inputs and cotangents, of all samples and outputs."""
        use, (samples, outputs) = self.uses[piece.parameter][0], counts
        call = self.calls[use.module, use.call]
        if piece.form == "deferred":
            inputs = buffer.take(samples, *call.input.shape[1:])
            cotangents = buffer.take(samples, outputs, *call.zeros[0].shape[1:])
            shape = tuple(self.pure.parameters[piece.parameter].shape)
            return Deferred(use.rule, call.module, inputs, cotangents, shape, buffer)
        left, outer = self._left(piece), use.rule.outer_shape(self.prepared(use))
        right = buffer.take(samples, outputs, left.shape[1], outer.right if outer is not None else 0)
        if left.is_floating_point():
            return OuterProducts(buffer.take(samples, *left.shape[1:]), right)
        return OuterProducts(left.new_empty((samples, *left.shape[1:])), right)

    def _left(self, piece: ParameterSlice) -> Tensor:
        """The side of the outer products that all outputs share, the terms of all uses in one row."""
        return torch.cat([use.rule.left(self.prepared(use)) for use in self.uses[piece.parameter]], dim=1)

    @torch.no_grad()
    def write_inputs(self, piece: ParameterSlice, form: GradientForm) -> None:
        """Put what does not depend on the outputs into its place among all samples."""
        if isinstance(form, OuterProducts):
            form.left[self.where] = self._left(piece)
        elif isinstance(form, Deferred):
            use = self.uses[piece.parameter][0]
            form.inputs[self.where] = self.calls[use.module, use.call].input

    def cotangents(self, outputs: Sequence[int], kept: dict[Place, Cotangents], last: bool) -> dict[Place, Cotangents]:
        """Gradients of some outputs, all samples at once, with respect to what the calls returned.

        Those of calls in `kept` go there, the others get their own memory; with the `last` outputs the graph is freed.
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
            for place, gradients in pull_back(total, self.calls, keep_graph=keep)[0].items():
                for room, gradient in zip(stacked[place], gradients, strict=True):
                    room[:, column] = gradient
        return stacked

    @torch.no_grad()
    def write(
        self, piece: ParameterSlice, form: GradientForm, place: tuple[slice, slice], cotangents: dict[Place, Cotangents]
    ) -> None:
        """Put the gradients of the chunk into their place among all samples and outputs."""
        if isinstance(form, Deferred):
            return  # its cotangents are in place already
        uses = self.uses[piece.parameter]
        known = [(use.rule, self.prepared(use), cotangents[use.module, use.call]) for use in uses]
        if isinstance(form, OuterProducts):
            form.right[place] = torch.cat([rule.right(has, gets) for rule, has, gets in known], dim=2)
        elif len(known) == 1:
            rule, has, gets = known[0]
            rule.write(has, gets, piece.rows, form.rows[place])
        else:
            gradients = [rule.gradients(has, gets, piece.rows) for rule, has, gets in known]
            form.rows[place] = torch.stack(gradients).sum(0)
