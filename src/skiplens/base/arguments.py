"""What people hand over: the inputs of a model in three forms, and positional arguments in an order of old."""

import functools
import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ParamSpec, Self, TypeVar, cast

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map_only

from skiplens.base.errors import InvalidInputError

P = ParamSpec("P")
R = TypeVar("R")


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
        """What `model` returns for copies of these arguments, since it may write to them."""
        positional, named = self.copies()
        return model(*positional, **named)

    def copies(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Both kinds of arguments with copies of their tensors; derivatives go through."""
        return tree_map_only(torch.Tensor, torch.clone, (self.positional, self.named))

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


def accept_old_order(*names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let `f(model, data, *, …)` still be called with the positional arguments it took before, with a warning.

    A call is one of old if it has a third positional argument, or names one that the new order has in another place.
    `names` are the positional arguments of old, in their order.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        places = list(inspect.signature(function).parameters)[:2]

        @functools.wraps(function)  # inspect.signature shows the new form
        def call(*given: Any, **named: Any) -> R:
            of_old = len(given) > 2 or not named.keys().isdisjoint(places[: len(given)])
            if not of_old or len(given) > len(names):
                return function(*given, **named)
            warnings.warn(
                f"{function.__name__}({', '.join(names[: len(given)])}) is the order of old and will go; write "
                f"{function.__name__}({', '.join(places)}, …) with all other arguments by keyword.",
                DeprecationWarning,
                stacklevel=2,
            )
            return function(**dict(zip(names, given, strict=False)), **named)  # type: ignore[call-arg]  # by name

        return cast(Callable[P, R], call)

    return decorate
