"""Batch norm with the statistics of its batch held fixed: then no sample depends on another one."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from skiplens.residual import ResidualNetwork
from skiplens.residual.interpreter import Call, plain_call, plan
from skiplens.residual.operations import operation

_BATCH_NORMS = {"aten.batch_norm", "aten._native_batch_norm_legit", "aten._native_batch_norm_legit_functional"}


@dataclass(frozen=True)
class Statistics:
    """Mean and inverse standard deviation of each channel, shaped to multiply a batch."""

    mean: Tensor
    inverse_deviation: Tensor

    @property
    def channels(self) -> int:
        """How many channels are normalised."""
        return self.mean.numel()


def coupling_norms(network: ResidualNetwork, start: str, end: str, samples: int) -> dict[str, Statistics]:
    """The batch norms between two nodes that use the statistics of a batch of `samples`, and these statistics.

    An instance norm is exported as a batch norm of one large sample; it couples nothing and is left out.
    """
    nodes = [node for node in _between(network, start, end) if _uses_batch(node, samples)]
    values = network.run({_source(node).name for node in nodes})
    return {node.name: _statistics(values[_source(node).name], node) for node in nodes}


def frozen_call(statistics: Mapping[str, Statistics]) -> Call:
    """Operations as they are, but these batch norms with fixed statistics."""

    def call(node: fx.Node, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if node.name not in statistics:
            return plain_call(node, arguments, keywords)
        fixed = statistics[node.name]
        value, weight, bias = arguments[:3]
        normalised = (value - fixed.mean) * fixed.inverse_deviation
        if weight is not None:
            normalised = normalised * weight.reshape(fixed.mean.shape)
        if bias is not None:
            normalised = normalised + bias.reshape(fixed.mean.shape)
        if operation(node) == "aten.batch_norm":
            return normalised
        rest = node.meta["val"][1:]  # statistics, which nothing on the way reads
        return (normalised, *(torch.zeros(tuple(entry.shape), device=value.device) for entry in rest))

    return call


def _between(network: ResidualNetwork, start: str, end: str) -> Iterable[fx.Node]:
    first = network.node(start)
    moving = {first}
    for node in plan([network.node(end)], [first]):
        if not moving.isdisjoint(node.all_input_nodes):
            moving.add(node)
            yield node


def _uses_batch(node: fx.Node, samples: int) -> bool:
    if node.op != "call_function" or operation(node) not in _BATCH_NORMS:
        return False
    training = next(argument for argument in node.args if isinstance(argument, bool))
    return training and samples > 1 and _source(node).meta["val"].shape[0] == samples


def _source(node: fx.Node) -> fx.Node:
    source = node.args[0]
    assert isinstance(source, fx.Node), "a batch norm reads a node"
    return source


def _statistics(value: Tensor, node: fx.Node) -> Statistics:
    epsilon = [argument for argument in node.args if isinstance(argument, float)][1]  # momentum comes first
    others = [axis for axis in range(value.ndim) if axis != 1]
    value = value.detach()
    variance = value.var(others, unbiased=False, keepdim=True)
    return Statistics(value.mean(others, keepdim=True), (variance + epsilon).rsqrt())
