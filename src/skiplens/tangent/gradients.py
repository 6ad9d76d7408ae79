"""The forms in which gradients are kept, their memory, two sources that know no layers, and the sum of products."""

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import jacrev, vmap

from skiplens.base import Float
from skiplens.base.memory import fresh_empty, fresh_zeros
from skiplens.graph.functional import PureModel, transformable
from skiplens.graph.inputs import Samples
from skiplens.tangent.calls import call_with
from skiplens.tangent.rules import Rule

_SCRATCH_BYTES = {"cpu": 12 * 2**20, "cuda": 2**28}  # long enough for matrix products at full speed
_SCRATCH_SHARE = 1 / 8  # of a large buffer: shorter slices of many samples would mean more passes over the inputs
_SAMPLES_AT_ONCE = {"cpu": 16, "cuda": 256}
_SYMMETRIC_BLOCK = 128  # rows of a block of the upper triangle: large enough for full speed, small enough to skip half
_PRODUCT_BYTES = 2**25  # of the products of a few samples


@dataclass(frozen=True)
class ParameterSlice:
    """Some rows (first axis) of one parameter, and the form in which their gradients are kept."""

    parameter: str
    rows: slice
    form: Literal["gradients", "outer", "deferred"] = "gradients"

    def empty(self, pure: PureModel, counts: tuple[int, int], buffer: "Buffer") -> "Gradients":
        """Room for the gradients of so many samples and outputs, to be filled."""
        return Gradients(buffer.take(*counts, _rows_of(pure.parameters[self.parameter], self, leading=0).numel()))


@dataclass(frozen=True)
class Gradients:
    """The gradients themselves."""

    rows: Float[Tensor, "samples outputs params"]


@dataclass(frozen=True)
class OuterProducts:
    """Factors of gradients Σ_t left_t ⊗ right_t; an integer `left` names rows, which meet where they are equal."""

    left: Tensor  # (samples, terms, features), or (samples, terms) of integers
    right: Float[Tensor, "samples outputs terms channels"]

    def select(self, samples: slice, terms: slice | Tensor = slice(None)) -> "OuterProducts":
        """Those of some samples and terms."""
        return OuterProducts(self.left[samples, terms], self.right[samples, :, terms])

    def living(self) -> "OuterProducts":
        """Without the terms that are zero everywhere: outputs of a language model come from one place each."""
        alive = (self.right != 0).any(3).any(1).any(0)
        return self if bool(alive.all()) else self.select(slice(None), alive)


@dataclass(frozen=True)
class Factored:
    """A gradient in factors: one part, or two where a table is looked up in and multiplied with (tied weights)."""

    parts: tuple[OuterProducts, ...]


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


GradientForm = Gradients | Factored | Deferred
Pieces = Sequence[ParameterSlice]


class Source(ABC):
    """Abstract: fills pieces of the Jacobian."""

    @abstractmethod
    def fill(self, samples: Samples, pieces: Pieces, outputs: Sequence[int], buffer: Buffer) -> list[GradientForm]:
        """The gradients of the given outputs of all samples, piece by piece, in memory from `buffer`."""


class VectorisedRows(Source):
    """`torch.func`: `vmap` over samples of the reverse-mode Jacobian, some samples at a time."""

    def __init__(self, pure: PureModel, chunk: int) -> None:
        self.pure, self.chunk = pure, chunk

    def fill(self, samples: Samples, pieces: Pieces, outputs: Sequence[int], buffer: Buffer) -> list[GradientForm]:
        """The gradients of the given outputs of all samples, piece by piece."""
        forms = [piece.empty(self.pure, (samples.count, len(outputs)), buffer) for piece in pieces]
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

    def fill(self, samples: Samples, pieces: Pieces, outputs: Sequence[int], buffer: Buffer) -> list[GradientForm]:
        """The gradients of the given outputs of all samples, piece by piece."""
        forms = [piece.empty(self.pure, (samples.count, len(outputs)), buffer) for piece in pieces]
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


