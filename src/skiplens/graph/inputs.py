"""Inputs of a model as a row of samples, checked once, and the first call, which says what does not fit."""

import copy
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from skiplens.base.arguments import Arguments, type_name
from skiplens.base.errors import InvalidInputError, refuse_if

WRAPPERS = {"OptimizedModule": "_orig_mod", "DataParallel": "module", "DistributedDataParallel": "module"}
"""Where torch keeps the model: torch.compile would compile the hooks of each lens anew, copies have no gradients."""

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
        chosen = {name: tensor[index] for name, tensor in self.tensors().items()}
        return self.with_tensors(chosen, next(iter(chosen.values())).shape[0])

    def chunks(self, size: int) -> Iterator[tuple[slice, "Samples"]]:
        """Consecutive runs of at most `size` samples, each with where it stands."""
        for start in range(0, self.count, size):
            where = slice(start, min(start + size, self.count))
            yield where, self.take(where)

    def tensors(self) -> dict[str, Tensor]:
        """The tensors that have a sample axis, by the name or position of their argument, also inside of it."""
        named = {**{str(i): value for i, value in enumerate(self.args)}, **self.kwargs}
        return {name: value for name, value in named_tensors(named) if value.ndim > 0}

    def with_tensors(self, tensors: Mapping[str, Tensor], count: int) -> "Samples":
        """The same arguments with the tensors of `tensors()` replaced by name."""
        return Samples(_placed(self.args, tensors), _placed(self.kwargs, tensors), count)


def _placed(value: Any, tensors: Mapping[str, Tensor], name: str = "") -> Any:
    """The nested `value` with other tensors in the places that `named_tensors` names."""
    if isinstance(value, Tensor):
        return tensors.get(name, value)
    ahead = f"{name}." if name else ""
    if isinstance(value, Mapping):
        return {key: _placed(entry, tensors, f"{ahead}{key}") for key, entry in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(_placed(entry, tensors, f"{ahead}{place}") for place, entry in enumerate(value))
    return value


def samples_of(inputs: Inputs | Samples) -> Samples:
    """`inputs` as samples; all tensors must agree on their number, other arguments are shared by all samples."""
    if isinstance(inputs, Samples):
        return inputs
    arguments = Arguments.of(tuple(inputs) if isinstance(inputs, list) else inputs)
    whole = Samples(arguments.positional, arguments.named, 0)
    tensors = {name: tensor.detach() for name, tensor in whole.tensors().items()}
    counts = {name: tensor.shape[0] for name, tensor in tensors.items()}
    refuse_if(not counts, "inputs holds no tensor with a sample axis; hand over a tensor of shape (samples, …).")
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name!r} has {count}" for name, count in counts.items())
        raise InvalidInputError(
            f"The inputs disagree on the number of samples (their first axis): {listed}. What all samples share, such "
            "as a grid, belongs into the model: as a buffer, or in a module around it that hands it on."
        )
    refuse_if(0 in counts.values(), "inputs has no samples (its first axis has size 0); hand over at least one.")
    return whole.with_tensors(tensors, next(iter(counts.values())))


def require_finite(samples: Samples) -> None:
    """Refuse inputs without data, and NaN and infinite ones: every number computed from them would be NaN."""
    for name, tensor in samples.tensors().items():
        refuse_if(tensor.is_meta, f"The input {name!r} has no data (device meta); make model and inputs with data.")
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


def require_module(model: Any, numbers: bool = True) -> nn.Module:
    """The model itself, or an error when it is nothing that can be looked at, or has no `numbers` where they count."""
    if not isinstance(model, nn.Module):
        raise InvalidInputError(
            f"model is {model!r:.80} of type {type(model).__name__}; a torch.nn.Module instance was wanted. "
            "Build the model first and hand in the instance."
        )
    while type(model).__name__ in WRAPPERS:
        model = getattr(model, WRAPPERS[type(model).__name__])
    if any(is_lazy(parameter) for parameter in model.parameters()):
        raise InvalidInputError(
            "The model has lazy parameters without a shape, and looking must not create them. "
            "Call the model once on your inputs first."
        )
    devices = sorted({str(parameter.device) for parameter in model.parameters()})
    if numbers and "meta" in devices:
        refuse_if(
            len(devices) > 1, f"The model's parameters are on {' and '.join(devices)}; move the model to one device."
        )
        raise InvalidInputError(
            "The model has no data (device meta), and this needs numbers. Make it on a device with memory, or call "
            "model.to_empty(device='cpu') and load or draw its weights."
        )
    return model


