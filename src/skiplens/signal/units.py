"""Units that are shut on all samples, and what else makes a measurement hard to trust: dropout, noise, NaN."""

import math
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm

from skiplens.base.arguments import Arguments
from skiplens.graph.inputs import try_call
from skiplens.graph.network import Call, ResidualNetwork, plain_call
from skiplens.graph.operations import ATTENTION, CONVOLUTIONS, MATRIX_PRODUCTS, NORMALISING, drops_at_random, operation

FLAT_SLOPE = 0.01  # a slope below this share of its largest value counts as saturation
_CHANNELS_LAST = {"aten.layer_norm", "aten.native_layer_norm", "aten.rms_norm"}

_SHUT: dict[str, Callable[[Tensor], Tensor]] = dict.fromkeys(
    ("aten.relu", "aten.hardtanh", "aten.clamp_min"),  # hardtanh is ReLU6
    lambda value: value == 0,
)

_FLAT: dict[str, Callable[[Tensor], Tensor]] = {
    "aten.tanh": lambda value: 1 - value.square() < FLAT_SLOPE,
    "aten.sigmoid": lambda value: 4 * value * (1 - value) < FLAT_SLOPE,
}


class Share(NamedTuple):
    """A share of the units of a layer."""

    share: float
    units: int


def surprise(share: float, units: int) -> float:
    """(share − ½)·2√units: standard deviations above one half of a fair coin thrown `units` times."""
    return 2 * (share - 0.5) * math.sqrt(units)


Watcher = Callable[[Any, tuple[Any, ...]], None]  # called with the value of an operation and with its arguments


@dataclass
class UnitStates:
    """Which units are shut on all samples, by block and place in it, gathered while the graph runs."""

    shut: dict[tuple[str, int], Tensor] = field(default_factory=dict)  # they are zero
    flat: dict[tuple[str, int], Tensor] = field(default_factory=dict)  # their slope is next to nothing

    def watchers(self, network: ResidualNetwork) -> dict[str, Watcher]:
        """One watcher for each activation function inside of a branch; what it sees of several pieces goes together."""
        found: dict[str, Watcher] = {}
        for block in network.blocks:
            for place, node in enumerate(map(network.node, block.branch.nodes)):
                for table, units in ((_SHUT, self.shut), (_FLAT, self.flat)):
                    if operation(node) in table:
                        key, judge = (block.name, place), table[operation(node)]
                        found[node.name] = _watcher(units, key, judge, unit_axis(node))
        return found


def _watcher(
    units: dict[tuple[str, int], Tensor], key: tuple[str, int], judge: Callable[[Tensor], Tensor], axis: int
) -> Watcher:
    def see(value: Tensor, arguments: tuple[Any, ...]) -> None:
        entered = arguments[0].detach().movedim(axis, 0).flatten(1)
        shut = judge(value.detach()).movedim(axis, 0).flatten(1).all(1) & entered.any(1)  # of zeros nothing is known
        units[key] = units[key] & shut if key in units else shut

    return see


def most_surprising(units: Mapping[tuple[str, int], Tensor]) -> dict[str, Share]:
    """The share of shut units of each block, and how many units there are.

    Of several layers of a branch the one counts whose share is the furthest above one half, in standard deviations of
    a fair coin thrown once for each unit.
    """
    found: dict[str, Share] = {}
    for (block, _), shut in units.items():
        share = Share(float(shut.double().mean()), len(shut))
        found[block] = max(found.get(block, share), share, key=lambda entry: surprise(*entry))
    return found


def unit_axis(node: fx.Node) -> int:
    """The axis of a node's value that counts units: channels after a convolution, features after a matrix."""
    source: fx.Node | None = node
    while source is not None:
        kind = operation(source) if source.op == "call_function" else source.op
        if kind in CONVOLUTIONS or (kind in NORMALISING and kind not in _CHANNELS_LAST):
            return 1
        if kind in MATRIX_PRODUCTS or kind in _CHANNELS_LAST:
            return -1
        source = next((above for above in source.all_input_nodes if _is_activation(above)), None)
    return 1 if node.meta["val"].ndim == 4 else -1


