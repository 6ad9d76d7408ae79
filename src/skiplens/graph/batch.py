"""What a model is fed: one batch `(inputs, targets)`, or any iterable of such batches brought to one form."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from skiplens.base.arguments import Arguments
from skiplens.base.errors import InvalidInputError, SkiplensError
from skiplens.base.memory import is_shortage

Inputs = Tensor | tuple[Any, ...] | dict[str, Any]
"""A tensor, positional arguments or keyword arguments of the model."""

WANTED = (
    "Wanted (inputs, targets) or an iterable of such batches, where inputs is a tensor, a tuple of positional "
    "arguments or a dict of keyword arguments of the model, and targets is a tensor."
)


class Batch(NamedTuple):
    """Inputs of a model with their targets; unpacks as `inputs, targets`."""

    inputs: Inputs
    targets: Tensor

    @property
    def samples(self) -> int:
        """The number of samples: the length of the targets' first axis."""
        return self.targets.shape[0]

    def arguments(self) -> Arguments:
        """The positional and the keyword arguments to call the model with."""
        return Arguments.of(self.inputs)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> "Batch":
        """The batch on `device`, its floating tensors in `dtype`; integers and Booleans keep their type."""
        return self.map(lambda tensor: tensor.to(device=device, dtype=dtype if tensor.is_floating_point() else None))

    def map(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        """The batch with `change` applied to every tensor of the inputs and to the targets."""
        return Batch(map_tensors(change, self.inputs), change(self.targets))

    def map_inputs(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        """The batch with `change` applied to every tensor of the inputs alone."""
        return Batch(map_tensors(change, self.inputs), self.targets)

    def select(self, chosen: slice | Tensor) -> "Batch":
        """The batch of the chosen samples; arguments without an axis of samples stay whole."""
        return self.map(lambda tensor: tensor[chosen] if tensor.shape[:1] == (self.samples,) else tensor)

    def first(self, count: int) -> "Batch":
        """The first `count` samples, or all of them if there are fewer."""
        if count < 1:
            raise InvalidInputError(f"Asked for {count} samples of a batch; ask for at least 1.")
        return self.select(slice(count))


def map_tensors(change: Callable[[Tensor], Tensor], inputs: Any) -> Any:
    """The same structure of tuples and dicts with `change` applied to each tensor; other values stay."""
    if isinstance(inputs, Tensor):
        return change(inputs)
    if isinstance(inputs, Mapping):
        return {name: map_tensors(change, value) for name, value in inputs.items()}
    if isinstance(inputs, tuple | list):
        return tuple(map_tensors(change, value) for value in inputs)
    return inputs


def tensors_in(value: Any) -> Iterator[Tensor]:
    """All tensors of nested tuples, lists and mappings, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping | tuple | list):
        for entry in value.values() if isinstance(value, Mapping) else value:
            yield from tensors_in(entry)


def as_batch(pair: Any, where: str = "data") -> Batch:
    """The pair `(inputs, targets)` as a checked `Batch`; `where` names it in the error."""
    if not _is_pair(pair):
        raise InvalidInputError(f"{where} is {_describe(pair)}. {WANTED}")
    inputs, targets = pair
    if isinstance(inputs, Mapping):
        inputs = dict(inputs)
    elif isinstance(inputs, list):
        inputs = tuple(inputs)
    tensors = list(tensors_in(inputs))
    if not isinstance(inputs, Tensor | tuple | dict) or not tensors:
        raise InvalidInputError(f"The inputs of {where} are {_describe(inputs)}. {WANTED}")
    if targets.ndim == 0 or tensors[0].ndim == 0:
        raise InvalidInputError(f"{where} has no axis of samples: a tensor has shape (). Add one with tensor[None].")
    if tensors[0].shape[0] != targets.shape[0]:
        raise InvalidInputError(
            f"{where} has {tensors[0].shape[0]} inputs but {targets.shape[0]} targets; "
            "the first axis of both counts the samples and must agree."
        )
    if targets.shape[0] == 0:
        raise InvalidInputError(f"{where} has no samples; give at least one.")
    return Batch(inputs, targets)


@dataclass(frozen=True)
class Batches:
    """Batches that can be gone through more than once, unless they come from a one-shot iterator."""

    source: Iterable[Any]

    def __iter__(self) -> Iterator[Batch]:
        """Each batch, checked; an empty source is an error."""
        number = -1
        try:
            for number, pair in enumerate(self.source):
                yield as_batch(pair, f"batch {number} of data")
        except (Exception, SystemExit) as error:  # of the source: those of who reads the batches do not pass here
            if isinstance(error, SkiplensError) or is_shortage(error):
                raise
            raise InvalidInputError(f"data raised {type(error).__name__} at batch {number + 1}: {error}") from error
        if number < 0:
            raise InvalidInputError(f"data gave no batches at all; is the loader empty? {WANTED}")


def as_batches(data: Any) -> Batches:
    """The batches of user data: `(inputs, targets)`, or an iterable of such pairs (list, DataLoader, generator).

    A pair whose second entry is a tensor is one batch; everything else that can be iterated is a source of batches. A
    generator can be gone through once; the second time is an error that says so, never an empty pass.
    """
    if isinstance(data, Batches):
        return data
    if _is_pair(data):
        return Batches((as_batch(data),))
    if isinstance(data, Tensor | str | bytes | Mapping) or not isinstance(data, Iterable):
        raise InvalidInputError(f"data is {_describe(data)}. {WANTED}")
    return Batches(_Once(data) if isinstance(data, Iterator) else data)


def count_samples(data: Any) -> int:
    """The number of samples in all batches; goes through the data once."""
    return sum(batch.samples for batch in as_batches(data))


def take(data: Any, samples: int, spare: int = 0) -> Batch:
    """The first `samples` samples as one batch, reading no more batches than needed; of the last one up to `spare`."""
    if samples < 1:
        raise InvalidInputError(f"Asked for {samples} samples of the data; ask for at least 1.")
    return concatenate(list(limited(data, samples, spare)))


def limited(data: Any, samples: int | None, spare: int = 0) -> Iterator[Batch]:
    """The batches up to `samples` samples in all, the last one cut to fit or to `spare`; all if `samples` is None."""
    left = samples
    for batch in as_batches(data):
        yield batch if left is None else batch.first(max(left, spare))
        if left is not None:
            left -= batch.samples
            if left <= 0:
                return


def concatenate(batches: list[Batch]) -> Batch:
    """One batch with the samples of all `batches` in order; their inputs must have the same structure."""
    if not batches:
        raise InvalidInputError(f"There are no batches to join. {WANTED}")
    if len(batches) == 1:
        return batches[0]
    leaves = [list(tensors_in(batch.inputs)) for batch in batches]
    if len({len(tensors) for tensors in leaves}) > 1:
        raise InvalidInputError("The batches of data differ in their arguments, so they cannot be joined into one.")
    joined = iter([_join(column, batches) for column in zip(*leaves, strict=True)])
    inputs = map_tensors(lambda _: next(joined), batches[0].inputs)
    return Batch(inputs, _join([batch.targets for batch in batches], batches))


class _Once:
    """A one-shot iterator that refuses a second pass instead of giving nothing."""

    def __init__(self, iterator: Iterator[Any]) -> None:
        self.iterator, self.started = iterator, False

    def __iter__(self) -> Iterator[Any]:
        if self.started:
            raise InvalidInputError(
                f"data is a one-shot iterator ({type(self.iterator).__name__}) and was gone through already, but this "
                "measurement reads it more than once. Pass a list of batches or a DataLoader instead."
            )
        self.started = True
        return self.iterator


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple | list) and len(value) == 2 and isinstance(value[1], Tensor)


def _join(column: Iterable[Tensor], batches: list[Batch]) -> Tensor:
    tensors = list(column)
    counts = all(t.ndim and t.shape[0] == batch.samples for t, batch in zip(tensors, batches, strict=True))
    return torch.cat(tensors) if counts else tensors[0]


def _describe(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a single tensor of shape {tuple(value.shape)}"
    if isinstance(value, tuple | list):
        kinds = ", ".join(type(entry).__name__ for entry in value[:4]) + (", …" if len(value) > 4 else "")
        return f"a {type(value).__name__} of {len(value)} ({kinds})"
    return f"of type {type(value).__name__}"
