"""The forms in which gradients are kept, the memory they live in, and the two sources that know no layers."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import jacrev, vmap

from skiplens.base.axes import Float
from skiplens.base.memory import fresh_empty
from skiplens.graph.functional import PureModel, transformable
from skiplens.graph.inputs import Samples
from skiplens.tangent.calls import call_with
from skiplens.tangent.rules import Rule

_SCRATCH_BYTES = {"cpu": 12 * 2**20, "cuda": 2**28}  # long enough for matrix products at full speed
_SCRATCH_SHARE = 1 / 8  # of a large buffer: shorter slices of many samples would mean more passes over the inputs
_SAMPLES_AT_ONCE = {"cpu": 16, "cuda": 256}


@dataclass(frozen=True)
class ParameterSlice:
    """Some rows (first axis) of one parameter, and the form in which their gradients are kept."""

    parameter: str
    rows: slice
    form: Literal["gradients", "outer", "deferred"] = "gradients"


@dataclass(frozen=True)
class Gradients:
    """The gradients themselves."""

    rows: Float[Tensor, "samples outputs params"]


@dataclass(frozen=True)
class OuterProducts:
    """Factors of gradients Σ_t left_t ⊗ right_t; an integer `left` names rows, which meet where they are equal."""

    left: Tensor  # (samples, terms, features), or (samples, terms) of integers
    right: Float[Tensor, "samples outputs terms channels"]


class Buffer:
    """A flat tensor from which tensors are cut; fresh memory would cost as much time as filling it.

    What does not fit is taken anew, so a buffer of size 0 is an ordinary allocator.
    """

    def __init__(self, like: Tensor, size: int) -> None:
        """Reserve room for `size` numbers of the dtype and on the device of `like`."""
        self._like, self._size, self._used = like, size, 0
        self._flat: Tensor | None = None
        self._scratch: dict[int, Tensor] = {}

    def take(self, *shape: int) -> Tensor:
        """A tensor of this shape with whatever was there before; valid until `clear`."""
        count = math.prod(shape)
        if self._used + count > self._size:
            return self._like.new_empty(shape)
        if self._flat is None:
            self._flat = fresh_empty(self._like, self._size)
        taken = self._flat[self._used : self._used + count].view(shape)
        self._used += count
        return taken

    def clear(self) -> None:
        """Hand out everything again from the start."""
        self._used = 0

    @property
    def scratch_bytes(self) -> int:
        """How large scratch should be at most."""
        shortest = _SCRATCH_BYTES.get(self._like.device.type, 2**24)
        return max(shortest, int(self._size * self._like.element_size() * _SCRATCH_SHARE))

    def scratch(self, name: int, *shape: int) -> Tensor:
        """A tensor of this shape beside the others, valid until scratch of the same name is asked for again."""
        count = math.prod(shape)
        if name not in self._scratch or self._scratch[name].numel() < count:
            self._scratch[name] = fresh_empty(self._like, count)
        return self._scratch[name][:count].view(shape)


def buffer_bytes(room: int) -> int:
    """How much of `room` bytes a buffer may take: a slice of gradients and what is kept for the next one fit beside."""
    return int(room / (1 + 2 * _SCRATCH_SHARE))


@dataclass(frozen=True)
class Deferred:
    """A layer's inputs and cotangents, from which its gradients follow.

    Takes less memory than the gradients where a layer has more weights than outputs.
    """

    rule: Rule
    module: nn.Module
    inputs: Tensor  # (samples, …)
    cotangents: Tensor  # (samples, outputs, …)
    parameter_shape: tuple[int, ...]
    buffer: Buffer

    @property
    def rows_at_once(self) -> int:
        """Rows of the parameter whose gradients fill a slice."""
        samples, outputs = self.cotangents.shape[:2]
        row_bytes = samples * outputs * math.prod(self.parameter_shape[1:]) * self.inputs.element_size()
        return max(1, min(self.parameter_shape[0], self.buffer.scratch_bytes // row_bytes))

    def slices(self, rows_at_once: int, side: int) -> Iterator[Gradients]:
        """The gradients of some rows of the parameter after the others, each valid until the next is asked for.

        Slices of different sides, 0 and 1, live in different memory.
        """
        rows, (samples, outputs) = self.parameter_shape[0], self.cotangents.shape[:2]
        step = _SAMPLES_AT_ONCE.get(self.inputs.device.type, 16)
        kept: dict[int, Any] = {}  # what the rule makes of the inputs, for the next slice, where there is room
        room = self.buffer.scratch_bytes if rows_at_once < rows else 0
        for start in range(0, rows, rows_at_once):
            part = slice(start, min(start + rows_at_once, rows))
            size = (part.stop - part.start) * math.prod(self.parameter_shape[1:])
            out = self.buffer.scratch(side, samples, outputs, size)
            for first in range(0, samples, step):
                some = slice(first, first + step)
                if first in kept:
                    prepared = kept[first]
                else:
                    inputs = self.inputs[some]
                    prepared = self.rule.prepare(call_with(self.module, inputs), len(inputs))
                    if (needed := self.rule.prepared_bytes(prepared)) <= room:
                        room -= needed
                        kept[first] = prepared
                self.rule.write(prepared, (self.cotangents[some],), part, out[some])
            yield Gradients(out)


GradientForm = Gradients | OuterProducts | Deferred


class Source(ABC):
    """Abstract: fills pieces of the Jacobian."""

    @abstractmethod
    def fill(
        self, samples: Samples, pieces: Sequence[ParameterSlice], outputs: Sequence[int], buffer: Buffer
    ) -> list[GradientForm]:
        """The gradients of the given outputs of all samples, piece by piece, in memory from `buffer`."""


class VectorisedRows(Source):
    """`torch.func`: `vmap` over samples of the reverse-mode Jacobian, some samples at a time."""

    def __init__(self, pure: PureModel, chunk: int) -> None:
        self.pure, self.chunk = pure, chunk

    def fill(
        self, samples: Samples, pieces: Sequence[ParameterSlice], outputs: Sequence[int], buffer: Buffer
    ) -> list[GradientForm]:
        """The gradients of the given outputs of all samples, piece by piece."""
        forms = [empty_gradients(self.pure, piece, (samples.count, len(outputs)), buffer) for piece in pieces]
        chosen = torch.as_tensor(list(outputs), device=self.pure.device)
        values = {piece.parameter: self.pure.parameters[piece.parameter] for piece in pieces}
        for where, chunk in samples.chunks(self.chunk):
            with transformable():
                jacobian = self._jacobian(chunk, values, chosen)
            for form, piece in zip(forms, pieces, strict=True):
                form.rows[where] = _rows_of(jacobian[piece.parameter], piece, leading=2)
        return list(forms)

    def _jacobian(self, chunk: Samples, values: dict[str, Tensor], chosen: Tensor) -> dict[str, Tensor]:
        def outputs_of_one(parameters: dict[str, Tensor], tensors: dict[str, Tensor]) -> Tensor:
            one = chunk.with_tensors({name: tensor.unsqueeze(0) for name, tensor in tensors.items()}, 1)
            return self.pure({**self.pure.parameters, **parameters}, one)[0, chosen]

        return vmap(jacrev(outputs_of_one), in_dims=(None, 0))(values, chunk.tensors())


class SingleRows(Source):
    """Plain autograd, one backward pass a sample and output: slow, and right for every model.

    Samples are looked at one by one, or all together where each sample's output depends on the whole batch.
    """

    def __init__(self, pure: PureModel, coupled: bool) -> None:
        self.pure, self.coupled = pure, coupled

    def fill(
        self, samples: Samples, pieces: Sequence[ParameterSlice], outputs: Sequence[int], buffer: Buffer
    ) -> list[GradientForm]:
        """The gradients of the given outputs of all samples, piece by piece."""
        forms = [empty_gradients(self.pure, piece, (samples.count, len(outputs)), buffer) for piece in pieces]
        for form in forms:
            form.rows.zero_()
        for where, batch in samples.chunks(samples.count if self.coupled else 1):
            leaves = self.pure.leaves(dict.fromkeys(piece.parameter for piece in pieces))
            with torch.enable_grad():
                values = self.pure({**self.pure.parameters, **leaves}, batch)[:, list(outputs)]
                rows = [row.unbind() for row in values.unbind()] if values.requires_grad else []
            for sample, row in enumerate(rows, start=where.start):
                for column, value in enumerate(row):
                    found = torch.autograd.grad(value, list(leaves.values()), retain_graph=True, allow_unused=True)
                    gradients = dict(zip(leaves, found, strict=True))
                    for form, piece in zip(forms, pieces, strict=True):
                        gradient = gradients[piece.parameter]
                        if gradient is not None:
                            form.rows[sample, column] = _rows_of(gradient, piece, leading=0)
        return list(forms)


def empty_gradients(pure: PureModel, piece: ParameterSlice, counts: tuple[int, int], buffer: Buffer) -> Gradients:
    """Room for the gradients of so many samples and outputs, to be filled."""
    return Gradients(buffer.take(*counts, _rows_of(pure.parameters[piece.parameter], piece, leading=0).numel()))


def _rows_of(gradient: Tensor, piece: ParameterSlice, leading: int) -> Float[Tensor, "*leading params"]:
    """The rows of the piece, flattened, behind `leading` axes that stay."""
    if gradient.ndim == leading:
        return gradient.unsqueeze(-1)
    return gradient[(*([slice(None)] * leading), piece.rows)].flatten(leading)
