"""Gradients that are formed slice by slice, only when they are multiplied."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import nn

from skiplens.core.axes import Tensor
from skiplens.derivatives.tangent.buffer import Buffer
from skiplens.derivatives.tangent.calls import call_with
from skiplens.derivatives.tangent.gradients import Gradients
from skiplens.derivatives.tangent.rules.rule import Rule

_SAMPLES_AT_ONCE = {"cpu": 16, "cuda": 256}


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

        Args:
            rows_at_once: Rows in a slice.
            side: 0 or 1; slices of different sides live in different memory.
        """
        rows, (samples, outputs) = self.parameter_shape[0], self.cotangents.shape[:2]
        prepared = _Prepared(self, worth_keeping=rows_at_once < rows)
        for start in range(0, rows, rows_at_once):
            part = slice(start, min(start + rows_at_once, rows))
            size = (part.stop - part.start) * math.prod(self.parameter_shape[1:])
            room = self.buffer.scratch(side, samples, outputs, size)
            for some, known in prepared:
                self.rule.write(known, (self.cotangents[some],), part, room[some])
            yield Gradients(room)


class _Prepared:
    """What the rule makes of the inputs, some samples at a time; kept for the next slice where there is room."""

    def __init__(self, deferred: Deferred, worth_keeping: bool) -> None:
        self.deferred, self.kept = deferred, dict[int, Any]()
        self.room = deferred.buffer.scratch_bytes if worth_keeping else 0

    def __iter__(self) -> Iterator[tuple[slice, Any]]:
        """Ranges of samples, each with what belongs to it."""
        inputs = self.deferred.inputs
        step = _SAMPLES_AT_ONCE.get(inputs.device.type, 16)
        for start in range(0, len(inputs), step):
            some = slice(start, start + step)
            yield some, self.kept[start] if start in self.kept else self._prepare(some)

    def _prepare(self, some: slice) -> Any:
        rule, inputs = self.deferred.rule, self.deferred.inputs[some]
        prepared = rule.prepare(call_with(self.deferred.module, inputs), len(inputs))
        size = rule.prepared_bytes(prepared)
        if size <= self.room:
            self.room -= size
            self.kept[some.start] = prepared
        return prepared
