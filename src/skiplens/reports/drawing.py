"""The residual structure as a drawing: one cell a block, the shortcut straight on, the branch above it.

The template `blocks.html.j2` draws the cells; each is a button, and choosing it picks its block out of the page.
"""

from dataclasses import dataclass

from skiplens.readings import StructureReading


@dataclass(frozen=True)
class BlockCell:
    """What is drawn of one block; `name` is plain text."""

    name: str
    shortcut: str
    branch_depth: int
    nested: bool


def block_cells(reading: StructureReading) -> tuple[BlockCell, ...]:
    """The blocks in the order in which they run."""
    return tuple(
        BlockCell(name, shortcut, int(depth), parent is not None)
        for name, shortcut, depth, parent in zip(
            reading.block_names, reading.shortcuts, reading.branch_depths, reading.parents, strict=True
        )
    )
