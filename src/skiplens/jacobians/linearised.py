"""A function linearised at a point: products with its Jacobian and its transpose, and batch norms held fixed in it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, fx

from skiplens.base.axes import Float
from skiplens.base.errors import InvalidInputError
from skiplens.graph.network import Call, ResidualNetwork, plain_call, plan
from skiplens.graph.operations import operation

Function = Callable[[Tensor], Tensor]

_CHUNK_BYTES = 2**26
"""What the vectors of one batched product may take; larger blocks win nothing on a processor."""


class Linearised:
    """The Jacobian of `function` at `point`, known by its products; inputs and outputs are flattened row first.

    One forward pass is kept. Jᵀu is a backward pass; Jv is the derivative of Jᵀu with respect to u, so everything that
    has second derivatives in torch has it. Make and use it within `transformable()`.
    """

    def __init__(self, function: Function, point: Tensor) -> None:
        """Run the function once."""
        if not point.is_floating_point():
            raise InvalidInputError(f"A Jacobian needs a floating-point input, got {point.dtype}.")
        with torch.enable_grad():
            self._point = point.detach().clone().requires_grad_()
            self._output = function(self._point)
        if not self._output.numel() or not self._point.numel():
            raise InvalidInputError(
                f"A Jacobian from shape {tuple(point.shape)} to shape {tuple(self._output.shape)} has no entries; "
                "look at a part of the network whose input and output are not empty."
            )
        self.input_shape, self.output_shape = tuple(point.shape), tuple(self._output.shape)
        self.rows, self.columns = self._output.numel(), self._point.numel()
        self.dtype, self.device = point.dtype, point.device

    def adjoint(self, vectors: Float[Tensor, "vectors rows"]) -> Float[Tensor, "vectors columns"]:
        """Jᵀ times each row of `vectors`."""
        if not self._output.requires_grad:
            return vectors.new_zeros(len(vectors), self.columns)
        return self._batched(self._output, self._point, vectors, self.output_shape)

    def forward(self, vectors: Float[Tensor, "vectors columns"]) -> Float[Tensor, "vectors rows"]:
        """J times each row of `vectors`."""
        cotangent, pulled = self._pullback
        if pulled is None or not pulled.requires_grad:
            return vectors.new_zeros(len(vectors), self.rows)
        return self._batched(pulled, cotangent, vectors, self.input_shape)

    @cached_property
    def _pullback(self) -> tuple[Tensor, Tensor | None]:
        """A variable u and Jᵀu as a function of it."""
        with torch.enable_grad():
            cotangent = torch.zeros_like(self._output).requires_grad_()
            if not self._output.requires_grad:
                return cotangent, None
            (pulled,) = torch.autograd.grad(
                self._output, self._point, cotangent, create_graph=True, retain_graph=True, allow_unused=True
            )
        return cotangent, pulled

    def _batched(self, output: Tensor, of: Tensor, vectors: Tensor, shape: tuple[int, ...]) -> Tensor:
        if not len(vectors):
            return vectors.new_zeros(0, of.numel())
        largest = max(self.rows, self.columns) * vectors.element_size()
        found = []
        for part in vectors.split(max(1, _CHUNK_BYTES // (8 * largest))):
            single, block = len(part) == 1, part.reshape(-1, *shape)
            weights = block[0] if single else block
            (product,) = torch.autograd.grad(
                output, of, weights, retain_graph=True, is_grads_batched=not single, allow_unused=True
            )
            product = part.new_zeros(len(part), of.numel()) if product is None else product.detach()
            found.append(product.reshape(len(part), -1))
        return torch.cat(found)


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
    first = network.node(start)
    moving, nodes = {first}, []
    for node in plan([network.node(end)], [first]):
        if not moving.isdisjoint(node.all_input_nodes):
            moving.add(node)
            if node.op == "call_function" and operation(node) in _BATCH_NORMS:
                training = next(argument for argument in node.args if isinstance(argument, bool))
                if training and samples > 1 and _source(node).meta["val"].shape[0] == samples:
                    nodes.append(node)
    values = network.run({_source(node).name for node in nodes})
    found = {}
    for node in nodes:
        epsilon = [argument for argument in node.args if isinstance(argument, float)][1]  # momentum comes first
        value = values[_source(node).name].detach()
        others = [axis for axis in range(value.ndim) if axis != 1]
        variance = value.var(others, unbiased=False, keepdim=True)
        found[node.name] = Statistics(value.mean(others, keepdim=True), (variance + epsilon).rsqrt())
    return found


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


def _source(node: fx.Node) -> fx.Node:
    source = node.args[0]
    assert isinstance(source, fx.Node), "a batch norm reads a node"
    return source