def _rows_of(gradient: Tensor, piece: ParameterSlice, leading: int) -> Float[Tensor, "*leading params"]:
    """The rows of the piece, flattened, behind `leading` axes that stay."""
    if gradient.ndim == leading:
        return gradient.unsqueeze(-1)
    return gradient[(*([slice(None)] * leading), piece.rows)].flatten(leading)


class KernelSum:
    """The kernel as it grows: (left samples, right samples), or with an output axis beside each.

    Only the upper triangle is computed where left and right are the same samples.
    """

    def __init__(self, counts: tuple[int, int], outputs: int, symmetric: bool, like: Tensor) -> None:
        """Start at zero; `outputs` have an axis of their own, or are summed over where 0 is given."""
        self.counts, self.outputs, self.symmetric = counts, outputs, symmetric
        self.per_sample = outputs or 1
        self.matrix = fresh_zeros(like, counts[0] * self.per_sample, counts[1] * self.per_sample)

    def add(self, left: GradientForm, right: GradientForm) -> None:
        """Add the products of all left gradients with all right gradients."""
        if isinstance(left, Gradients) and isinstance(right, Gradients):
            self._add_matrix_product(left.rows, right.rows)
        elif isinstance(left, Factored) and isinstance(right, Factored):
            ones = [part.living() for part in left.parts]
            others = ones if left is right else [part.living() for part in right.parts]
            for pair in itertools.product(ones, others):
                self._add_outer_products(*pair)
        elif isinstance(left, Deferred) and left is right:
            for gradients in left.slices(left.rows_at_once, side=0):
                self.add(gradients, gradients)
        elif isinstance(left, Deferred) and isinstance(right, Deferred):
            rows = min(left.rows_at_once, right.rows_at_once)
            for one, another in zip(left.slices(rows, side=0), right.slices(rows, side=1), strict=True):
                self.add(one, another)

    def result(self) -> Tensor:
        """The kernel, mirrored where only its upper triangle was computed."""
        if self.symmetric:
            for rows in _blocks(self.matrix.shape[0], _SYMMETRIC_BLOCK):
                below = slice(rows.stop, None)
                self.matrix[below, rows] = self.matrix[rows, below].T
                corner = self.matrix[rows, rows]
                self.matrix[rows, rows] = torch.triu(corner) + torch.triu(corner, 1).T
        if not self.outputs:
            return self.matrix
        return self.matrix.reshape(self.counts[0], self.outputs, self.counts[1], self.outputs)

    def _add_matrix_product(
        self, left: Float[Tensor, "samples outputs params"], right: Float[Tensor, "others outputs params"]
    ) -> None:
        # An output is a row of its own where outputs are kept apart; else it lengthens the row of its sample.
        left, right = (g.flatten(0, 1) if self.outputs else g.flatten(1) for g in (left, right))
        if not self.symmetric:
            self.matrix.addmm_(left, right.T)
            return
        for rows in _blocks(len(left), _SYMMETRIC_BLOCK):
            self.matrix[rows, rows.start :].addmm_(left[rows], right[rows.start :].T)

    def _add_outer_products(self, left: OuterProducts, right: OuterProducts) -> None:
        _, K, T, C = map(max, zip(left.right.shape, right.right.shape, strict=True))
        bytes_per_pair = max(2 * T * T, T * K * C + K * K) * left.right.element_size()
        size = max(1, int((_PRODUCT_BYTES / bytes_per_pair) ** 0.5))
        for rows in _blocks(self.counts[0], size):
            for columns in _blocks(self.counts[1], size):
                if not self.symmetric or columns.start >= rows.start:
                    one, another = left.select(rows), right.select(columns)
                    down, across = (slice(s.start * self.per_sample, s.stop * self.per_sample) for s in (rows, columns))
                    self.matrix[down, across] += _outer_block(one, another, bool(self.outputs))


