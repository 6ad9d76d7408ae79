"""Figures of a Hessian's spectrum."""

import torch
from torch import Tensor

from skiplens.figures.figure import Band, Bars, Figure, Line, Mark, Points, Reference, in_order, numbers
from skiplens.readings import HessianSpectrum

_MOST_POINTS = 2000
"""More eigenvalues than this are not drawn one by one."""


def eigenvalue_density(reading: HessianSpectrum) -> Figure:
    """The smoothed density with its error band, the extremes, and the eigenvalues where they are known."""
    floor = _floor(reading)
    error = 2 * reading.density_error
    marks = [Line(numbers(reading.grid), numbers(_above(reading.density, floor)), "density")]
    if reading.method == "lanczos":
        low = (reading.density - error).clamp_min(floor)
        band = Band(
            numbers(reading.grid),
            numbers(low),
            numbers((reading.density + error).clamp_min(floor)),
            "± 2 standard errors",
        )
        return _density_figure(reading, (band, *marks, *_ends(reading)))
    values = reading.eigenvalues if len(reading.eigenvalues) <= _MOST_POINTS else reading.eigenvalues[[0, -1]]
    rug = Points(numbers(values), (floor,) * len(values), "eigenvalues")
    return _density_figure(reading, (*marks, rug, *_ends(reading)))


def eigenvalues_by_size(reading: HessianSpectrum) -> Figure | None:
    """How many eigenvalues are steeper than a level, up and down, over all orders of magnitude."""
    up, down = (_tail(sign * reading.nodes, reading.weights, reading.rounding) for sign in (1, -1))
    lines = [
        Line(numbers(sizes), numbers(shares), name)
        for (sizes, shares), name in ((up, "upward, λ > x"), (down, "downward, λ < −x"))
        if len(sizes) > 1
    ]
    if not lines:
        return None
    top = reading.largest_absolute
    return Figure(
        name="eigenvalues_by_size",
        title="How many directions are steeper than x",
        caption="Share of directions in which the loss curves up, or down, more strongly than x. Where both curves lie "
        "together the loss has as many ways down as up at that steepness.",
        x_label="steepness x",
        y_label="share of directions",
        marks=(*lines, Reference(top, "steepest", axis="x")),
        x_log=True,
        y_log=True,
    )


def extremes_by_block(reading: HessianSpectrum) -> Figure | None:
    """The largest and the smallest eigenvalue of each block's parameters alone."""
    blocks = reading.blocks
    if not blocks:
        return None
    names = tuple(blocks)
    return Figure(
        name="extremes_by_block",
        title="Steepest directions of each block",
        caption="Largest and smallest eigenvalue when only the parameters of one residual block move. The block with "
        "the longest bars limits the learning rate; bars below zero are directions that lead down. An eigenvalue lies "
        "within each error bar.",
        x_label="residual block",
        y_label="eigenvalue",
        marks=(
            Bars(names, numbers([block.largest for block in blocks.values()]), "largest", _residuals(reading, -1)),
            Bars(names, numbers([block.smallest for block in blocks.values()]), "smallest", _residuals(reading, 0)),
        ),
        block_places=in_order(names),
    )


def _density_figure(reading: HessianSpectrum, marks: tuple[Mark, ...]) -> Figure:
    return Figure(
        name="eigenvalue_density",
        title=f"Eigenvalues of the {reading.matrix_name}",
        caption="How many directions have which curvature, on a logarithmic axis. Left of zero the loss curves down: "
        "a saddle. A peak at zero with a few far-away eigenvalues is a badly conditioned loss."
        + " Inner bumps are groups of eigenvalues that so few products do not tell apart."
        * (reading.method == "lanczos"),
        x_label="eigenvalue",
        y_label="density",
        marks=marks,
        y_log=True,
    )


def _residuals(reading: HessianSpectrum, place: int) -> tuple[float, ...]:
    """For each block how far an eigenvalue may be from its extreme; nothing where they are exact."""
    found = [block.extreme_residuals for block in reading.blocks.values() if block.method == "lanczos"]
    return numbers([residuals[place] for residuals in found]) if len(found) == len(reading.block_values) else ()


def _ends(reading: HessianSpectrum) -> tuple[Reference, ...]:
    return (Reference(reading.smallest, "smallest", axis="x"), Reference(reading.largest, "largest", axis="x"))


def _floor(reading: HessianSpectrum) -> float:
    """A fifth of the peak that a single eigenvalue makes: what is below it is the tail of the smoothing."""
    return 0.2 / (reading.parameters * reading.smoothing_width * (2 * torch.pi) ** 0.5)


def _above(values: Tensor, floor: float) -> Tensor:
    return torch.where(values >= floor, values, torch.nan)


def _tail(values: Tensor, weights: Tensor, rounding: float) -> tuple[Tensor, Tensor]:
    """The values beyond rounding in ascending order, and how much weight lies at or above each."""
    chosen = values > rounding
    values, order = values[chosen].sort(descending=True)
    return values.flip(0), weights[chosen][order].cumsum(0).flip(0)