def _is_activation(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return node.op == "call_function" and (not isinstance(value, torch.Tensor) or value.is_floating_point())


CALLS = 8  # of a model that draws; one that takes a coin's side with probability p shows nothing with p⁸ + (1 − p)⁸


def repeat_difference(model: nn.Module, arguments: Arguments) -> float:
    """Largest difference between the outputs of two calls, relative to the largest output; 0 if they agree.

    Those of a model that draws at random may agree by chance, so it is called more often.
    """
    first, apart, before = try_call(model, arguments), 0.0, (torch.get_rng_state(), random.getstate())
    for _ in range(CALLS - 1):
        again = try_call(model, arguments)
        apart = max((_difference(first[name], again[name]) for name in first), default=0.0)
        if apart or (torch.equal(before[0], torch.get_rng_state()) and before[1] == random.getstate()):
            break
    return apart


def dropout_modules(network: ResidualNetwork) -> tuple[str, ...]:
    """Modules whose dropout is switched on; '' never appears, the model itself is called by its class."""
    pairs = zip(network.cards, network.graph.nodes, strict=True)
    found = (card.module for card, node in pairs if node.op == "call_function" and _drops(node))
    return tuple(dict.fromkeys(module or type(network.model).__name__ for module in found))


def fresh_norms(model: nn.Module) -> tuple[str, ...]:
    """Batch norms that use running statistics which no batch has ever updated."""
    norms = [(name, module) for name, module in model.named_modules() if isinstance(module, _BatchNorm)]
    counted = [(name, m.num_batches_tracked) for name, m in norms if not m.training]
    return tuple(name for name, batches in counted if batches is not None and int(batches) == 0)


def broken_tensors(model: nn.Module, pieces: Iterable[Arguments]) -> tuple[str, ...]:
    """Parameters, buffers and inputs that hold a value that is not finite; an input has one name in all pieces."""
    named: list[tuple[str, Tensor]] = [(f"parameter {name}", tensor) for name, tensor in model.named_parameters()]
    named += [(f"buffer {name}", tensor) for name, tensor in model.named_buffers()]
    for given in pieces:
        fed = [leaf for leaf in given.leaves() if isinstance(leaf, torch.Tensor)]
        named += [(f"input {number}", tensor) for number, tensor in enumerate(fed)]
    real = ((name, tensor.detach().to_dense()) for name, tensor in named if tensor.is_floating_point())
    return tuple(dict.fromkeys(name for name, tensor in real if not bool(tensor.isfinite().all())))


def _difference(first: Tensor, second: Tensor) -> float:
    if not first.is_floating_point():
        return float(not torch.equal(first, second))
    scale = float(first.abs().nan_to_num(0, 0, 0).max()) if first.numel() else 0.0
    gap = (first - second).abs().nan_to_num(0, 0, 0)
    return float(gap.max()) / scale if scale > 0 and gap.numel() else 0.0


def _drops(node: fx.Node) -> bool:
    """Whether a dropout, or that of an attention, is on."""
    if drops_at_random(node) and node.args[1] != 0:
        return True
    if operation(node) not in ATTENTION:
        return False
    place = 4  # of dropout_p among the arguments of scaled_dot_product_attention
    rate = node.args[place] if len(node.args) > place else node.kwargs.get("dropout_p", 0.0)
    return isinstance(rate, float) and rate > 0


def watching_call(watchers: Mapping[str, Watcher], plain: Call = plain_call) -> Call:
    """Carry out operations as they are, and show those named in `watchers` to their watcher, without a graph."""

    def call(node: fx.Node, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        value = plain(node, arguments, keywords)
        if node.name in watchers:
            with torch.no_grad():
                watchers[node.name](value, arguments)
        return value

    return call
