"""The mini-batches of a loss: checked pairs, or the inputs of a model that computes its loss itself."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from skiplens.core.errors import InvalidInputError
from skiplens.data.batch import Batch, Batches, as_batches


def loss_batches(data: Any, model_returns_loss: bool) -> Batches:
    """The batches of `data`; a one-shot iterator is refused, since every product may read the data again.

    Where the model returns its own loss, a batch may be the mapping of its keyword arguments alone, and the targets
    of a pair are handed to it as `labels`.
    """
    if isinstance(data, Iterator):
        raise InvalidInputError(
            f"data is a one-shot iterator ({type(data).__name__}), but every product may read the data again. "
            "Pass a list of batches or a DataLoader instead."
        )
    if not model_returns_loss:
        return as_batches(data)
    return Batches(_Labelled(as_batches([data] if isinstance(data, Mapping) else data).source))


@dataclass(frozen=True)
class _Labelled:
    source: Iterable[Any]

    def __iter__(self) -> Iterator[Any]:
        for entry in self.source:
            yield _pair(entry) if isinstance(entry, Mapping) else _with_labels(entry)


def _pair(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """The arguments with the tensor that counts their samples."""
    tensors = [value for value in arguments.values() if isinstance(value, Tensor) and value.ndim > 0]
    return dict(arguments), arguments.get("labels", next(iter(tensors), None))


def _with_labels(entry: Any) -> Any:
    """The pair with its targets among the arguments; what is no such pair is refused later, by the check of pairs."""
    if isinstance(entry, Batch | tuple | list) and len(entry) == 2 and isinstance(entry[0], Mapping):
        return {"labels": entry[1], **entry[0]}, entry[1]
    return entry