def copy_of(model: nn.Module, why: str = "changes are made to a copy", instead: str = "") -> nn.Module:
    """A copy that shares nothing with the model; where there is none, an error with `why` one is made."""
    # torch copies no tensor with a history; the old weight norm keeps one, which every call makes anew from its parts
    kept = [value for module in model.modules() for value in vars(module).values() if isinstance(value, torch.Tensor)]
    try:
        return copy.deepcopy(model, {id(value): value.detach().clone() for value in kept if not value.is_leaf})
    except Exception as error:
        raise InvalidInputError(
            f"The model cannot be copied ({type(error).__name__}: {first_line(error)}), and {why}. {instead}Remove "
            "what copy.deepcopy refuses: open files, locks, tensors with a history."
        ) from error


def require_data(model: nn.Module, arguments: Arguments) -> None:
    """Refuse inputs without data for a model with data, and the reverse: torch lets some of them pass."""
    given = {leaf.device.type for leaf in arguments.leaves() if isinstance(leaf, torch.Tensor)}
    owned = {parameter.device.type for parameter in model.parameters()}
    if given and owned and ("meta" in given) != ("meta" in owned):
        raise InvalidInputError(
            f"The inputs do not lie where the model lies: {arguments}. {_first_parameter(model)} "
            "Move the inputs to the device of the model."
        )


TAKEN = "Give inputs of the shape, dtype and device that the model takes."
TAKES_DERIVATIVES = "It is called with gradients switched off: put torch.enable_grad() around derivatives of its own."


def try_call(model: nn.Module, arguments: Arguments) -> dict[str, torch.Tensor]:
    """The tensors that `model` returns, by name; a failure says what came and what the model said."""
    try:
        with torch.no_grad():
            outputs = {name: value.detach() for name, value in named_tensors(arguments.call(model))}
    except Exception as error:
        raise InvalidInputError(
            f"The model cannot be called with these inputs: {arguments}. {_first_parameter(model)} "
            f"The model said: {type(error).__name__}: {first_line(error)} "
            f"{TAKES_DERIVATIVES if 'does not require grad' in str(error) else TAKEN}"
        ) from error
    if not outputs:
        raise InvalidInputError(
            f"{type(model).__name__} returned no tensor for these inputs: {arguments}. "
            "Hand in a model whose forward pass returns a tensor, or a tuple or mapping that holds one."
        )
    return outputs


def named_tensors(output: Any, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Each tensor inside a model's output with the way to it, such as ``logits`` or ``hidden_states.0``.

    Anything else inside (caches, numbers, None) is passed over.
    """
    if isinstance(output, torch.Tensor):
        yield name or "output", output
        return
    entries: Iterable[tuple[Any, Any]] = ()
    if isinstance(output, Mapping):
        entries = output.items()
    elif isinstance(output, tuple | list):
        entries = enumerate(output)
    elif dataclasses.is_dataclass(output) and not isinstance(output, type):
        entries = ((entry.name, getattr(output, entry.name)) for entry in dataclasses.fields(output))
    for key, value in entries:
        yield from named_tensors(value, f"{name}.{key}" if name else str(key))


def _first_parameter(model: nn.Module) -> str:
    for parameter in model.parameters():
        return f"Its first parameter is {type_name(parameter.dtype)} on {parameter.device}."
    return "It has no parameters."


def first_line(error: Exception) -> str:
    """The first line of an error's message as a sentence."""
    lines = str(error).strip().splitlines()
    line = lines[0].strip() if lines else "(no message)"
    return line if line.endswith((".", "!", "?")) else f"{line}."
