"""The nodes of a model's graph as descriptions: maps, norms, nonlinearities, pools, and what is not recognised."""

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import fx, nn

from skiplens.base.errors import CoupledSamplesError, InvalidInputError
from skiplens.graph.export import module_calls, module_of
from skiplens.graph.flow import DataFlow, known_shape, members
from skiplens.graph.functional import PureModel, is_batch_coupled
from skiplens.graph.network import ResidualNetwork
from skiplens.graph.operations import CONVOLUTIONS, CROPPING, NORMALISING, operation, per_axis
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
        return math.prod(self.shape(node)) // self.samples

    def shape(self, node: fx.Node) -> tuple[int, ...]:
        """Shape of the tensor at a node, of the first where there are several."""
        value = node.meta["val"]
        return known_shape(value[0] if isinstance(value, tuple | list) else value)

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
        return f"{operation(node).removeprefix('aten.')} in {name or 'the model'}"

    def unrecognised(self, node: fx.Node, source: fx.Node, what: str) -> Unrecognised:
        """A part from `source` to `node` about which nothing is known."""
        return Unrecognised(self.name(node), what, self.features(source), self.features(node))

    @cached_property
    def _keeps_apart(self) -> bool:
        arguments = self.network.inputs
        return not is_batch_coupled(PureModel(self.network.model, {}, {}), arguments.named or arguments.positional)

    def is_folded(self, shape: tuple[int, ...]) -> bool:
        """Whether tokens of a sample stand as rows below each other, and no sample meets another one."""
        return len(shape) > 1 and shape[0] % self.samples == 0 and self._keeps_apart

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
            kept = self.samples in (shape[:2] if len(shape) > 2 else shape[:1])
            if not kept and (end == network.output or not self.is_folded(shape)):
                raise CoupledSamplesError(
                    f"{name} changes the number of samples: {self.samples} came in, its shape is {shape}. The theorems "
                    "speak of one output a sample; let no block reshape samples into each other."
                )


def argument(node: fx.Node, place: int, default: Any = None, name: str = "") -> Any:
    """The argument of a node at a place, or of this name, or `default` if it has neither."""
    return node.args[place] if len(node.args) > place else node.kwargs.get(name, default)


_WEIGHTS = {"aten.linear": 1, "aten.mm": 1, "aten.matmul": 1, "aten.addmm": 2} | dict.fromkeys(CONVOLUTIONS, 1)
"""Where the weight stands among the arguments."""


def affine_part(view: GraphView, node: fx.Node, source: fx.Node) -> Description:
    """The description of a product with a weight matrix or of a convolution."""
    module, shape, name, kind = view.module(node), view.shape(source), view.name(node), operation(node)
    # Whether a matrix acts on whole samples; on tokens it is shared, like a convolution.
    one_row_a_sample = len(shape) == 2 and shape[0] == view.samples
    if isinstance(module, NormalisedLinear) and one_row_a_sample:
        return Affine(_kernel(module), name=name)
    if isinstance(module, NormalisedConv2d):
        window, stride, padding = (
            (int(size[0]), int(size[1])) for size in (module.kernel_size, module.stride, module.padding)
        )
        return Affine(Convolution(_kernel(module), shape[1], (shape[2], shape[3]), window, stride, padding), name=name)
    inputs, outputs, names = view.features(source), view.features(node), view.network.exported.parameters
    weight = argument(node, _WEIGHTS[kind], name="weight") if kind in _WEIGHTS else None
    if not isinstance(weight, fx.Node) or weight.name not in names:
        return Unrecognised(name, f"{kind.removeprefix('aten.')} with a weight that is computed", inputs, outputs)
    if kind == "aten.linear" and one_row_a_sample:
        return Affine(Free(outputs, inputs), argument(node, 2, name="bias") is not None, name=name)
    trained = view.network.model.get_parameter(names[weight.name])
    fan_in = math.prod(trained.shape[1:]) if kind == "aten.linear" or kind in CONVOLUTIONS else trained.shape[0]
    return FreeMap(name, inputs, outputs, trained.numel(), fan_in)


