"""A model as a list of layer descriptions: the main path in order, with residual blocks as one layer each."""

from collections.abc import Iterable, Iterator
from itertools import groupby

import torch
from torch import fx, nn

from skiplens.lenses.jacobians.hypotheses.affine_parts import affine_part
from skiplens.lenses.jacobians.hypotheses.norm_parts import normalisation
from skiplens.lenses.jacobians.hypotheses.other_parts import other_part
from skiplens.lenses.jacobians.hypotheses.skips import describe_skip
from skiplens.lenses.jacobians.hypotheses.view import GraphView
from skiplens.residual.block import ResidualBlock
from skiplens.residual.operations import MATRIX_PRODUCTS, REARRANGING
from skiplens.residual.zoo.macdonald2023_layers import BatchNormalise
from skiplens.theory.hypotheses import Description, ParallelBranches, ResidualLayer, Unrecognised
from skiplens.theory.parameterised_systems import NONLINEARITIES, Elementwise

_WHOLE_MODULES = (BatchNormalise, nn.Softsign)
"""Modules of several operations that are one layer."""


def describe_model(view: GraphView, generator: torch.Generator) -> tuple[Description, ...]:
    """The layers of a model from its input to its output; what is not recognised is named."""
    return _Walk(view, generator).chain(view.start, view.network.node(view.network.output), None)


class _Walk:
    def __init__(self, view: GraphView, generator: torch.Generator) -> None:
        self.view = view
        self.generator = generator

    def chain(self, start: fx.Node, end: fx.Node, parent: int | None) -> tuple[Description, ...]:
        """The descriptions from `start` (exclusive) to `end`; blocks directly below `parent` are one layer each."""
        nodes = self.view.between(start, end)
        blocks = {block.join: block for block in self.view.network.blocks if block.parent == parent}
        blocks = {join: block for join, block in blocks.items() if self.view.network.node(join) in nodes}
        inside = {node for block in blocks.values() for node in self._inside(block)}
        parts: list[Description] = []
        value = start
        for group in self._groups(node for node in nodes if node not in inside):
            block = blocks.get(group[-1].name)
            parts += [self._block(block)] if block and self._begins(block, value) else self._described(group, value)
            value = group[-1]
        return tuple(_merged(parts))

    def _groups(self, nodes: Iterable[fx.Node]) -> Iterator[list[fx.Node]]:
        """Single nodes, and the nodes of a module that is one layer together."""

        def key(node: fx.Node) -> str:
            return self.view.call(node) if isinstance(self.view.module(node), _WHOLE_MODULES) else node.name

        return (list(group) for _, group in groupby(nodes, key))

    def _inside(self, block: ResidualBlock) -> list[fx.Node]:
        start, join = self.view.network.node(block.input), self.view.network.node(block.join)
        return [node for node in self.view.between(start, join) if node is not join]

    def _begins(self, block: ResidualBlock, value: fx.Node) -> bool:
        return self.view.network.node(block.input) is value

    def _described(self, group: list[fx.Node], value: fx.Node) -> list[Description]:
        view, first, last = self.view, group[0], group[-1]
        module = view.module(first)
        if isinstance(module, BatchNormalise):
            return normalisation(view, first, value)
        if isinstance(module, nn.Softsign):
            return [Elementwise(NONLINEARITIES["softsign"], view.features(last), name=view.name(last))]
        if view.sources(last) != [value]:
            return [view.unrecognised(last, value, "several activations meet")]
        kind = view.operation(last)
        if kind in REARRANGING:
            return []
        return [affine_part(view, last, value)] if kind in MATRIX_PRODUCTS else other_part(view, last, value)

    def _block(self, block: ResidualBlock) -> ResidualLayer:
        skip = describe_skip(self.view, block, self.generator)
        return ResidualLayer(block.name, skip, self._branch(block))

    def _branch(self, block: ResidualBlock) -> tuple[Description, ...]:
        """The branch as a chain, or several chains that are added."""
        start, join = self.view.network.node(block.input), self.view.network.node(block.join)
        nodes = [self.view.network.node(addition.node) for addition in block.additions]
        ends = [node.args[addition.branch_arguments[0]] for node, addition in zip(nodes, block.additions, strict=True)]
        plain = all(len(addition.branch_arguments) == 1 for addition in block.additions)
        features = self.view.features(start), self.view.features(join)
        if not plain or any(node.kwargs for node in nodes) or not all(isinstance(end, fx.Node) for end in ends):
            return (Unrecognised(block.name, "a scaled or multiplied branch", *features),)
        chains = tuple(self.chain(start, end, block.index) for end in ends if isinstance(end, fx.Node))
        return chains[0] if len(chains) == 1 else (ParallelBranches(block.name, chains, *features),)


def _merged(parts: Iterable[Description]) -> Iterator[Description]:
    """Neighbours that are not recognised in the same module as one."""
    previous: Unrecognised | None = None
    for part in parts:
        if isinstance(part, Unrecognised) and previous is not None and _place(part) == _place(previous):
            what = previous.what if part.what in previous.what.split(", ") else f"{previous.what}, {part.what}"
            previous = Unrecognised(previous.name, what, previous.inputs, part.outputs)
            continue
        if previous is not None:
            yield previous
        previous = part if isinstance(part, Unrecognised) else None
        if previous is None:
            yield part
    if previous is not None:
        yield previous


def _place(part: Unrecognised) -> str:
    return part.name.rpartition(" in ")[2]
