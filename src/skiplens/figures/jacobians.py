"""Figures of the Jacobian spectrum."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from skiplens.figures.figure import Bars, Figure, Line, Points, Reference, Values, in_order, numbers
from skiplens.readings import JacobianSpectrum
from skiplens.readings.jacobians import FLOOR, weighted_quantiles

_FEWEST_BINS, _MOST_BINS = 8, 24
_CURVE_POINTS = 400


def singular_values_by_block(reading: JacobianSpectrum) -> Figure | None:
    """Median, 10 % and 90 % quantile of each block's singular values, with and without its shortcut."""
    blocks = reading.blocks
    if not blocks:
        return None
    levels = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
    whole = _quantiles(reading.singular_values, reading.weights, blocks, levels)
    marks = list(_spread(whole, "with its shortcut"))
    if reading.without_shortcut:
        alone = _quantiles(reading.without_shortcut, reading.without_shortcut_weights, blocks, levels)
        marks += _spread(alone, "branch alone")
    return Figure(
        name="singular_values_by_block",
        title="Singular values of each block",
        caption="Lines: half of the directions through a block grow by less than this factor. Dots: a tenth of them "
        "grow by less than the lower, a tenth by more than the upper one. At 1 a direction passes as it is; what lies "
        "far below is lost to the gradient.",
        x_label="residual block, in order of execution",
        y_label="singular value",
        marks=(*marks, Reference(1.0)),
        y_log=True,
        block_places=in_order(blocks, start=1),
    )


def spectrum_of_one_block(reading: JacobianSpectrum) -> Figure | None:
    """All singular values of the block whose shortcut matters most, sorted, with and without it."""
    if not reading.without_shortcut:
        return None
    gains = {name: _gain(reading, name) for name in reading.without_shortcut}
    name = max(gains, key=lambda block: gains[block])
    shares = torch.linspace(0, 1, _CURVE_POINTS, dtype=torch.float64)
    curves = (
        Line(_percent(shares), _floored(reading.quantiles(name, shares)), "with its shortcut"),
        Line(
            _percent(shares),
            _floored(
                weighted_quantiles(reading.without_shortcut[name], reading.without_shortcut_weights[name], shares)
            ),
            "branch alone",
            dashed=True,
        ),
    )
    return Figure(
        name="spectrum_of_one_block",
        title=f"What the shortcut does to {name}",
        caption=f"The singular values of the block whose shortcut matters most, sorted. Read: so many percent of the "
        f"directions are stretched by less than this. Values below {FLOOR:.0e} are drawn there.",
        x_label="share of the directions (%)",
        y_label="singular value",
        marks=(*curves, Reference(1.0)),
        y_log=True,
    )


def network_histogram(reading: JacobianSpectrum) -> Figure | None:
    """How the singular values of the whole network are distributed."""
    if "network" not in reading.singular_values:
        return None
    largest = float(reading.singular_values["network"].max())
    numbers_seen = reading.statistics("network")
    bins = max(_FEWEST_BINS, min(_MOST_BINS, math.isqrt(4 * numbers_seen.count)))
    edges = torch.linspace(0, largest or 1.0, bins + 1, dtype=torch.float64)
    centres = (edges[:-1] + edges[1:]) / 2
    return Figure(
        name="network_histogram",
        title="Singular values from input to output",
        caption=f"Share of the {numbers_seen.count} singular values of the whole network in each bin, from "
        f"{numbers_seen.smallest:.3g} to {numbers_seen.largest:.3g}: how much a change of the input changes the "
        "output, by direction.",
        x_label="singular value",
        y_label="share",
        marks=(Bars(tuple(f"{centre:.2g}" for centre in centres), numbers(reading.histogram("network", edges))),),
    )


def _quantiles(
    values: Mapping[str, Tensor], weights: Mapping[str, Tensor], blocks: tuple[str, ...], levels: Tensor
) -> Tensor:
    found = [weighted_quantiles(values[name], weights[name], levels) for name in blocks]
    return torch.stack(found).clamp_min(FLOOR)


def _spread(quantiles: Tensor, name: str) -> tuple[Line | Points, Points]:
    """The medians as a line (a point for a single block), the outer quantiles as points."""
    place = numbers(range(1, len(quantiles) + 1))
    low, median, high = (numbers(column) for column in quantiles.T)
    middle = Line(place, median, f"median {name}") if len(place) > 1 else Points(place, median, f"median {name}")
    return middle, Points((*place, *place), (*low, *high), f"10 % and 90 % {name}")


def _gain(reading: JacobianSpectrum, name: str) -> float:
    return reading.statistics(name).mean_log10 - reading.statistics(name, without_shortcut=True).mean_log10


def _floored(values: Tensor) -> Values:
    return numbers(values.clamp_min(FLOOR))


def _percent(shares: Tensor) -> Values:
    return numbers(100 * shares)
