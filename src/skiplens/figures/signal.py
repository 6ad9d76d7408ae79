"""Figures of signal and gradient by depth, and of the branches."""

import torch

from skiplens.figures.figure import Bars, Figure, Line, Reference, in_order, numbers
from skiplens.readings import SignalReading


def signal_by_depth(reading: SignalReading) -> Figure | None:
    """Size of the signal and of the gradient at each join, relative to where each of them starts."""
    if not reading.depths:
        return None
    depths = numbers(range(len(reading.depths)))
    marks: list[Line | Reference] = [Reference(1.0)]
    for name, values in (("signal", reading.signal), ("gradient", reading.gradient.flip(0))):
        start = values[0].mean()
        relative = (values / start if start > 0 else values).double()
        relative = relative if name == "signal" else relative.flip(0)
        marks.append(Line(depths, numbers(relative.mean(1)), name))
    return Figure(
        name="signal_by_depth",
        title="Signal and gradient by depth",
        caption="Mean size of the signal relative to the input of the first block, and of the gradient relative to the "
        "last join, where it starts its way back. Straight lines that rise or fall grow or fade exponentially.",
        x_label="outermost blocks passed",
        y_label="relative size",
        marks=tuple(marks),
        y_log=True,
        block_places=in_order(reading.depths)[1:],
    )


def branch_against_shortcut(reading: SignalReading) -> Figure | None:
    """Size of what each branch adds, relative to its shortcut."""
    if not reading.block_names:
        return None
    scale = (1 / max(1, reading.depth)) ** 0.5
    return Figure(
        name="branch_against_shortcut",
        title="Branch against shortcut",
        caption="Root mean square of what the branch adds at its join, over that of the shortcut. With every branch at "
        "the dashed level, one over the root of the number of blocks, the power of the signal grows by less than e "
        "however deep the network is.",
        x_label="residual block",
        y_label="branch / shortcut",
        marks=(Bars(reading.block_names, numbers(reading.branch_ratios), "measured"), Reference(scale, "1/√L")),
        block_places=in_order(reading.block_names),
    )


def scales_by_block(reading: SignalReading) -> Figure | None:
    """The scale of each branch's last batch norm, where there are any."""
    if bool(torch.isnan(reading.norm_scales).all()):
        return None
    return Figure(
        name="scales_by_block",
        title="Batch-norm scales by block",
        caption="Mean |γ| of the last batch norm of each branch. Only the ratios between blocks matter: multiplying "
        "all of them by one number changes no path.",
        x_label="residual block",
        y_label="mean |γ|",
        marks=(Bars(reading.block_names, numbers(reading.norm_scales)),),
        block_places=in_order(reading.block_names),
    )


def shut_units_by_block(reading: SignalReading) -> Figure | None:
    """Share of dead and of saturated units, where any unit is."""
    groups = (("dead (ReLU)", reading.dead_units), ("saturated (tanh, sigmoid)", reading.saturated_units))
    shown = [(name, shares) for name, shares in groups if bool((shares > 0).any())]
    if not shown:
        return None
    return Figure(
        name="shut_units_by_block",
        title="Units that are shut on all samples",
        caption="Share of the units of a layer of the branch that pass nothing on, or no gradient, on any sample.",
        x_label="residual block",
        y_label="share of units",
        marks=tuple(Bars(reading.block_names, numbers(shares), name) for name, shares in shown),
        block_places=in_order(reading.block_names),
    )
