"""A model taken apart: its graph, its residual blocks, its dense joins, and the means to run any part of it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from torch import fx, nn

from skiplens.core.arguments import Arguments
from skiplens.core.errors import InvalidInputError
from skiplens.core.nearest import did_you_mean
from skiplens.residual.block import DenseJoin, ResidualBlock
from skiplens.residual.export import ExportedGraph, module_calls, module_of
from skiplens.residual.flow import known_shape
from skiplens.residual.interpreter import Call, interpret, plain_call
from skiplens.residual.operations import operation

NetworkKind = Literal["residual", "dense", "mixed", "chain"]


@dataclass(frozen=True)
class NodeCard:
    """One operation of the graph in words.

    Attributes:
        name: Name of the node.
        operation: What it computes, such as ``aten.conv2d``; ``placeholder`` for what comes from outside.
        module: The module that ran it; '' is the model itself.
        reads: Names of the nodes whose values it takes.
        shape: Shape of its tensor (-1 where it depends on the data), None if its value is no tensor.
    """

    name: str
    operation: str
    module: str
    reads: tuple[str, ...]
    shape: tuple[int, ...] | None


@dataclass(frozen=True, eq=False)
class ResidualNetwork:
    """A model with its functional graph and what was found in it.

    The graph reads the model's own parameters and buffers whenever it runs: train the model on and it is still true. It
    holds for the mode the model was in and for inputs of the same shapes.

    Attributes:
        model: The model, untouched.
        inputs: The arguments it was exported with.
        exported: Its functional graph.
        blocks: Its residual blocks in execution order.
        dense: Its dense joins (concatenations) in execution order.
    """

    model: nn.Module
    inputs: Arguments
    exported: ExportedGraph
    blocks: list[ResidualBlock]
    dense: list[DenseJoin]

    @property
    def kind(self) -> NetworkKind:
        """What the skip connections do: they add (residual), concatenate (dense), both (mixed) or are not there."""
        if self.blocks:
            return "mixed" if self.dense else "residual"
        return "dense" if self.dense else "chain"

    @property
    def graph(self) -> fx.Graph:
        """The operations in execution order."""
        return self.exported.graph

    @property
    def output(self) -> str:
        """Node of the first floating output: the logits, in most models."""
        floating = (name for name in self.exported.outputs.values() if _is_floating(self.node(name)))
        return next(floating, next(iter(self.exported.outputs.values())))

    @cached_property
    def cards(self) -> tuple[NodeCard, ...]:
        """Every node of the graph in execution order, in words."""
        return tuple(_card(node) for node in self.graph.nodes)

    @cached_property
    def _nodes(self) -> dict[str, fx.Node]:
        return {node.name: node for node in self.graph.nodes}

    def node(self, name: str) -> fx.Node:
        """The node called `name`."""
        if name not in self._nodes:
            raise InvalidInputError(f"The graph has no node {name!r}. {did_you_mean(name, self._nodes)}")
        return self._nodes[name]

    def block(self, name: str) -> ResidualBlock:
        """The block called `name`."""
        named = {block.name: block for block in self.blocks}
        if name not in named:
            raise InvalidInputError(f"The network has no block {name!r}. {did_you_mean(name, named)}")
        return named[name]

    def run(
        self,
        wanted: Iterable[str],
        given: Mapping[str, Any] | None = None,
        inputs: Any = None,
        call: Call = plain_call,
    ) -> dict[str, Any]:
        """The values of the `wanted` nodes, computed from the inputs and from the values `given` to other nodes.

        Nothing of the model changes: running statistics that a forward pass in train mode would update are values of
        nodes here. Gradients flow to parameters and given values as usual.

        Args:
            wanted: Names of nodes.
            given: Values that replace those of these nodes, for everything that depends on them.
            inputs: Other inputs than those the network was made with, of the same shapes and dtypes.
            call: How one operation is carried out; for interpreters that carry more than values.
        """
        arguments = self.inputs if inputs is None else self._checked(Arguments.of(inputs))
        fed = dict(zip(self.exported.inputs, arguments.leaves(), strict=True))
        names = list(wanted)
        replaced = {self.node(name): value for name, value in (given or {}).items()}
        values = interpret([self.node(name) for name in names], replaced, lambda node: self._feed(node, fed), call)
        return {name: values[self.node(name)] for name in names}

    def outputs(self, inputs: Any = None) -> dict[str, torch.Tensor]:
        """The tensors that the model returns, by their names, computed by the graph."""
        values = self.run(self.exported.outputs.values(), inputs=inputs)
        return {name: values[node] for name, node in self.exported.outputs.items()}

    def _feed(self, node: fx.Node, fed: Mapping[str, Any]) -> Any:
        if node.name in fed:
            return fed[node.name]
        if node.name in self.exported.parameters:
            return self.model.get_parameter(self.exported.parameters[node.name])
        if node.name in self.exported.buffers:
            return self.model.get_buffer(self.exported.buffers[node.name])
        return self.exported.constants[node.name]

    def _checked(self, arguments: Arguments) -> Arguments:
        before, now = self.inputs.leaves(), arguments.leaves()
        if [_form(leaf) for leaf in before] != [_form(leaf) for leaf in now]:
            raise InvalidInputError(
                f"The network was taken apart with {self.inputs}; it cannot be run on {arguments}. "
                "Give inputs of the same shapes and dtypes, or take the model apart again."
            )
        return arguments


def _form(leaf: Any) -> Any:
    return (leaf.shape, leaf.dtype) if isinstance(leaf, torch.Tensor) else leaf


def _is_floating(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _card(node: fx.Node) -> NodeCard:
    value, calls = node.meta.get("val"), module_calls(node)
    return NodeCard(
        name=node.name,
        operation=operation(node) if node.op == "call_function" else node.op,
        module=module_of(calls[-1]) if calls else "",
        reads=tuple(source.name for source in node.all_input_nodes),
        shape=known_shape(value) if isinstance(value, torch.Tensor) else None,
    )
