"""A block's shortcut, its branch or the whole block as functions of the block's input."""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import fx

from skiplens.residual.block import Addition, ResidualBlock
from skiplens.residual.interpreter import Call, plain_call, plan
from skiplens.residual.network import ResidualNetwork

Part = Literal["block", "shortcut", "branch"]


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
    first = block.additions[0].node  # the shortcut comes in at the first addition, each branch at its own
    silent = {addition.node: _silenced(addition, part, addition.node == first) for addition in block.additions}

    def call(node: fx.Node, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        muted = silent.get(node.name, ())
        changed = (
            torch.zeros_like(argument) if position in muted else argument for position, argument in enumerate(arguments)
        )
        return plain(node, tuple(changed), keywords)

    return call


def _silenced(addition: Addition, part: Part, is_first: bool) -> tuple[int, ...]:
    if part == "shortcut":
        return addition.branch_arguments[:1]
    return (addition.shortcut_argument,) if is_first else ()
