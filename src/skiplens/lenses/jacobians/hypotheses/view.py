"""A model's graph as the descriptions need it: who reads whom, how many features, which module."""

import math
from functools import cached_property
from typing import Any

import torch
from torch import fx, nn

from skiplens.core.errors import InvalidInputError
from skiplens.residual.export import module_calls, module_of
from skiplens.residual.flow import DataFlow, members
from skiplens.residual.network import ResidualNetwork
from skiplens.residual.operations import operation
from skiplens.theory.hypotheses import Unrecognised


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
