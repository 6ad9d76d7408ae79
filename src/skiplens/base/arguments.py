"""The inputs of a model in the three forms people have them: a tensor, a tuple or a mapping."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from skiplens.base.errors import InvalidInputError


@dataclass(frozen=True)
class Arguments:
    """What a model is called with."""

    positional: tuple[Any, ...]
    named: dict[str, Any]

    @classmethod
    def of(cls, inputs: Any) -> Self:
        """Arguments from a tensor, a tuple of positional arguments or a mapping of keyword arguments."""
        if isinstance(inputs, torch.Tensor):
            return cls((inputs,), {})
        if isinstance(inputs, tuple):
            return cls(inputs, {})
        if isinstance(inputs, Mapping) and all(isinstance(name, str) for name in inputs):
            return cls((), dict(inputs))
        raise InvalidInputError(
            f"inputs is {_described(inputs)}. Give a tensor, a tuple of positional arguments of the model, "
            "or a dict of its keyword arguments."
        )

    def call(self, model: nn.Module) -> Any:
        """What `model` returns for these arguments."""
        return model(*self.positional, **self.named)

    def leaves(self) -> list[Any]:
        """Every tensor and constant in the order in which an exported graph takes them."""
        return tree_leaves((self.positional, self.named))

    def __str__(self) -> str:
        """Shape, dtype and device of each argument."""
        parts = [_described(value) for value in self.positional]
        parts += [f"{name}={_described(value)}" for name, value in self.named.items()]
        return ", ".join(parts) or "no arguments"


def _described(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{type_name(value.dtype)} tensor of shape {tuple(value.shape)} on {value.device}"
    if isinstance(value, bool | int | float | str) or value is None:
        return repr(value)
    return f"a {type(value).__name__}"


def type_name(dtype: torch.dtype) -> str:
    """The dtype without the name of the package: ``'float32'``."""
    return str(dtype).removeprefix("torch.")


def with_article(noun: str) -> str:
    """The noun as a person says it: `a list`, `an int`."""
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"
