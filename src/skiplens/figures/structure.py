"""Figures of the residual structure."""

from skiplens.figures.figure import Bars, Figure, in_order, numbers
from skiplens.readings import StructureReading


def parameters_by_block(reading: StructureReading) -> Figure | None:
    """How many parameters each block's branch holds, and its shortcut where it has any."""
    if not reading.block_names:
        return None
    names = reading.block_names
    bars = [Bars(names, numbers(reading.branch_parameters), "branch")]
    if bool((reading.shortcut_parameters > 0).any()):
        bars.append(Bars(names, numbers(reading.shortcut_parameters), "shortcut"))
    return Figure(
        name="parameters_by_block",
        title="Parameters by block",
        caption=f"Where the parameters of the {len(names)} residual blocks are, in the order in which the blocks run.",
        x_label="residual block",
        y_label="parameters",
        marks=tuple(bars),
        block_places=in_order(names),
    )
