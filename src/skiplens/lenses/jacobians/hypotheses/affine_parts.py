"""Linear layers and convolutions of a graph in the words of the theory."""

import math
from typing import Any

from torch import fx

from skiplens.lenses.jacobians.hypotheses.view import GraphView
from skiplens.residual.operations import CONVOLUTIONS
from skiplens.residual.zoo.macdonald2023_layers import NormalisedConv2d, NormalisedLinear
from skiplens.theory.hypotheses import Description, FreeMap, Unrecognised
from skiplens.theory.parameterised_systems import (
    Affine,
    Convolution,
    EntryNormalised,
    Free,
    Parameterisation,
    WeightNormalised,
)

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
