"""A model taken apart: its graph, its residual blocks, its dense joins, and the means to run any part of it."""

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import torch
from torch import fx, nn

from skiplens.base.arguments import Arguments
from skiplens.base.errors import InvalidInputError, pick
from skiplens.graph.blocks import DenseJoin, ResidualBlock
from skiplens.graph.export import ExportedGraph, module_calls, module_of
from skiplens.graph.flow import known_shape
from skiplens.graph.operations import REARRANGING, hard_sigmoid, operation, step_by_step

NetworkKind = Literal["residual", "dense", "mixed", "chain"]
VIEWS = (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default)
Part = Literal["block", "shortcut", "branch"]
EMBEDDINGS = {"aten.embedding", "aten.embedding_bag"}


@dataclass(frozen=True)
class NodeCard:
    """One operation of the graph in words."""

    name: str
    operation: str  # what it computes, such as ``aten.conv2d``; ``placeholder`` for what comes from outside
    module: str  # the module that ran it; '' is the model itself
    reads: tuple[str, ...]  # names of the nodes whose values it takes
    shape: tuple[int, ...] | None  # -1 where it depends on the data, None if its value is no tensor


Call = Callable[[fx.Node, tuple[Any, ...], dict[str, Any]], Any]
"""How one operation is carried out: `call(node, arguments, keywords)` returns the value of `node`."""