def _kernel(module: NormalisedLinear | NormalisedConv2d) -> Parameterisation:
    """The parameterisation of the weight as a matrix of outputs × everything else."""
    weight, rule = module.weight, module.parameterisation
    kind = WeightNormalised if rule.normalisation == "weight" else EntryNormalised
    return kind(weight.shape[0], math.prod(weight.shape[1:]), float(rule.epsilon), float(rule.factor))


def normalisation(view: GraphView, node: fx.Node, source: fx.Node) -> list[Description]:
    """A norm by statistics of its input, then its scale and shift."""
    module, name, shape, kind = view.module(node), view.name(node), view.shape(source), operation(node)
    if kind in _WITHIN_SAMPLES:
        return _norm_within_samples(view, node, source)
    if not isinstance(module, nn.modules.batchnorm._BatchNorm | BatchNormalise):
        return [view.unrecognised(node, source, kind.removeprefix("aten."))]
    channels, positions = shape[1] if len(shape) > 1 else 1, math.prod(shape[2:])
    if isinstance(module, BatchNormalise):
        return [BatchNorm(channels, module.epsilon, positions, name=name)]
    scale: list[Description] = [ScaleShift(channels, positions, name=name)] if module.affine else []
    if module.training or not module.track_running_stats:
        return [BatchNorm(channels, module.eps, positions, name=name), *scale]
    # with frozen statistics a batch norm is a fixed affine map, which a free scale and shift contain
    return scale or [view.unrecognised(node, source, "batch norm with running statistics")]


_WITHIN_SAMPLES = {
    "aten.layer_norm": (2, 4),
    "aten.native_layer_norm": (2, 4),
    "aten.rms_norm": (2, 3),
    "aten.group_norm": (2, 4),
    "aten.instance_norm": (1, 7),
}
"""Norms over numbers of one sample, and where scale and ε stand among their arguments."""


