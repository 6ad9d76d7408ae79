"""Samples one by one, as a `Dataset` has them, made into batches; arrays and lists as tensors."""

import itertools
from collections.abc import Iterator, Mapping, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.utils.data import Dataset, default_collate

from skiplens.base.errors import InvalidInputError

SIZE = 64  # samples in a batch
PADDING = {"labels": -100}  # what stands behind shorter rows of numbers; 0 elsewhere, which a mask of attention hides


def as_tensor(value: Any) -> Any:
    """Arrays and lists of numbers as tensors, real ones in torch's default type; other values as they are."""
    if isinstance(value, list) and value and not isinstance(value[0], str | bytes | Tensor | Mapping):
        try:
            value = np.asarray(value)
        except ValueError as error:
            raise InvalidInputError("A list of rows of several lengths came; fill them up to one length.") from error
    if not isinstance(value, np.ndarray | np.generic) or value.dtype.kind not in "biuf":
        if isinstance(value, np.ndarray) and value.dtype.kind != "U":
            raise InvalidInputError(f"An array of type {value.dtype} came; hand over whole or real numbers.")
        return value
    kinds = {"f": torch.get_default_dtype(), "b": torch.bool}
    kind = torch.uint8 if value.dtype == np.uint8 else kinds.get(value.dtype.kind, torch.int64)  # pixels stay small
    return torch.tensor(np.ascontiguousarray(value) if value.ndim else value, dtype=kind)


def are_rows(data: Any) -> bool:
    """Whether `data` has samples one by one: a `Dataset` of torch or of Hugging Face, or a list of (input, number)."""
    if isinstance(data, list) and data and isinstance(data[0], tuple | list) and len(data[0]) == 2:
        last = data[0][1]
        return isinstance(last, int | float | np.generic) or (isinstance(last, Tensor) and last.ndim == 0)
    return isinstance(data, Dataset) or (hasattr(data, "column_names") and hasattr(data, "__getitem__"))


@dataclass(frozen=True)
class Rows:
    """Batches of the samples of a data set in an order that is drawn once; a stream keeps its own."""

    samples: Any

    def __len__(self) -> int:
        """The number of batches, gone through once where that is not known."""
        count = len(self.samples) if isinstance(self.samples, Sized) else sum(1 for _ in self.samples)
        return -(-count // SIZE)

    def __iter__(self) -> Iterator[Any]:
        """Each batch."""
        rows = self.samples
        if isinstance(rows, Sized) and hasattr(rows, "__getitem__"):
            order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0)).tolist()
            rows = map(self.samples.__getitem__, order)
        rows = iter(rows)
        while some := list(itertools.islice(rows, SIZE)):
            yield collate(some)


def collate(rows: list[Any]) -> Any:
    """The rows as one batch; tokens of several lengths are filled up, and a mask says where."""
    if isinstance(rows[0], tuple | list):
        return tuple(_column(list(column)) for column in zip(*rows, strict=True))
    if not isinstance(rows[0], Mapping):
        return _column(rows)
    named = {name: [row[name] for row in rows] for name in rows[0] if not isinstance(rows[0][name], str | bytes | None)}
    lengths = [len(tokens) for tokens in named.get("input_ids", ())]
    if "attention_mask" not in named and len(set(lengths)) > 1:
        named["attention_mask"] = [torch.ones(length, dtype=torch.int64) for length in lengths]
    return {name: _column(column, PADDING.get(name, 0)) for name, column in named.items()}


def _column(values: list[Any], filling: int | None = None) -> Any:
    """One entry of all rows."""
    if isinstance(values[0], int | float):
        return torch.tensor(values)
    values = [as_tensor(value) for value in values]
    if not isinstance(values[0], Tensor):
        return default_collate(values)
    return joined([tensor[None] for tensor in values], filling)


def joined(tensors: list[Tensor], filling: int | None = None) -> Tensor:
    """The tensors behind each other; rows of whole numbers, such as tokens, are filled up to the longest."""
    shapes = sorted({tuple(tensor.shape[1:]) for tensor in tensors})
    if len(shapes) > 1:
        if filling is None or tensors[0].is_floating_point() or any(len(shape) != 1 for shape in shapes):
            raise InvalidInputError(
                f"The samples differ in shape ({shapes[0]} and {shapes[-1]}), so they make no batch. Bring them to one "
                "shape first; images of a folder with --image-size, or LoadOptions(image_size=…)."
            )
        tensors = [pad(tensor, (0, shapes[-1][0] - tensor.shape[1]), value=filling) for tensor in tensors]
    return torch.cat(tensors)
