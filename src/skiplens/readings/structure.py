"""What a network is made of: its residual blocks and its size."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from skiplens.core.axes import Tensor
from skiplens.readings.reading import Reading


@dataclass(frozen=True, kw_only=True, eq=False)
class StructureReading(Reading, kind="structure"):
    """The residual structure of a network and a summary of its size.

    Entry i of each per-block field speaks of block i, in the order of execution.
    """

    model: str
    structure: str
    parameters: int
    trainable_parameters: int
    buffers: int
    dtype: str
    training: bool
    input_shapes: tuple[str, ...]
    output_shape: str
    operations: int
    block_names: tuple[str, ...]
    joins: tuple[str, ...]
    shortcuts: tuple[str, ...]
    branch_depths: Tensor
    branch_parameters: Tensor
    shortcut_parameters: Tensor
    parents: tuple[int | None, ...]
    dense_joins: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def rows(self) -> tuple[Mapping[str, Any], ...]:
        """One row a block, in words."""
        return tuple(
            {
                "block": name,
                "join": join,
                "shortcut": shortcut,
                "branch depth": int(depth),
                "branch parameters": int(branch),
                "shortcut parameters": int(projection),
            }
            for name, join, shortcut, depth, branch, projection in zip(
                self.block_names,
                self.joins,
                self.shortcuts,
                self.branch_depths,
                self.branch_parameters,
                self.shortcut_parameters,
                strict=True,
            )
        )
