"""What a model is fed: one batch `(inputs, targets)`, or any iterable of such batches brought to one form."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from skiplens.base.arguments import Arguments
from skiplens.base.errors import InvalidInputError, NoTargetsError, SkiplensError, refuse_if
from skiplens.base.memory import is_shortage
from skiplens.graph.inputs import named_tensors
from skiplens.graph.rows import Rows, are_rows, as_tensor, joined

Inputs = Tensor | tuple[Any, ...] | dict[str, Any]  # a tensor, positional arguments or keyword arguments of the model
WANTED = (
    "Wanted (inputs, targets) or an iterable of such batches, where inputs is a tensor, a tuple of positional "
    "arguments or a dict of keyword arguments of the model, and targets is a tensor; or inputs alone; or a Dataset."
)

TARGETS = ("labels", "label", "label_ids", "targets", "target")
"""Entries of a mapping that are the targets and no arguments of the model."""
_ARRAYS = (Tensor, np.ndarray)
IGNORED = -100  # what torch and Hugging Face write for targets that do not count


class Batch(NamedTuple):
    """Inputs of a model with their targets; unpacks as `inputs, targets`. Targets of no size: there are none."""

    inputs: Inputs
    targets: Tensor

    @property
    def samples(self) -> int:
        """The number of samples: the length of the targets' first axis."""
        return self.targets.shape[0]

    def labelled(self) -> "Batch":
        """The batch itself, refused where it has inputs alone."""
        if self.targets.shape[1:] == (0,):
            raise NoTargetsError("The data has inputs alone, and this needs targets. Hand over (inputs, targets).")
        if several_of(self) is not None:
            raise InvalidInputError(
                "The data has several targets for each sample, and this takes one tensor (inspect, forecast, improve, "
                "rank and compare take several). Put them side by side in one, e.g. torch.cat([…], dim=1), and take "
                "them apart again in a loss of your own."
            )
        return self

    def arguments(self) -> Arguments:
        """The positional and the keyword arguments to call the model with."""
        return Arguments.of(self.inputs)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> "Batch":
        """The batch on `device`, its floating tensors in `dtype`; integers and Booleans keep their type."""
        return self.map(lambda tensor: tensor.to(device=device, dtype=dtype if tensor.is_floating_point() else None))

    def map(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        """The batch with `change` applied to every tensor of the inputs and to the targets."""
        inputs = map_tensors(change, self.inputs)
        if isinstance(self.inputs, Labelled):
            inputs = Labelled(inputs, change(self.inputs.labels))
        return Batch(inputs, _marked(change(self.targets), several_of(self)))

    def map_inputs(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        """The batch with `change` applied to every tensor of the inputs alone."""
        return Batch(map_tensors(change, self.inputs), self.targets)

    def select(self, chosen: slice | Tensor) -> "Batch":
        """The batch of the chosen samples; arguments without an axis of samples stay whole."""
        return self.map(lambda tensor: tensor[chosen] if tensor.shape[:1] == (self.samples,) else tensor)

    def first(self, count: int) -> "Batch":
        """The first `count` samples, or all of them if there are fewer."""
        refuse_if(count < 1, f"Asked for {count} samples of a batch; ask for at least 1.")
        return self.select(slice(count))


@dataclass(frozen=True)
class Several:
    """Several targets of each sample, which lie side by side in one tensor: how they came, their shapes and types."""

    order: TreeSpec
    forms: tuple[tuple[torch.Size, torch.dtype], ...]

    def apart(self, targets: Tensor) -> Any:
        """The targets as they came."""
        columns = targets.split([shape.numel() for shape, _ in self.forms], dim=1)
        found = (column.reshape(-1, *shape) for column, (shape, _) in zip(columns, self.forms, strict=True))
        pairs = zip(found, (kind for _, kind in self.forms), strict=True)
        return tree_unflatten([v if k.is_floating_point else v.round().to(k) for v, k in pairs], self.order)


def several_of(batch: Batch) -> Several | None:
    """What lies side by side in the targets; None where there is one."""
    return getattr(batch.targets, "several", None)


def _marked(targets: Tensor, several: Several | None) -> Tensor:
    if several is not None:
        targets.several = several  # type: ignore[attr-defined]  # tensors take any attribute
    return targets


def _side_by_side(given: Any, where: str) -> Tensor:
    """Several targets as one tensor that knows what it holds."""
    values, order = tree_flatten(given)
    tensors = [value for value in map(as_tensor, values) if isinstance(value, Tensor) and value.ndim]
    if len(tensors) != len(values) or len({len(value) for value in tensors}) != 1:
        raise InvalidInputError(
            f"{where} has its targets as a {type(given).__name__} of {len(given)}; wanted one tensor, or several with "
            "the samples as the first axis of each."
        )
    kind = torch.get_default_dtype() if any(value.is_floating_point() for value in tensors) else torch.int64
    joined = torch.cat([value.reshape(len(value), -1).to(kind) for value in tensors], dim=1)
    return _marked(joined, Several(order, tuple((value.shape[1:], value.dtype) for value in tensors)))


def map_tensors(change: Callable[[Any], Any], inputs: Any, kind: type = Tensor) -> Any:
    """The structure of tuples and dicts with `change` applied to each tensor, or what is of `kind`; others stay."""
    if isinstance(inputs, kind):
        return change(inputs)
    if isinstance(inputs, Mapping):
        return {name: map_tensors(change, value, kind) for name, value in inputs.items()}
    if isinstance(inputs, tuple | list):
        return tuple(map_tensors(change, value, kind) for value in inputs)
    return inputs


def tensors_in(value: Any) -> Iterator[Tensor]:
    """All tensors of nested tuples, lists, mappings and dataclasses, in order."""
    return (tensor for _, tensor in named_tensors(value))


def as_batch(data: Any, where: str = "data") -> Batch:
    """One batch in any of its forms as a checked `Batch`; `where` names it in the error.

    The forms: `(inputs, targets)`, `(first, second, …, targets)`, a mapping with or without labels, inputs alone, each
    with tensors or NumPy arrays.
    """
    inputs, targets = _parts(data, where)
    if isinstance(inputs, Mapping):
        inputs = inputs if isinstance(inputs, Labelled) else dict(inputs)
    elif isinstance(inputs, list):
        inputs = tuple(inputs)
    if not isinstance(targets, Tensor | None):
        raise InvalidInputError(
            f"The targets of {where} are words or objects, not numbers. Number the classes from 0, e.g. with "
            "numpy.unique(targets, return_inverse=True)[1]."
        )
    tensors = list(tensors_in(inputs))
    if not isinstance(inputs, Tensor | tuple | dict) or not tensors:
        raise InvalidInputError(f"The inputs of {where} are {_describe(inputs)}. {WANTED}")
    if tensors[0].ndim == 0 or (targets is not None and targets.ndim == 0):
        raise InvalidInputError(f"{where} has no axis of samples: a tensor has shape (). Add one with tensor[None].")
    targets = tensors[0].new_empty(tensors[0].shape[0], 0) if targets is None else targets
    if tensors[0].shape[0] != targets.shape[0]:
        raise InvalidInputError(
            f"{where} has {tensors[0].shape[0]} inputs but {targets.shape[0]} targets; "
            "the first axis of both counts the samples and must agree."
        )
    refuse_if(targets.shape[0] == 0, f"{where} has no samples; give at least one.")
    return Batch(inputs, targets)


def _parts(data: Any, where: str) -> tuple[Any, Tensor | None]:
    """Inputs, and targets where there are any."""
    if isinstance(data, Batch):
        return data
    if isinstance(data, Mapping):
        return _of_mapping({name: as_tensor(value) for name, value in data.items()})
    if isinstance(data, _ARRAYS):
        return as_tensor(data), None
    if isinstance(data, tuple | list) and data:
        *inputs, last = data
        if len(data) == 1 and isinstance(last, (*_ARRAYS, Mapping)):
            return _parts(last, where)
        if _is_pair(data):
            given = map_tensors(as_tensor, inputs[0], np.ndarray)
            return given, None if last is None else as_tensor(last)
        if len(data) > 2 and all(isinstance(entry, _ARRAYS) for entry in data):
            return tuple(map(as_tensor, inputs)), as_tensor(last)
        if _has_several_targets(data, (*_ARRAYS, Mapping, tuple)):
            plain = as_tensor(last)  # a list of numbers
            targets = plain if isinstance(plain, Tensor) else _side_by_side(last, where)
            return map_tensors(as_tensor, inputs[0], np.ndarray), targets
    raise InvalidInputError(f"{where} is {_describe(data)}. {WANTED}")


class Labelled(dict[str, Any]):
    """Arguments out of a mapping with labels, which are kept as they came."""

    def __init__(self, arguments: dict[str, Any], labels: Tensor) -> None:
        super().__init__(arguments)
        self.labels = labels


def _of_mapping(values: dict[str, Any]) -> tuple[dict[str, Any], Tensor | None]:
    """Arguments and labels; words are left out, since no module takes them.

    Labels that repeat the tokens are those of a model that shifts them itself: the target of a token is the next one.
    """
    name = next((name for name in TARGETS if isinstance(values.get(name), Tensor)), None)
    targets = values.pop(name) if name else None
    inputs = {key: value for key, value in values.items() if not isinstance(value, list | str | np.ndarray)}
    inputs = inputs if targets is None else Labelled(inputs, targets)
    tokens = inputs.get("input_ids")
    if targets is not None and isinstance(tokens, Tensor) and tokens.ndim == 2 and tokens.shape == targets.shape:
        if bool((tokens == targets)[targets != IGNORED].all()):
            targets = torch.cat([targets[:, 1:], torch.full_like(targets[:, :1], IGNORED)], dim=1)
    return inputs, targets


@dataclass(frozen=True)
class Batches:
    """Batches that can be gone through more than once, unless they come from a one-shot iterator."""

    source: Iterable[Any]
    change: Callable[[Batch], Batch] | None = None

    def map(self, change: Callable[[Batch], Batch]) -> "Batches":
        """The same batches with `change` applied to each; one batch is changed once."""
        if isinstance(self.source, tuple) and len(self.source) == 1:
            return Batches((change(next(iter(self))),))
        return Batches(self.source if self.change is None else self, change)

    def __iter__(self) -> Iterator[Batch]:
        """Each batch, checked; an empty source is an error."""
        number = -1
        try:
            for number, pair in enumerate(self.source):
                batch = as_batch(pair, f"batch {number} of data")
                yield batch if self.change is None else self.change(batch)
        except (Exception, SystemExit) as error:  # of the source: those of who reads the batches do not pass here
            if isinstance(error, SkiplensError) or is_shortage(error):
                raise
            raise InvalidInputError(f"data raised {type(error).__name__} at batch {number + 1}: {error}") from error
        refuse_if(number < 0, f"data gave no batches at all; is the loader empty? {WANTED}")


def as_batches(data: Any) -> Batches:
    """The batches of user data: one batch, an iterable of batches (list, DataLoader, generator), or a `Dataset`.

    One batch is `(inputs, targets)`, a tuple of several inputs with the targets last, a mapping with its labels, or a
    tensor of inputs alone; everything else that can be iterated is a source of batches. Samples of a `Dataset` come in
    an order that is drawn once, for files are often sorted by class. A generator can be gone through once; the second
    time is an error that says so, never an empty pass.
    """
    if isinstance(data, Batches):
        return data
    several = isinstance(data, tuple) and len(data) > 2 and all(isinstance(entry, _ARRAYS) for entry in data)
    if (
        _is_pair(data)
        or several
        or (isinstance(data, tuple) and _has_several_targets(data))
        or isinstance(data, (*_ARRAYS, Mapping))
    ):
        return Batches((as_batch(data),))
    if are_rows(data):
        return Batches(Rows(data))
    if isinstance(data, str | bytes) or not isinstance(data, Iterable):
        raise InvalidInputError(f"data is {_describe(data)}. {WANTED}")
    return Batches(_Once(data) if isinstance(data, Iterator) else data)


def count_samples(data: Any) -> int:
    """The number of samples in all batches; goes through the data once."""
    return sum(batch.samples for batch in as_batches(data))


def take(data: Any, samples: int, spare: int = 0) -> Batch:
    """The first `samples` samples as one batch, reading no more batches than needed; of the last one up to `spare`."""
    refuse_if(samples < 1, f"Asked for {samples} samples of the data; ask for at least 1.")
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
    refuse_if(not batches, f"There are no batches to join. {WANTED}")
    if len(batches) == 1:
        return batches[0]
    leaves = [list(tensors_in(batch.inputs)) for batch in batches]
    if len({len(tensors) for tensors in leaves}) > 1:
        raise InvalidInputError("The batches of data differ in their arguments, so they cannot be joined into one.")
    masked = isinstance(batches[0].inputs, dict) and "attention_mask" in batches[0].inputs  # hides what is filled up
    columns = iter([_join(column, batches, 0 if masked else None) for column in zip(*leaves, strict=True)])
    inputs = map_tensors(lambda _: next(columns), batches[0].inputs)
    ignored = IGNORED if masked else None
    labels = [batch.inputs.labels for batch in batches if isinstance(batch.inputs, Labelled)]
    if len(labels) == len(batches):
        inputs = Labelled(inputs, _join(labels, batches, ignored))
    targets = _join([batch.targets for batch in batches], batches, ignored)
    return Batch(inputs, _marked(targets, several_of(batches[0])))


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
    if not isinstance(value, tuple | list) or len(value) != 2:
        return False
    return isinstance(value[1], _ARRAYS) or (value[1] is None and isinstance(value, tuple))


def _has_several_targets(value: Any, of: tuple[type, ...] = _ARRAYS) -> bool:
    inputs, targets = value if len(value) == 2 else (None, None)
    return isinstance(inputs, of) and isinstance(targets, tuple | list | Mapping) and len(targets) > 0


def _join(column: Iterable[Tensor], batches: list[Batch], filling: int | None) -> Tensor:
    tensors = list(column)
    counts = all(t.ndim and t.shape[0] == batch.samples for t, batch in zip(tensors, batches, strict=True))
    return joined(tensors, filling) if counts else tensors[0]


def _describe(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a single tensor of shape {tuple(value.shape)}"
    if isinstance(value, tuple | list):
        kinds = ", ".join(type(entry).__name__ for entry in value[:4]) + (", …" if len(value) > 4 else "")
        return f"a {type(value).__name__} of {len(value)} ({kinds})"
    return f"of type {type(value).__name__}"
