"""Nonlinearities and pooling of a graph in the words of the theory."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from skiplens.lenses.jacobians.hypotheses.norm_parts import normalisation
from skiplens.lenses.jacobians.hypotheses.view import GraphView, argument
from skiplens.residual.operations import CROPPING, NORMALISING
from skiplens.theory.hypotheses import Description, Kinked, LinearMap, Unrecognised
from skiplens.theory.parameterised_systems import NONLINEARITIES, Elementwise

_POINTWISE = {
    "aten.tanh": "tanh",
    "aten.sigmoid": "sigmoid",
    "aten.softplus": "softplus",
    "aten.log_sigmoid": "logsigmoid",
    "aten.sin": "sin",
    "aten.elu": "elu",
    "aten.gelu": "gelu",
    "aten.silu": "silu",
    "aten.mish": "mish",
    "aten.relu": "relu",
    "aten.leaky_relu": "leaky_relu",
    "aten.relu6": "relu6",
    "aten.hardtanh": "hardtanh",
    "aten.hardswish": "hardswish",
    "aten.hardsigmoid": "hardsigmoid",
    "aten.selu": "selu",
    "aten.prelu": "prelu",
}
_WITH_OPTIONS = {"aten.softplus", "aten.elu"}
"""Smooth ones whose options change their slopes: recognised with the default options only."""


def other_part(view: GraphView, node: fx.Node, source: fx.Node) -> list[Description]:
    """The descriptions of an operation without weight matrix; none for one that changes nothing."""
    kind = view.operation(node)
    if kind in _POINTWISE:
        return [_pointwise(view, node)]
    if kind in NORMALISING:
        return normalisation(view, node, source)
    for operations, describe in _TABLE:
        if kind in operations:
            return describe(view, node, source)
    return [view.unrecognised(node, source, kind.removeprefix("aten."))]


def _pointwise(view: GraphView, node: fx.Node) -> Description:
    kind, features = view.operation(node), view.features(node)
    name = "gelu_tanh" if "tanh" in (*node.args[1:], *node.kwargs.values()) else _POINTWISE[kind]
    if kind in _WITH_OPTIONS and len(node.args) > 1 and set(node.args[1:]) - {1, 20}:
        return Unrecognised(view.name(node), f"{name} with options", features, features)
    return Elementwise(NONLINEARITIES[name], features, name=view.name(node))


def _kept(view: GraphView, node: fx.Node, source: fx.Node) -> list[Description]:
    """A selection, or zeros put beside: nothing if all numbers stay, else a map with largest singular value 1."""
    if view.operation(source) in NORMALISING or view.features(node) == view.features(source):
        return []
    if view.operation(node) in ("aten.constant_pad_nd", "aten.pad") and argument(node, 2, 0) not in (
        0,
        0.0,
        "constant",
    ):
        return [view.unrecognised(node, source, "padding with a constant")]
    return [LinearMap(view.name(node), view.features(source), view.features(node), 1.0)]


def _average(view: GraphView, node: fx.Node, source: fx.Node) -> list[Description]:
    """Averages over windows: the product of largest row and column sums bounds the squared norm, exact if disjoint."""
    before, after = view.shape(source)[2:], view.shape(node)[2:]
    if "adaptive" in view.operation(node):
        disjoint = bool(after) and all(size % parts == 0 for size, parts in zip(before, after, strict=True))
        gain = math.sqrt(math.prod(after) / math.prod(before)) if disjoint else None
    else:
        window = _sizes(argument(node, 1), len(before))
        gain = math.sqrt(_overlap(window, _sizes(argument(node, 2) or window, len(before))) / math.prod(window))
    return [LinearMap(view.name(node), view.features(source), view.features(node), gain)]


def _maximum(view: GraphView, node: fx.Node, source: fx.Node) -> list[Description]:
    """Each output copies one input, and an input is copied at most once for each window over it."""
    axes = len(view.shape(source)) - 2
    window = _sizes(argument(node, 1), axes)
    adaptive = "adaptive" in view.operation(node)
    gain = None if adaptive else math.sqrt(_overlap(window, _sizes(argument(node, 2) or window, axes)))
    return [Kinked(view.name(node), "max pooling", view.features(source), view.features(node), gain)]


def _mean(view: GraphView, node: fx.Node, source: fx.Node) -> list[Description]:
    inputs, outputs = view.features(source), view.features(node)
    axes = argument(node, 1)
    if not isinstance(axes, list | tuple) or 0 in axes or not outputs:
        return [view.unrecognised(node, source, "mean")]
    return [LinearMap(view.name(node), inputs, outputs, math.sqrt(outputs / inputs))]


def _times(view: GraphView, node: fx.Node, source: fx.Node) -> list[Description]:
    factors = [value for value in node.args if isinstance(value, int | float)]
    if len(factors) != 1:
        return [view.unrecognised(node, source, "product")]
    factor = float(factors[0])
    gain = abs(1 / factor if view.operation(node) == "aten.div" and factor else factor)
    return [LinearMap(view.name(node), view.features(source), view.features(node), gain)]


def _dropout(view: GraphView, node: fx.Node, source: fx.Node) -> list[Description]:
    trains = argument(node, 2, view.module(node).training)
    return [view.unrecognised(node, source, "dropout in train mode")] if trains else []


def _overlap(window: Sequence[int], stride: Sequence[int]) -> int:
    """The largest number of windows over one position."""
    return math.prod(math.ceil(size / step) for size, step in zip(window, stride, strict=True))


def _sizes(value: Any, axes: int) -> list[int]:
    sizes = [int(size) for size in value] if isinstance(value, list | tuple) else [int(value)]
    return sizes * axes if len(sizes) == 1 else sizes


_Describe = Callable[[GraphView, fx.Node, fx.Node], list[Description]]
_TABLE: list[tuple[set[str], _Describe]] = [
    ({f"aten.avg_pool{n}d" for n in (1, 2, 3)} | {f"aten.adaptive_avg_pool{n}d" for n in (1, 2, 3)}, _average),
    (
        {f"aten.max_pool{n}d" for n in (1, 2, 3)} | {"aten.max_pool2d_with_indices", "aten.adaptive_max_pool2d"},
        _maximum,
    ),
    ({"aten.mean"}, _mean),
    ({"aten.mul", "aten.div"}, _times),
    ({"aten.dropout", "aten.feature_dropout", "aten.native_dropout"}, _dropout),
    (CROPPING - {"aten.cat"}, _kept),
]
