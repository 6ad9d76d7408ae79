"""Figures of the path spectrum."""

import torch

from skiplens.figures.figure import Bars, Figure, Heat, Line, Points, Reference, in_order, numbers
from skiplens.readings import PathSpectrum

_FLOOR = 1e-12
"""Shares below this are not drawn."""


def energy_by_order(reading: PathSpectrum) -> Figure:
    """The share of energy of paths through r branches, beside the incoherent one and the law that fits."""
    orders = numbers(range(len(reading.energy)))
    bars = [Bars(tuple(str(int(order)) for order in orders), numbers(reading.distribution), "measured")]
    if reading.gradient_energy.numel():
        bars.append(Bars(bars[0].labels, numbers(reading.gradient_distribution), "gradient"))
    lines: list[Line] = []
    if len(reading.law_energy):
        lines.append(Line(orders, numbers(reading.law_energy), reading.law.replace("_", " "), dashed=True))
    if len(reading.incoherent):
        shares = reading.incoherent / reading.incoherent.sum()
        lines.append(Line(orders, numbers(shares), "paths added without their signs"))
    return Figure(
        name="energy_by_order",
        title=f"Path spectrum of the {reading.of}",
        caption=f"Share of energy of all paths through exactly r of the {reading.blocks} branches. Its mean, "
        f"{reading.mean_depth:.2f}, is how deep the network is for these inputs.",
        x_label="branches on the path",
        y_label="share of the energy",
        marks=(*bars, *lines),
    )


def energy_by_order_logarithmic(reading: PathSpectrum) -> Figure | None:
    """The same spectrum with a logarithmic axis, where the tails can be seen."""
    shares = reading.distribution
    seen = shares > _FLOOR
    if int(seen.sum()) < 2:
        return None
    orders = torch.arange(len(shares))
    marks = [Points(numbers(orders[seen]), numbers(shares[seen]), "measured")]
    lines = []
    if len(reading.law_energy):
        drawn = reading.law_energy > _FLOOR
        name = reading.law.replace("_", " ")
        lines.append(Line(numbers(orders[drawn]), numbers(reading.law_energy[drawn]), name, dashed=True))
    return Figure(
        name="energy_by_order_logarithmic",
        title="Tails of the path spectrum",
        caption="The same shares on a logarithmic axis: how fast very short and very long paths fade.",
        x_label="branches on the path",
        y_label="share of the energy",
        marks=(*marks, *lines),
        y_log=True,
    )


def energy_by_block(reading: PathSpectrum) -> Figure | None:
    """What all paths through each block contribute together."""
    if not len(reading.block_energy):
        return None
    shares = reading.block_energy / reading.total_energy
    return Figure(
        name="energy_by_block",
        title="Contribution of each block",
        caption="Energy of the sum of all paths through a block, and its share along the output itself; shares near "
        "zero are blocks that could be deleted.",
        x_label="residual block",
        y_label="relative to the whole",
        marks=(
            Bars(reading.block_names, numbers(shares), "energy"),
            Bars(reading.block_names, numbers(reading.block_shares), "along the output"),
        ),
        block_places=in_order(reading.block_names),
    )


def energy_by_pair(reading: PathSpectrum) -> Figure | None:
    """What all paths through both blocks of a pair contribute together."""
    if not reading.pair_energy.numel():
        return None
    return Figure(
        name="energy_by_pair",
        title="Contribution of each pair of blocks",
        caption="Energy of the sum of all paths through both blocks; dark pairs do not work together.",
        x_label="residual block",
        y_label="residual block",
        marks=(Heat(tuple(numbers(row / reading.total_energy) for row in reading.pair_energy), "energy"),),
        block_places=in_order(reading.block_names),
    )


def depth_by_sample(reading: PathSpectrum) -> Figure | None:
    """The mean depth of each sample."""
    if len(reading.sample_energy) < 2:
        return None
    depths = reading.sample_depths.sort().values
    return Figure(
        name="depth_by_sample",
        title="Mean depth of each sample",
        caption=f"Samples sorted by the number of branches their energy passes on average; they differ by "
        f"{reading.depth_spread:.2f} (standard deviation).",
        x_label="sample, sorted",
        y_label="mean depth (branches)",
        marks=(
            Points(numbers(range(1, len(depths) + 1)), numbers(depths), "samples"),
            Reference(reading.mean_depth, "of all together"),
        ),
    )
