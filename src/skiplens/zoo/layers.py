"""Layers made without a draw from torch's global generator, and the residual and plain blocks made of them."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

Layer = TypeVar("Layer", bound=nn.Module)


def uninitialised(kind: Callable[..., Layer], *arguments: Any, **options: Any) -> Layer:
    """A layer of the given kind whose parameters hold no meaningful numbers yet."""
    device = torch.empty(0).device  # that of a `with torch.device(…)` too
    with torch.device("meta"):
        layer = kind(*arguments, **options)
    # as `to_empty` does it, without `empty_like` of a tensor on meta, which loads SymPy
    return layer._apply(lambda tensor: torch.empty(tensor.shape, dtype=tensor.dtype, device=device))


def linear(inputs: int, outputs: int, bias: bool = False) -> nn.Linear:
    """A linear layer without numbers."""
    return uninitialised(nn.Linear, inputs, outputs, bias=bias)


def convolution(inputs: int, outputs: int, window: int, stride: int = 1, padding: int | None = None) -> nn.Conv2d:
    """A square convolution without bias and without numbers, padded to keep the size unless told otherwise."""
    padding = window // 2 if padding is None else padding
    return uninitialised(nn.Conv2d, inputs, outputs, window, stride=stride, padding=padding, bias=False)


class Residual(nn.Module):
    """The sum of a shortcut and a branch of the same input; the shortcut is the identity unless given."""

    def __init__(self, branch: nn.Module, shortcut: nn.Module | None = None) -> None:
        super().__init__()
        self.branch = branch
        self.shortcut = nn.Identity() if shortcut is None else shortcut

    def forward(self, inputs: Tensor) -> Tensor:
        """Return shortcut + branch."""
        shortcut = self.shortcut(inputs)
        branch = self.branch(inputs)
        return shortcut + branch


class Plain(nn.Sequential):
    """A branch without shortcut; its parameters have the same names as those of a `Residual` with this branch."""

    def __init__(self, branch: nn.Module) -> None:
        super().__init__(OrderedDict(branch=branch))


class ProjectionShortcut(nn.Module):
    """A 1×1 convolution, plus a parameter-free pool of the same input if one is given."""

    def __init__(self, projection: nn.Module, pool: nn.Module | None = None) -> None:
        super().__init__()
        self.projection = projection
        self.pool = pool

    def forward(self, inputs: Tensor) -> Tensor:
        """Return projection, or pool + projection."""
        projection = self.projection(inputs)
        return projection if self.pool is None else self.pool(inputs) + projection


def branch_parameters(network: nn.Module) -> list[list[str]]:
    """For each block of a zoo network the names of its branch's parameters, in order of execution."""
    return [
        [f"{name}.branch.{part}".lstrip(".") for part, _ in block.branch.named_parameters()]
        for name, block in network.named_modules()
        if isinstance(block, Residual)
    ]


def count_joins(network: nn.Module) -> int:
    """The number of residual blocks of a zoo network; a pool and a projection under one join are one block."""
    return sum(isinstance(module, Residual) for module in network.modules())
