"""Calls of modules during one forward pass: what went in, and where the gradient of what came out can be read."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from skiplens.base.axes import Float
from skiplens.graph.functional import Parameters, PureModel, tensors_in
from skiplens.graph.inputs import Samples

Place = tuple[str, int]  # a call: the module's name and which of its calls


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


def _versions(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, ...]:
    return tuple(tensor._version for tensor in tensors_in([*args, kwargs]))


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
    """Run the model on `samples`, with the parameters `leaves`, and note the calls of the `watched` modules.

    The modules named in `spread` have one output for all samples (position embeddings); it is expanded to one copy a
    sample, so that each sample's gradient can be told apart.
    """
    calls: dict[str, list[Call]] = {name: [] for name in watched}
    # One sample needs no copies, and a view of its own output would not survive an operation in place.
    spread = spread if samples.count > 1 else frozenset()
    ticks = itertools.count()
    with ExitStack() as hooks, torch.enable_grad():
        for name, module in watched.items():
            hook = _noting_hook(calls[name], samples.count if name in spread else None, ticks)
            hooks.enter_context(module.register_forward_hook(hook, with_kwargs=True))
        return Recording(pure(leaves, samples), calls)


def _noting_hook(noted: list[Call], spread_to: int | None, ticks: Iterator[int]) -> Any:
    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        if spread_to is not None and isinstance(output, Tensor) and output.shape[0] == 1:
            output = output.expand(spread_to, *output.shape[1:])
        tensors = [tensor for tensor in tensors_in(output) if tensor.requires_grad]
        edges = tuple(get_gradient_edge(tensor) for tensor in tensors)
        zeros = tuple(tensor.new_zeros(()).expand(tensor.shape) for tensor in tensors)
        noted.append(Call(module, args, kwargs, _versions(args, kwargs), edges, zeros, next(ticks)))
        return output

    return hook


def pull_back(
    total: Tensor, calls: Mapping[Place, Call], leaves: Sequence[Tensor] = (), keep_graph: bool = True
) -> tuple[dict[Place, tuple[Tensor, ...]], tuple[Tensor | None, ...]]:
    """Gradients of the number `total` with respect to what each call returned, and with respect to some leaves.

    A leaf that nothing depends on has None.
    """
    edges = [edge for call in calls.values() for edge in call.edges]
    if not edges and not leaves:
        return dict.fromkeys(calls, ()), ()
    wanted = [*edges, *map(get_gradient_edge, leaves)]
    remaining = iter(torch.autograd.grad(total, wanted, retain_graph=keep_graph, allow_unused=True))
    by_call: dict[Place, tuple[Tensor, ...]] = {}
    for place, call in calls.items():
        pairs = [(next(remaining), zero) for zero in call.zeros]
        by_call[place] = tuple(zero if gradient is None else gradient for gradient, zero in pairs)
    return by_call, tuple(remaining)
