"""Calls of modules during one forward pass: what went in, and where the gradient of what came out can be read."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from skiplens.base.axes import Float
from skiplens.graph.functional import Parameters, PureModel, tensors_in
from skiplens.graph.inputs import Samples

Place = tuple[str, int]
"""A call: the module's name and which of its calls."""


class PatternChanged(Exception):  # noqa: N818 - named after what happened; never reaches the caller of the library
    """The model called its modules otherwise than in the probe, so what was learnt there does not hold."""


@dataclass(frozen=True)
class Call:
    """One call of a module.

    The edges point at the gradients of its output tensors as they left the module, also where a later operation
    changed them in place (a ReLU in place would otherwise hide the layer's own output). `zeros` are what a gradient is
    where an output of the model does not depend on the call; `order` counts the calls.
    """

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    versions: tuple[int, ...]
    edges: tuple[GradientEdge, ...]
    zeros: tuple[Tensor, ...]
    order: int

    @property
    def input(self) -> Tensor:
        """The tensor that the module was called with."""
        tensor = next(tensors_in([*self.args, self.kwargs]), None)
        if tensor is None:
            raise PatternChanged("the module was called without a tensor")
        return tensor.detach()

    def require_unchanged_inputs(self) -> None:
        """Refuse inputs that were overwritten in place after the call."""
        if _versions(self.args, self.kwargs) != self.versions:
            raise PatternChanged("an input of a module was overwritten after the call")


def call_with(module: nn.Module, inputs: Tensor) -> Call:
    """A call of `module` with one tensor, for rules that look at nothing but the input."""
    return Call(module, (inputs,), {}, (inputs._version,), (), (), 0)


@dataclass(frozen=True)
class Recording:
    """Outputs of a forward pass with its graph, and the calls of the watched modules by their names."""

    outputs: Float[Tensor, "samples outputs"]
    calls: dict[str, list[Call]]


def record(
    pure: PureModel, leaves: Parameters, samples: Samples, watched: Mapping[str, nn.Module], spread: frozenset[str]
) -> Recording:
    """Run the model on `samples` with gradients on, and note the calls of the `watched` modules.

    Args:
        pure: The model.
        leaves: Parameters that require a gradient, in place of the model's own.
        samples: What to call it with.
        watched: Modules to note, by name.
        spread: Names of modules whose output is the same for all samples (position embeddings); their output is
            expanded to one copy a sample, so that each sample's gradient can be told apart.
    """
    calls: dict[str, list[Call]] = {name: [] for name in watched}
    # One sample needs no copies, and a view of its own output would not survive an operation in place.
    spread = spread if samples.count > 1 else frozenset()
    with _hooked(watched, calls, spread, samples.count), torch.enable_grad():
        outputs = pure(leaves, samples)
    return Recording(outputs, calls)


@contextmanager
def _hooked(
    watched: Mapping[str, nn.Module], calls: dict[str, list[Call]], spread: frozenset[str], count: int
) -> Iterator[None]:
    handles, ticks = [], itertools.count()
    try:
        for name, module in watched.items():
            hook = _noting_hook(calls[name], count if name in spread else None, ticks)
            handles.append(module.register_forward_hook(hook, with_kwargs=True))
        yield
    finally:
        for handle in handles:
            handle.remove()


def _noting_hook(noted: list[Call], spread_to: int | None, ticks: Iterator[int]) -> Any:
    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        changed = output
        if spread_to is not None and isinstance(output, Tensor) and output.shape[0] == 1:
            changed = output.expand(spread_to, *output.shape[1:])
        tensors = [tensor for tensor in tensors_in(changed) if tensor.requires_grad]
        edges = tuple(get_gradient_edge(tensor) for tensor in tensors)
        zeros = tuple(tensor.new_zeros(()).expand(tensor.shape) for tensor in tensors)
        noted.append(Call(module, args, kwargs, _versions(args, kwargs), edges, zeros, next(ticks)))
        return changed

    return hook


def pull_back(total: Tensor, calls: Mapping[Place, Call], keep_graph: bool) -> dict[Place, tuple[Tensor, ...]]:
    """Gradients of the number `total` with respect to what each call returned."""
    return pull_back_to(total, calls, [], keep_graph)[0]


def pull_back_to(
    total: Tensor, calls: Mapping[Place, Call], leaves: Sequence[Tensor], keep_graph: bool
) -> tuple[dict[Place, tuple[Tensor, ...]], tuple[Tensor | None, ...]]:
    """The same, and the gradients with respect to some leaves (None where nothing depends on one), in one pass."""
    edges = [edge for call in calls.values() for edge in call.edges]
    if not edges and not leaves:
        return dict.fromkeys(calls, ()), ()
    gradients = torch.autograd.grad(
        total, [*edges, *map(get_gradient_edge, leaves)], retain_graph=keep_graph, allow_unused=True
    )
    remaining = iter(gradients)
    by_call = {place: tuple(_or_zero(next(remaining), zero) for zero in call.zeros) for place, call in calls.items()}
    return by_call, tuple(remaining)


def _or_zero(gradient: Tensor | None, zero: Tensor) -> Tensor:
    return zero if gradient is None else gradient


def _versions(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, ...]:
    return tuple(tensor._version for tensor in tensors_in([*args, kwargs]))
