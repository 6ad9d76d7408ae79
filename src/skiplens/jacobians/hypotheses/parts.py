"""A model's graph as the descriptions need it: who reads whom, how many features, which module."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import fx, nn

from skiplens.base.errors import InvalidInputError
from skiplens.graph.export import module_calls, module_of
from skiplens.graph.flow import DataFlow, members
from skiplens.graph.network import ResidualNetwork
from skiplens.graph.operations import CONVOLUTIONS, CROPPING, NORMALISING, operation
from skiplens.jacobians.hypotheses.descriptions import Description, FreeMap, Kinked, LinearMap, Unrecognised
from skiplens.jacobians.systems.affine import Affine, Convolution, ScaleShift
from skiplens.jacobians.systems.elementwise import NONLINEARITIES, Elementwise
from skiplens.jacobians.systems.norms import BatchNorm, SampleNorm
from skiplens.jacobians.systems.parameterisation import EntryNormalised, Free, Parameterisation, WeightNormalised
from skiplens.zoo.macdonald2023 import BatchNormalise, NormalisedConv2d, NormalisedLinear


class GraphView:
    """The exported graph of a model with short questions about its nodes."""

    def __init__(self, network: ResidualNetwork) -> None:
        self.network = network
        self.flow = DataFlow(network.exported)

    @cached_property
    def start(self) -> fx.Node:
        """The first floating input; the first input if none is floating."""
        inputs = [self.network.node(name) for name in self.network.exported.inputs]
        floating = [node for node in inputs if self.flow.is_floating(self.flow.number[node])]
        return (floating or inputs)[0]

    @cached_property
    def samples(self) -> int:
        """Samples of the batch that the graph was made with."""
        return self.start.meta["val"].shape[0]

    def between(self, start: fx.Node, end: fx.Node) -> list[fx.Node]:
        """The activations on a way from `start` to `end`, the end included, in execution order."""
        flow = self.flow
        return [flow.nodes[number] for number in members(flow.between(flow.number[start], [flow.number[end]]))]

    def sources(self, node: fx.Node) -> list[fx.Node]:
        """The activations that a node reads."""
        return [self.flow.nodes[number] for number in self.flow.sources[self.flow.number[node]]]

    def features(self, node: fx.Node) -> int:
        """Numbers of one sample at a node."""
        value = node.meta["val"]
        first = value[0] if isinstance(value, tuple | list) else value
        return math.prod(first.shape) // self.samples

    def shape(self, node: fx.Node) -> tuple[int, ...]:
        """Shape of the tensor at a node."""
        value = node.meta["val"]
        return tuple((value[0] if isinstance(value, tuple | list) else value).shape)

    def operation(self, node: fx.Node) -> str:
        """The operation of a node without its overload."""
        return operation(node)

    def call(self, node: fx.Node) -> str:
        """The innermost module call that ran a node."""
        calls = module_calls(node)
        return calls[-1] if calls else ""

    def module(self, node: fx.Node) -> nn.Module:
        """The innermost module that ran a node."""
        return self.network.model.get_submodule(module_of(self.call(node)))

    def name(self, node: fx.Node) -> str:
        """The module of a node, with the operation where the module does other things too."""
        module, name = self.module(node), module_of(self.call(node))
        if name and not any(module.children()):
            return name
        return f"{self.operation(node).removeprefix('aten.')} in {name or 'the model'}"

    def unrecognised(self, node: fx.Node, source: fx.Node, what: str) -> Unrecognised:
        """A part from `source` to `node` about which nothing is known."""
        return Unrecognised(self.name(node), what, self.features(source), self.features(node))

    def require_data_matrices(self) -> None:
        """Refuse empty activations, and blocks or outputs without the samples: the theory has one column a sample."""
        network = self.network
        for node in self.between(self.start, network.node(network.output)):
            if 0 in self.shape(node):
                raise InvalidInputError(
                    f"{self.name(node)} has an output of shape {self.shape(node)}, which is empty; nothing can be said "
                    "about a network with it. Give every layer at least one output."
                )
        ends = [(f"Block {block.name}", node) for block in network.blocks for node in (block.input, block.join)]
        for name, end in [*ends, ("The model", network.output)]:
            shape = self.shape(network.node(end))
            # some models keep the samples on the second axis
            if self.samples not in (shape[:2] if len(shape) > 2 else shape[:1]):
                raise InvalidInputError(
                    f"{name} changes the number of samples: {self.samples} came in, its shape is {shape}. The theorems "
                    "speak of one output a sample; let no block reshape samples into each other."
                )

    def parameter(self, argument: object) -> torch.Tensor | None:
        """The parameter that an argument of a node is, or None if it is something else."""
        names = self.network.exported.parameters
        if not isinstance(argument, fx.Node) or argument.name not in names:
            return None
        return self.network.model.get_parameter(names[argument.name])


def argument(node: fx.Node, place: int, default: Any = None) -> Any:
    """The positional argument of a node at a place, or `default` if it has fewer."""
    return node.args[place] if len(node.args) > place else default


_WEIGHTS = {"aten.linear": 1, "aten.mm": 1, "aten.matmul": 1, "aten.addmm": 2} | dict.fromkeys(CONVOLUTIONS, 1)
"""Where the weight stands among the arguments."""


def affine_part(view: GraphView, node: fx.Node, source: fx.Node) -> Description:
    """The description of a product with a weight matrix or of a convolution."""
    module, shape = view.module(node), view.shape(source)
    if isinstance(module, NormalisedLinear) and _is_one_row_a_sample(view, source):
        return Affine(_kernel(module), name=view.name(node))
    if isinstance(module, NormalisedConv2d):
        return Affine(_convolution(module, shape), name=view.name(node))
    return _free(view, node, source)


def _free(view: GraphView, node: fx.Node, source: fx.Node) -> Description:
    name, inputs, outputs = view.name(node), view.features(source), view.features(node)
    kind = view.operation(node)
    weight = view.parameter(_argument(node, _WEIGHTS[kind], "weight")) if kind in _WEIGHTS else None
    if weight is None:
        return Unrecognised(name, f"{kind.removeprefix('aten.')} with a weight that is computed", inputs, outputs)
    if kind == "aten.linear" and _is_one_row_a_sample(view, source):
        return Affine(Free(outputs, inputs), _argument(node, 2, "bias") is not None, name=name)
    fan_in = math.prod(weight.shape[1:]) if kind == "aten.linear" or kind in CONVOLUTIONS else weight.shape[0]
    return FreeMap(name, inputs, outputs, weight.numel(), fan_in)


def _is_one_row_a_sample(view: GraphView, source: fx.Node) -> bool:
    """Whether a matrix acts on whole samples; on tokens it is shared, like a convolution."""
    shape = view.shape(source)
    return len(shape) == 2 and shape[0] == view.samples


def _kernel(module: NormalisedLinear | NormalisedConv2d) -> Parameterisation:
    """The parameterisation of the weight as a matrix of outputs × everything else."""
    weight, rule = module.weight, module.parameterisation
    kind = WeightNormalised if rule.normalisation == "weight" else EntryNormalised
    return kind(weight.shape[0], math.prod(weight.shape[1:]), float(rule.epsilon), float(rule.factor))


def _convolution(module: NormalisedConv2d, shape: tuple[int, ...]) -> Convolution:
    return Convolution(
        _kernel(module),
        channels=shape[1],
        image=(shape[2], shape[3]),
        window=_pair(module.kernel_size),
        stride=_pair(module.stride),
        padding=_pair(module.padding),
    )


def _pair(values: Any) -> tuple[int, int]:
    return int(values[0]), int(values[1])


def _argument(node: fx.Node, place: int, name: str) -> Any:
    return node.args[place] if len(node.args) > place else node.kwargs.get(name)


def normalisation(view: GraphView, node: fx.Node, source: fx.Node) -> list[Description]:
    """A norm by statistics of its input, then its scale and shift."""
    module, within = view.module(node), _WITHIN_SAMPLES.get(view.operation(node))
    if within is not None:
        return _within_samples(view, node, source, within(node, view.shape(source), source.meta["val"].dtype))
    if not isinstance(module, nn.modules.batchnorm._BatchNorm | BatchNormalise):
        return [view.unrecognised(node, source, view.operation(node).removeprefix("aten."))]
    shape, name = view.shape(source), view.name(node)
    channels, positions = shape[1] if len(shape) > 1 else 1, math.prod(shape[2:])
    if isinstance(module, BatchNormalise):
        return [BatchNorm(channels, module.epsilon, positions, name=name)]
    scale: list[Description] = [ScaleShift(channels, positions, name=name)] if module.affine else []
    if module.training or not module.track_running_stats:
        return [BatchNorm(channels, module.eps, positions, name=name), *scale]
    # with frozen statistics a batch norm is a fixed affine map, which a free scale and shift contain
    return scale or [view.unrecognised(node, source, "batch norm with running statistics")]


@dataclass(frozen=True)
class _Norm:
    """A norm within samples: numbers that share a mean, ε, scales (0 if it has none), whether means are subtracted."""

    width: int
    epsilon: float
    scales: int
    is_centred: bool = True
    is_of_its_input: bool = True


def _within_samples(view: GraphView, node: fx.Node, source: fx.Node, norm: _Norm) -> list[Description]:
    name, features = view.name(node), view.features(source)
    if features % norm.width or not norm.is_of_its_input:
        return [view.unrecognised(node, source, "a norm across samples or with running statistics")]
    groups = features // norm.width
    scale: list[Description] = [ScaleShift(norm.scales, features // norm.scales, name=name)] if norm.scales else []
    return [SampleNorm(features, groups, norm.epsilon, norm.is_centred, name=name), *scale]


def _layer_norm(node: fx.Node, shape: tuple[int, ...], dtype: torch.dtype) -> _Norm:
    width = math.prod(argument(node, 1))
    return _Norm(width, float(argument(node, 4, 1e-5)), width if argument(node, 2) is not None else 0)


def _rms_norm(node: fx.Node, shape: tuple[int, ...], dtype: torch.dtype) -> _Norm:
    """Without ε, torch takes the precision of the numbers that come in."""
    width, epsilon = math.prod(argument(node, 1)), argument(node, 3)
    epsilon = torch.finfo(dtype).eps if epsilon is None else float(epsilon)
    return _Norm(width, epsilon, width if argument(node, 2) is not None else 0, is_centred=False)


def _group_norm(node: fx.Node, shape: tuple[int, ...], dtype: torch.dtype) -> _Norm:
    width, scales = math.prod(shape[1:]) // argument(node, 1), shape[1] if argument(node, 2) is not None else 0
    return _Norm(width, float(argument(node, 4, 1e-5)), scales)


def _instance_norm(node: fx.Node, shape: tuple[int, ...], dtype: torch.dtype) -> _Norm:
    scales, own = shape[1] if argument(node, 1) is not None else 0, bool(argument(node, 5, True))
    return _Norm(math.prod(shape[2:]), float(argument(node, 7, 1e-5)), scales, is_of_its_input=own)


_WITHIN_SAMPLES: dict[str, Callable[[fx.Node, tuple[int, ...], torch.dtype], _Norm]] = {
    "aten.layer_norm": _layer_norm,
    "aten.native_layer_norm": _layer_norm,
    "aten.rms_norm": _rms_norm,
    "aten.group_norm": _group_norm,
    "aten.instance_norm": _instance_norm,
}

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
