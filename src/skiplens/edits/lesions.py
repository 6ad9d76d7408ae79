"""Lesions: what a network computes when blocks are deleted, exchanged or replaced."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch

from skiplens.base.errors import InvalidInputError
from skiplens.graph.blocks import ResidualBlock
from skiplens.graph.network import ResidualNetwork, part_function

Replacement = Callable[[torch.Tensor], torch.Tensor]
"""From a block's input to what shall stand at its join."""


def output_with(network: ResidualNetwork, replacements: Mapping[str, Replacement]) -> torch.Tensor:
    """The network's output with some blocks, by name, replaced by functions; the model is not changed.

    Everything after a replaced block sees what its replacement made. Replacing a block inside another one that is
    replaced too has no effect.
    """
    given: dict[str, torch.Tensor] = {}
    for block in sorted((network.block(name) for name in replacements), key=lambda block: block.index):
        value = network.run([block.input], given=given)[block.input]
        made = replacements[block.name](value)
        if tuple(made.shape) != block.output_shape:
            raise InvalidInputError(
                f"The replacement of block {block.name!r} made shape {tuple(made.shape)}; "
                f"its join has shape {block.output_shape}."
            )
        given[block.join] = made
    return network.run([network.output], given=given)[network.output]


def without_blocks(network: ResidualNetwork, names: Iterable[str]) -> torch.Tensor:
    """The network's output without the branches of some blocks: their shortcuts alone."""
    return output_with(network, {name: part_function(network, network.block(name), "shortcut") for name in names})


def reordered(network: ResidualNetwork, order: Sequence[str]) -> torch.Tensor:
    """The network's output with some blocks, all of one shape, run in the order given, in the places they had.

    The first runs where the earliest of them ran, and so on.
    """
    blocks = [network.block(name) for name in order]
    _require_exchangeable(blocks)
    places = sorted(blocks, key=lambda block: block.index)
    moved = {place.name: part_function(network, block) for place, block in zip(places, blocks, strict=True)}
    return output_with(network, moved)


def exchangeable(network: ResidualNetwork) -> list[list[str]]:
    """Groups of at least two blocks that can be exchanged with each other: outermost, and of one shape throughout."""
    groups: dict[tuple[int, ...], list[str]] = {}
    for block in network.blocks:
        if block.parent is None and block.input_shape == block.output_shape:
            groups.setdefault(block.input_shape, []).append(block.name)
    return [names for names in groups.values() if len(names) > 1]


def _require_exchangeable(blocks: Sequence[ResidualBlock]) -> None:
    names = [block.name for block in blocks]
    if len(set(names)) < len(names):
        raise InvalidInputError(f"A block is named twice in the order {', '.join(names)}; name each once.")
    shapes = {shape for block in blocks for shape in (block.input_shape, block.output_shape)}
    if len(shapes) > 1:
        raise InvalidInputError(
            f"Blocks can be exchanged where inputs and outputs have one shape; these have "
            f"{' and '.join(map(str, sorted(shapes)))}. See skiplens.edits.lesions.exchangeable."
        )
    nested = [block.name for block in blocks if block.parent is not None]
    if nested:
        raise InvalidInputError(f"The block {nested[0]!r} lies inside another one, so it cannot be exchanged.")
