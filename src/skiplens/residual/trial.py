"""One plain call of the model before anything else, so that bad input is named in words."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from skiplens.core.arguments import Arguments, type_name
from skiplens.core.errors import InvalidInputError


def require_module(model: Any) -> nn.Module:
    """The model itself, or an error when it is nothing that can be looked at."""
    if not isinstance(model, nn.Module):
        raise InvalidInputError(
            f"model is {model!r:.80} of type {type(model).__name__}; a torch.nn.Module instance was wanted. "
            "Build the model first and hand in the instance."
        )
    if any(is_lazy(parameter) for parameter in model.parameters()):
        raise InvalidInputError(
            "The model has lazy parameters without a shape, and looking must not create them. "
            "Call the model once on your inputs first."
        )
    return model


def require_data(model: nn.Module, arguments: Arguments) -> None:
    """Refuse inputs without data for a model with data, and the reverse: torch lets some of them pass."""
    given = {leaf.device.type for leaf in arguments.leaves() if isinstance(leaf, torch.Tensor)}
    owned = {parameter.device.type for parameter in model.parameters()}
    if given and owned and ("meta" in given) != ("meta" in owned):
        raise InvalidInputError(
            f"The inputs do not lie where the model lies: {arguments}. {_first_parameter(model)} "
            "Move the inputs to the device of the model."
        )


def try_call(model: nn.Module, arguments: Arguments) -> dict[str, torch.Tensor]:
    """The tensors that `model` returns, by name; a failure says what came and what the model said."""
    try:
        with torch.no_grad():
            outputs = dict(named_tensors(arguments.call(model)))
    except Exception as error:
        raise InvalidInputError(
            f"The model cannot be called with these inputs: {arguments}. {_first_parameter(model)} "
            f"The model said: {type(error).__name__}: {first_line(error)} "
            "Give inputs of the shape, dtype and device that the model takes."
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
    for key, value in _entries(output):
        yield from named_tensors(value, f"{name}.{key}" if name else str(key))


def _entries(output: Any) -> list[tuple[Any, Any]]:
    if isinstance(output, Mapping):
        return list(output.items())
    if isinstance(output, tuple | list):
        return list(enumerate(output))
    if dataclasses.is_dataclass(output):
        return [(entry.name, getattr(output, entry.name)) for entry in dataclasses.fields(output)]
    return []


def _first_parameter(model: nn.Module) -> str:
    for parameter in model.parameters():
        return f"Its first parameter is {type_name(parameter.dtype)} on {parameter.device}."
    return "It has no parameters."


def first_line(error: Exception) -> str:
    """The first line of an error's message as a sentence."""
    lines = str(error).strip().splitlines()
    line = lines[0].strip() if lines else "(no message)"
    return line if line.endswith((".", "!", "?")) else f"{line}."