def _norm_within_samples(view: GraphView, node: fx.Node, source: fx.Node) -> list[Description]:
    kind, shape, features, name = operation(node), view.shape(source), view.features(source), view.name(node)
    scale_place, epsilon_place = _WITHIN_SAMPLES[kind]
    if kind == "aten.group_norm":
        width, scales = math.prod(shape[1:]) // argument(node, 1), shape[1]
    elif kind == "aten.instance_norm":
        width, scales = math.prod(shape[2:]), shape[1]
    else:
        width = scales = math.prod(argument(node, 1))
    if features % width or (kind == "aten.instance_norm" and not argument(node, 5, True)):
        return [view.unrecognised(node, source, "a norm across samples or with running statistics")]
    is_centred = kind != "aten.rms_norm"
    epsilon = argument(node, epsilon_place, 1e-5 if is_centred else None)
    if epsilon is None:  # torch takes the precision of the numbers that come in
        epsilon = torch.finfo(source.meta["val"].dtype).eps
    norm = SampleNorm(features, features // width, float(epsilon), is_centred, name=name)
    has_scale = argument(node, scale_place) is not None
    return [norm, ScaleShift(scales, features // scales, name=name)] if has_scale else [norm]


# Elementwise operations of torch, and what the theory calls them.
_SAME = "tanh sigmoid softplus sin elu gelu silu mish relu leaky_relu relu6 hardtanh hardswish hardsigmoid selu prelu"
_POINTWISE = {name: name for name in _SAME.split()} | {"log_sigmoid": "logsigmoid"}

_WITH_OPTIONS = {"softplus", "elu"}  # smooth ones whose options change their slopes: only the default is recognised


def other_part(view: GraphView, node: fx.Node, source: fx.Node) -> list[Description]:
    """The descriptions of an operation without weight matrix; none for one that changes nothing."""
    kind = operation(node)
    plain = kind.removeprefix("aten.")
    if plain in _POINTWISE:
        features = view.features(node)
        name = "gelu_tanh" if "tanh" in (*node.args[1:], *node.kwargs.values()) else _POINTWISE[plain]
        if plain in _WITH_OPTIONS and len(node.args) > 1 and set(node.args[1:]) - {1, 20}:
            return [Unrecognised(view.name(node), f"{name} with options", features, features)]
        return [Elementwise(NONLINEARITIES[name], features, name=view.name(node))]
    if kind in NORMALISING:
        return normalisation(view, node, source)
    for operations, describe in _TABLE:
        if kind in operations:
            return describe(view, node, source)
    return [view.unrecognised(node, source, plain)]


def _kept(view: GraphView, node: fx.Node, source: fx.Node) -> list[Description]:
    """A selection, or zeros put beside: nothing if all numbers stay, else a map with largest singular value 1."""
    if operation(source) in NORMALISING or view.features(node) == view.features(source):
        return []
    pads = operation(node) in ("aten.constant_pad_nd", "aten.pad")
    if pads and argument(node, 2, 0) not in (0, "constant"):
        return [view.unrecognised(node, source, "padding with a constant")]
    return [LinearMap(view.name(node), view.features(source), view.features(node), 1.0)]


def _pool(view: GraphView, node: fx.Node, source: fx.Node) -> list[Description]:
    """Averages or maxima over windows; of averages the gain is exact if windows are disjoint.

    The product of largest row and column sums bounds the squared norm of an average. Each maximum copies one input,
    and an input is copied at most once for each window over it.
    """
    before, after, gain = view.shape(source)[2:], view.shape(node)[2:], None
    averages, adaptive = "avg" in operation(node), "adaptive" in operation(node)
    if not adaptive:
        window = per_axis(argument(node, 1), len(before))
        stride = per_axis(argument(node, 2) or window, len(before))
        overlap = math.prod(math.ceil(size / step) for size, step in zip(window, stride, strict=True))
        gain = math.sqrt(overlap / math.prod(window) if averages else overlap)
    elif averages and after and all(size % parts == 0 for size, parts in zip(before, after, strict=True)):
        gain = math.sqrt(math.prod(after) / math.prod(before))
    name, inputs, outputs = view.name(node), view.features(source), view.features(node)
    return [LinearMap(name, inputs, outputs, gain) if averages else Kinked(name, "max pooling", inputs, outputs, gain)]


def _mean(view: GraphView, node: fx.Node, source: fx.Node) -> list[Description]:
    inputs, outputs, axes = view.features(source), view.features(node), argument(node, 1)
    if not isinstance(axes, list | tuple) or 0 in axes or not outputs:
        return [view.unrecognised(node, source, "mean")]
    return [LinearMap(view.name(node), inputs, outputs, math.sqrt(outputs / inputs))]


def _times(view: GraphView, node: fx.Node, source: fx.Node) -> list[Description]:
    factors = [float(value) for value in node.args if isinstance(value, int | float)]
    if len(factors) != 1:
        return [view.unrecognised(node, source, "product")]
    gain = abs(1 / factors[0] if operation(node) == "aten.div" and factors[0] else factors[0])
    return [LinearMap(view.name(node), view.features(source), view.features(node), gain)]


def _dropout(view: GraphView, node: fx.Node, source: fx.Node) -> list[Description]:
    trains = argument(node, 2, view.module(node).training)
    return [view.unrecognised(node, source, "dropout in train mode")] if trains else []


_TABLE: list[tuple[set[str], Callable[[GraphView, fx.Node, fx.Node], list[Description]]]] = [
    ({f"aten.{pool}{n}d" for pool in ("avg_pool", "adaptive_avg_pool", "max_pool") for n in (1, 2, 3)}, _pool),
    ({"aten.max_pool2d_with_indices", "aten.adaptive_max_pool2d"}, _pool),
    ({"aten.mean"}, _mean),
    ({"aten.mul", "aten.div"}, _times),
    ({"aten.dropout", "aten.feature_dropout", "aten.native_dropout"}, _dropout),
    (CROPPING - {"aten.cat"}, _kept),
]
