"""Pieces of the Jacobian: rows of one parameter, and the forms in which all samples' gradients are kept."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from torch import nn

from skiplens.core.axes import Float, Tensor
from skiplens.derivatives.tangent.buffer import Buffer
from skiplens.derivatives.tangent.calls import call_with
from skiplens.derivatives.tangent.rules.rule import Rule

Form = Literal["gradients", "outer", "deferred"]

_SLICE_BYTES = 24 * 2**20  # long enough for matrix products at full speed
_SAMPLES_AT_ONCE = 16


@dataclass(frozen=True)
class Piece:
    """Some rows (first axis) of one parameter, and the form in which their gradients are kept."""

    parameter: str
    rows: slice
    form: Form = "gradients"


@dataclass(frozen=True)
class Gradients:
    """The gradients themselves."""

    rows: Float[Tensor, "samples outputs params"]


@dataclass(frozen=True)
class OuterProducts:
    """Factors of gradients Σ_t left_t ⊗ right_t; an integer `left` names rows, which meet where they are equal."""

    left: Tensor  # (samples, terms, features), or (samples, terms) of integers
    right: Float[Tensor, "samples outputs terms channels"]


@dataclass(frozen=True)
class Deferred:
    """A layer's inputs and cotangents, from which gradients are formed slice by slice when they are multiplied.

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
        return max(1, min(self.parameter_shape[0], _SLICE_BYTES // row_bytes))

    def slices(self, rows_at_once: int, side: int) -> Iterator[Gradients]:
        """The gradients of some rows of the parameter after the others, each valid until the next is asked for.

        Args:
            rows_at_once: Rows in a slice.
            side: 0 or 1; slices of different sides live in different memory.
        """
        rows, (samples, outputs) = self.parameter_shape[0], self.cotangents.shape[:2]
        for start in range(0, rows, rows_at_once):
            part = slice(start, min(start + rows_at_once, rows))
            size = (part.stop - part.start) * math.prod(self.parameter_shape[1:])
            room = self.buffer.scratch(side, samples, outputs, size)
            self._form(part, room)
            yield Gradients(room)

    def _form(self, part: slice, room: Float[Tensor, "samples outputs params"]) -> None:
        for start in range(0, len(self.inputs), _SAMPLES_AT_ONCE):
            some = slice(start, start + _SAMPLES_AT_ONCE)
            inputs = self.inputs[some]
            prepared = self.rule.prepare(call_with(self.module, inputs), len(inputs))
            self.rule.write(prepared, (self.cotangents[some],), part, room[some])


Factor = Gradients | OuterProducts | Deferred
