"""Layers that are made without a draw from torch's global generator; their weights are filled in afterwards."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn

Layer = TypeVar("Layer", bound=nn.Module)


def uninitialised(kind: Callable[..., Layer], *arguments: Any, **options: Any) -> Layer:
    """A layer of the given kind whose parameters hold no meaningful numbers yet."""
    device = torch.get_default_device()
    with torch.device("meta"):
        layer = kind(*arguments, **options)
    return layer.to_empty(device=device)


def linear(inputs: int, outputs: int, bias: bool = False) -> nn.Linear:
    """A linear layer without numbers."""
    return uninitialised(nn.Linear, inputs, outputs, bias=bias)


def convolution(inputs: int, outputs: int, window: int, stride: int = 1, padding: int | None = None) -> nn.Conv2d:
    """A square convolution without bias and without numbers, padded to keep the size unless told otherwise."""
    padding = window // 2 if padding is None else padding
    return uninitialised(nn.Conv2d, inputs, outputs, window, stride=stride, padding=padding, bias=False)
