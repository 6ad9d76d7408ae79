"""Model inputs as a row of samples: count them, take some of them, check them once."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from skiplens.core.arguments import Arguments
from skiplens.core.axes import Tensor
from skiplens.core.errors import InvalidInputError

Inputs = Tensor | tuple[Any, ...] | list[Any] | Mapping[str, Any]
"""A tensor, a tuple of positional arguments or a mapping of keyword arguments of the model."""


@dataclass(frozen=True)
class Samples:
    """Positional and keyword arguments of a model whose tensors share their first axis, the samples."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    count: int

    def take(self, index: slice | list[int]) -> "Samples":
        """The samples at `index`, in that order."""
        return self._map(lambda tensor: tensor[index])

    def chunks(self, size: int) -> Iterator[tuple[slice, "Samples"]]:
        """Consecutive runs of at most `size` samples, each with where it stands."""
        for start in range(0, self.count, size):
            where = slice(start, min(start + size, self.count))
            yield where, self.take(where)

    def tensors(self) -> dict[str, Tensor]:
        """The tensors that have a sample axis, by the name or position of their argument."""
        named = {**{str(i): value for i, value in enumerate(self.args)}, **self.kwargs}
        return {name: value for name, value in named.items() if _has_samples(value)}

    def with_tensors(self, tensors: Mapping[str, Tensor], count: int) -> "Samples":
        """The same arguments with the tensors of `tensors()` replaced by name."""
        args = tuple(tensors.get(str(i), value) for i, value in enumerate(self.args))
        return Samples(args, {name: tensors.get(name, value) for name, value in self.kwargs.items()}, count)

    def _map(self, change: Callable[[Tensor], Tensor]) -> "Samples":
        changed = {name: change(tensor) for name, tensor in self.tensors().items()}
        return self.with_tensors(changed, next(iter(changed.values())).shape[0])


def samples_of(inputs: Inputs | Samples) -> Samples:
    """`inputs` as samples; all tensors must agree on their number, other arguments are shared by all samples."""
    if isinstance(inputs, Samples):
        return inputs
    arguments = Arguments.of(tuple(inputs) if isinstance(inputs, list) else inputs)
    whole = Samples(arguments.positional, arguments.named, 0)
    tensors = {name: tensor.detach() for name, tensor in whole.tensors().items()}
    return whole.with_tensors(tensors, _common_count(tensors))


def require_finite(samples: Samples) -> None:
    """Refuse NaN and infinite inputs: every number computed from them would be NaN."""
    for name, tensor in samples.tensors().items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            bad = (~torch.isfinite(tensor)).flatten(1).any(1) if tensor.ndim > 1 else ~torch.isfinite(tensor)
            raise InvalidInputError(
                f"The input {name!r} has NaN or infinite values in {int(bad.sum())} of {len(bad)} samples, first in "
                f"sample {int(bad.nonzero()[0])}; remove or repair these samples."
            )


def require_device(samples: Samples, device: torch.device) -> None:
    """Refuse inputs that live elsewhere than the model."""
    for name, tensor in samples.tensors().items():
        if tensor.device != device:
            raise InvalidInputError(
                f"The input {name!r} is on {tensor.device} and the model's parameters are on {device}; "
                f"move one of them, e.g. inputs.to({str(device)!r})."
            )


def _has_samples(value: Any) -> bool:
    return isinstance(value, Tensor) and value.ndim > 0


def _common_count(tensors: Mapping[str, Tensor]) -> int:
    counts = {name: tensor.shape[0] for name, tensor in tensors.items()}
    if not counts:
        raise InvalidInputError("inputs holds no tensor with a sample axis; hand over a tensor of shape (samples, …).")
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name!r} has {count}" for name, count in counts.items())
        raise InvalidInputError(f"The inputs disagree on the number of samples (their first axis): {listed}.")
    count = next(iter(counts.values()))
    if count == 0:
        raise InvalidInputError("inputs has no samples (its first axis has size 0); hand over at least one.")
    return count
