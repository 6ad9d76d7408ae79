"""Norms of a graph in the words of the theory: over the batch or within each sample, then scale and shift."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import fx, nn

from skiplens.lenses.jacobians.hypotheses.view import GraphView, argument
from skiplens.residual.zoo.macdonald2023_layers import BatchNormalise
from skiplens.theory.hypotheses import Description
from skiplens.theory.parameterised_systems import BatchNorm, SampleNorm, ScaleShift


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