def diagonal_of(form: GradientForm) -> Float[Tensor, "samples outputs"]:
    """Each gradient's squared length."""
    if isinstance(form, Gradients):
        return torch.linalg.vector_norm(form.rows, dim=-1).square()
    if isinstance(form, Deferred):
        return torch.stack([diagonal_of(gradients) for gradients in form.slices(form.rows_at_once, side=0)]).sum(0)
    if len(form.parts) > 1:
        rows = []
        for sample in range(len(form.parts[0].left)):
            parts = [part.select(slice(sample, sample + 1)) for part in form.parts]
            pairs = [_outer_block(one, other, separate=True) for one, other in itertools.product(parts, parts)]
            rows.append(torch.stack(pairs).sum(0).diagonal())
        return torch.stack(rows)
    left, right = form.parts[0].left, form.parts[0].right
    meet = left @ left.transpose(1, 2) if left.is_floating_point() else left[:, :, None] == left[:, None, :]
    return (meet[:, None] * (right @ right.transpose(2, 3))).sum((2, 3))


def _table_block(table: OuterProducts, matrix: OuterProducts, separate: bool) -> Tensor:
    """⟨Σ_t e_r(t) ⊗ a_t, Σ_s b_s ⊗ c_s⟩ = Σ_ts b_s[r(t)] ⟨a_t, c_s⟩: what is looked up meets what is multiplied."""
    (n, K, T, _), (m, _, S, _) = table.right.shape, matrix.right.shape
    rows = matrix.right[..., table.left.flatten()].reshape(m, K, S, n, T)
    columns = torch.einsum("nktc,msc->nktms", table.right, matrix.left)
    if separate:
        return torch.einsum("mlsnt,nktms->nkml", rows, columns).reshape(n * K, m * K)
    return torch.einsum("mksnt,nktms->nm", rows, columns)


def _outer_block(left: OuterProducts, right: OuterProducts, separate: bool) -> Float[Tensor, "rows columns"]:
    """⟨Σ_t a_t ⊗ b_t, Σ_s c_s ⊗ d_s⟩ = Σ_ts ⟨a_t, c_s⟩⟨b_t, d_s⟩ for all pairs of samples, outputs summed or apart."""
    if left.left.is_floating_point() and not right.left.is_floating_point():
        return _table_block(right, left, separate).T
    if right.left.is_floating_point() and not left.left.is_floating_point():
        return _table_block(left, right, separate)
    inputs = _meetings(left.left, right.left).to(left.right.dtype)
    if not separate:
        # Outputs lie beside the channels, so that the product over channels also sums over outputs.
        joined = (form.right.transpose(1, 2).flatten(2) for form in (left, right))
        return (inputs * _meetings(*joined)).sum((1, 3))
    (n, K, T, C), m = left.right.shape, len(right.right)
    if T == 1:
        cotangents = left.right.reshape(n * K, C) @ right.right.reshape(m * K, C).T
        return (cotangents.reshape(n, K, m, K) * inputs.reshape(n, 1, m, 1)).reshape(n * K, m * K)
    # First the left cotangents are carried to the right terms, then they meet the right ones: K²TC instead of K²T²C.
    carried = inputs.permute(0, 2, 3, 1).reshape(n, m * T, T) @ left.right.transpose(1, 2).reshape(n, T, K * C)
    carried = carried.reshape(n, m, T, K, C).permute(1, 0, 3, 2, 4).reshape(m, n * K, T * C)
    return (carried @ right.right.reshape(m, K, T * C).transpose(1, 2)).permute(1, 0, 2).reshape(n * K, m * K)


def _meetings(left: Tensor, right: Tensor) -> Tensor:
    """Inner products of all left terms with all right terms: (samples, terms, samples, terms)."""
    if not left.is_floating_point():
        return left[:, :, None, None] == right[None, None, :, :]
    (n, T, C), (m, S, _) = left.shape, right.shape
    return (left.reshape(n * T, C) @ right.reshape(m * S, C).T).reshape(n, T, m, S)


def _blocks(total: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, total)) for start in range(0, total, size)]
