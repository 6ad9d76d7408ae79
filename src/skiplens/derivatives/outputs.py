"""What counts as the output of a model, and which of its entries a measurement looks at."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from skiplens.core.axes import Float, Tensor
from skiplens.core.errors import InvalidInputError

OutputChoice = str | int | tuple[int, ...]
"""``"trace"``, ``"full"``, or the index of one output (a tuple for outputs with several axes)."""


@dataclass(frozen=True)
class OutputSelection:
    """The flat outputs that are looked at, and whether each keeps its own axis in the result."""

    indices: tuple[int, ...]
    separate: bool

    @property
    def count(self) -> int:
        """How many outputs are looked at."""
        return len(self.indices)

    def runs(self, size: int) -> list[tuple[int, ...]]:
        """The outputs in consecutive runs of at most `size`."""
        return [self.indices[start : start + size] for start in range(0, self.count, size)]


def main_output(output: Any) -> Tensor:
    """The tensor a model is about: itself, its logits, or the first floating tensor of a tuple or mapping."""
    if isinstance(output, Mapping) and isinstance(output.get("logits"), Tensor):
        return output["logits"]
    for tensor in tensors_in(output):
        if tensor.is_floating_point():
            return tensor
    raise InvalidInputError(
        f"The model returned {type(output).__name__}, in which there is no floating-point tensor; "
        "wrap the model so that it returns the tensor to look at."
    )


def tensors_in(value: Any) -> Iterator[Tensor]:
    """All tensors of nested tuples, lists and mappings, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for entry in value.values():
            yield from tensors_in(entry)
    elif isinstance(value, tuple | list):
        for entry in value:
            yield from tensors_in(entry)


def flat_outputs(output: Any, samples: int) -> Float[Tensor, "samples outputs"]:
    """The main output with all axes after the samples joined to one."""
    tensor = main_output(output)
    if tensor.ndim == 0 or tensor.shape[0] != samples:
        raise InvalidInputError(
            f"The model returned a tensor of shape {tuple(tensor.shape)} for {samples} samples; its first axis must be "
            "the samples. Wrap the model if it returns a loss or another order of axes."
        )
    return tensor.reshape(samples, -1)


def select_outputs(choice: OutputChoice, shape: tuple[int, ...]) -> OutputSelection:
    """The selection that `choice` means for outputs of `shape` (without the samples)."""
    total = math.prod(shape)
    if isinstance(choice, str):
        if choice not in ("trace", "full"):
            raise InvalidInputError(f"outputs={choice!r}; use 'trace', 'full' or the index of one output.")
        return OutputSelection(tuple(range(total)), separate=choice == "full")
    index = (choice,) if isinstance(choice, int) else tuple(choice)
    sizes = (total,) if len(index) == 1 else shape
    return OutputSelection((_flat_index(index, sizes, shape),), separate=False)


def _flat_index(index: tuple[int, ...], sizes: tuple[int, ...], shape: tuple[int, ...]) -> int:
    inside = len(index) == len(sizes) and all(-size <= i < size for i, size in zip(index, sizes, strict=True))
    if not inside:
        shown = index[0] if len(index) == 1 else index
        raise InvalidInputError(
            f"outputs={shown} is not an output of the model: one sample's outputs have shape {shape}."
        )
    flat = 0
    for i, size in zip(index, sizes, strict=True):
        flat = flat * size + i % size
    return flat