def plain_call(node: fx.Node, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """The value of an operation, as torch computes it; a view is copied where it does not fit the memory order.

    Attention leaves its result in an order that depends on the kernel that ran, which need not be the exported one.
    """
    if node.target in VIEWS:
        return arguments[0].reshape(arguments[1])
    assert callable(node.target), f"{node.op} {node.name} is not an operation"
    with step_by_step() if operation(node) == "aten.lstm" else nullcontext():
        return (hard_sigmoid if operation(node) == "aten.hardsigmoid" else node.target)(*arguments, **keywords)


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
        """Node of the output that `main_output` takes: the logits, or the first floating one that has an axis."""
        floating = {key: name for key, name in self.exported.outputs.items() if is_floating(self.node(name))}
        with_axes = (name for name in floating.values() if self.node(name).meta["val"].ndim)
        first = next(iter(floating.values()), next(iter(self.exported.outputs.values())))
        return floating.get("logits", next(with_axes, first))

    @cached_property
    def cards(self) -> tuple[NodeCard, ...]:
        """Every node of the graph in execution order, in words."""
        return tuple(map(_card, self.graph.nodes))

    @cached_property
    def _nodes(self) -> dict[str, fx.Node]:
        return {node.name: node for node in self.graph.nodes}

    def node(self, name: str) -> fx.Node:
        """The node called `name`."""
        return pick(self._nodes, name, f"The graph has no node {name!r}.")

    def block(self, name: str) -> ResidualBlock:
        """The block called `name`."""
        return pick({block.name: block for block in self.blocks}, name, f"The network has no block {name!r}.")

    def run(
        self, wanted: Iterable[str], given: Mapping[str, Any] | None = None, inputs: Any = None, call: Call = plain_call
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


def _card(node: fx.Node) -> NodeCard:
    value, calls = node.meta.get("val"), module_calls(node)
    kind = operation(node) if node.op == "call_function" else node.op
    module = module_of(calls[-1]) if calls else ""
    shape = known_shape(value) if isinstance(value, torch.Tensor) else None
    return NodeCard(node.name, kind, module, tuple(source.name for source in node.all_input_nodes), shape)


def _form(leaf: Any) -> Any:
    return (leaf.shape, leaf.dtype) if isinstance(leaf, torch.Tensor) else leaf


def plan(wanted: Iterable[fx.Node], known: Iterable[fx.Node]) -> list[fx.Node]:
    """The operations needed to compute `wanted` when `known` are given, in execution order."""
    known, needed, pending = set(known), set[fx.Node](), list(wanted)
    while pending:
        node = pending.pop()
        if node not in needed and node not in known:
            needed.add(node)
            pending.extend(node.all_input_nodes)
    return sorted(needed)  # nodes of one graph are ordered by their place in it


def interpret(
    wanted: Iterable[fx.Node], given: Mapping[fx.Node, Any], feed: Callable[[fx.Node], Any], call: Call = plain_call
) -> dict[fx.Node, Any]:
    """The values of `wanted` from those of `given`; a value is let go as soon as nothing needs it any more.

    What lies only above given nodes is not computed; `feed` gives the value of a placeholder that is not given.
    """
    wanted = list(wanted)
    steps = plan(wanted, given)
    last_reader = {source: node for node in steps for source in node.all_input_nodes}
    values, kept = dict(given), set(wanted)
    for node in steps:
        if node.op == "placeholder":
            values[node] = feed(node)
        else:
            arguments, keywords = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
            values[node] = call(node, arguments, keywords)
        for source in node.all_input_nodes:
            if last_reader[source] is node and source not in kept:
                values.pop(source, None)
    return {node: values[node] for node in wanted}


def leading_to_output(network: ResidualNetwork) -> ResidualNetwork:
    """The network with those blocks alone that its output is computed from; all of them where it is from none."""
    above = {node.name for node in plan([network.node(network.output)], ())}
    kept = [block for block in network.blocks if block.join in above]
    if len(kept) in (0, len(network.blocks)):
        return network
    places = {block.index: place for place, block in enumerate(kept)}
    blocks = [replace(b, index=places[b.index], parent=places.get(-1 if b.parent is None else b.parent)) for b in kept]
    return replace(network, blocks=blocks)


def part_function(
    network: ResidualNetwork, block: ResidualBlock, part: Part = "block", call: Call = plain_call
) -> Callable[[torch.Tensor], torch.Tensor]:
    """A function from the block's input to what `part` of the block contributes to its join.

    Block = shortcut + branch, up to rounding (the z of ``x + f(x) + z + g(x)``, which comes from neither, is in both).
    What the block takes from elsewhere (masks, states of an encoder) is computed once, now, from the network's inputs.
    `call` carries out one operation, as in `ResidualNetwork.run`.
    """
    return span_function(network, block.input, block.join, _call_for(block, part, call))


def span_function(
    network: ResidualNetwork, start: str, end: str, call: Call = plain_call
) -> Callable[[torch.Tensor], torch.Tensor]:
    """A function from the value of node `start` to that of node `end`, all else as the network's inputs make it."""
    surroundings = network.run(_side_inputs(network, start, end))

    def function(value: torch.Tensor) -> torch.Tensor:
        return network.run([end], given={**surroundings, start: value}, call=call)[end]

    return function


def _side_inputs(network: ResidualNetwork, first: str, last: str) -> list[str]:
    """What the operations between the two nodes read that does not depend on the first."""
    start = network.node(first)
    steps = plan([network.node(last)], [start])
    moving = {start}
    for node in steps:
        if not moving.isdisjoint(node.all_input_nodes):
            moving.add(node)
    read = {source for node in steps if node in moving for source in node.all_input_nodes}
    return [node.name for node in sorted(read - moving) if node.op != "placeholder"]


def _call_for(block: ResidualBlock, part: Part, plain: Call) -> Call:
    """Operations as they are, but with a zero where the other part would come in."""
    if part == "block":
        return plain
    first = block.additions[0]  # the shortcut comes in at the first addition, each branch at its own
    silent: dict[str, tuple[int, ...]] = {first.node: (first.shortcut_argument,)}
    if part == "shortcut":
        silent = {addition.node: addition.branch_arguments[:1] for addition in block.additions}

    def call(node: fx.Node, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        muted = silent.get(node.name, ())
        changed = (
            torch.zeros_like(argument) if position in muted else argument for position, argument in enumerate(arguments)
        )
        return plain(node, tuple(changed), keywords)

    return call


def sources_of(network: ResidualNetwork, output: fx.Node) -> tuple[fx.Node, ...]:
    """The floating inputs that the output depends on and the embeddings of its integer inputs, in execution order.

    Masks are left out: floating inputs of zeros and ones, beside others, that are only multiplied into the signal.
    """
    above = set(plan([output], ()))
    inputs = set(network.exported.inputs)
    from_inputs = set[fx.Node]()
    found: list[fx.Node] = []
    for node in network.graph.nodes:
        if node not in above:
            continue
        is_input = node.op == "placeholder" and node.name in inputs
        if is_input or not from_inputs.isdisjoint(node.all_input_nodes):
            from_inputs.add(node)
            if is_floating(node) and (is_input or operation(node) in EMBEDDINGS):
                found.append(node)
    if not found:
        raise InvalidInputError(
            "No floating number flows from the inputs to the output: the inputs are integers and no embedding reads "
            "them, or all are complex. Wrap the model so that it takes floating inputs (torch.view_as_complex in it)."
        )
    return tuple([node for node in found if not (len(found) > 1 and _is_mask(network, node))] or found)


def _is_mask(network: ResidualNetwork, source: fx.Node) -> bool:
    """Whether an input holds zeros and ones, meets no weights alone, and is neither added nor put beside the signal."""
    value = dict(zip(network.exported.inputs, network.inputs.leaves(), strict=True)).get(source.name)
    if not isinstance(value, torch.Tensor) or not bool(((value == 0) | (value == 1)).all()):
        return False
    placed, alone = {source}, {source}
    weights = {n for n in network.graph.nodes if n.name in network.exported.parameters}
    for node in network.graph.nodes:
        read = set(node.all_input_nodes)
        if read & alone and (read & weights or (read & placed and operation(node) in ("aten.add", "aten.cat"))):
            return False
        if read and read <= alone:
            alone.add(node)
            placed |= {node} if read <= placed and operation(node) in REARRANGING else set()
        elif read and read <= weights:
            weights.add(node)
    return True


def node_bytes(node: fx.Node) -> int:
    """Bytes of a node's value, or of all tensors in it."""
    value = node.meta.get("val")
    tensors = value if isinstance(value, list | tuple) else (value,)
    found = (tensor for tensor in tensors if isinstance(tensor, torch.Tensor))
    # a size that depends on the data is not known before the model runs
    return sum(math.prod(map(abs, known_shape(tensor))) * tensor.element_size() for tensor in found)


def is_floating(node: fx.Node, or_complex: bool = False) -> bool:
    """Whether a node's value is a real (or complex) tensor, or a tuple with one."""
    value = node.meta.get("val")
    values = value if isinstance(value, list | tuple) else (value,)
    tensors = [entry for entry in values if isinstance(entry, torch.Tensor)]
    return any(entry.is_floating_point() or (or_complex and entry.is_complex()) for entry in tensors)
