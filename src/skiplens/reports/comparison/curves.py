"""The curves of a reading that can be laid over those of other models."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from skiplens.figures import Figure
from skiplens.figures.bundle import bundle
from skiplens.figures.figure import Mark
from skiplens.readings import HessianSpectrum, JacobianSpectrum, PathSpectrum, Reading, SignalReading, TangentReading
from skiplens.readings.jacobians import FLOOR, weighted_quantiles
from skiplens.reports.comparison.contender import Contender

_LEVELS = torch.linspace(0, 1, 101, dtype=torch.float64)


@dataclass(frozen=True)
class Curve:
    """Places and heights."""

    x: Tensor
    y: Tensor


@dataclass(frozen=True)
class Overlay:
    """A figure with one bundle of curves a model; `curve` gives that of a reading, or None where it has none."""

    name: str
    title: str
    caption: str
    labels: tuple[str, str]
    curve: Callable[[Any], Curve | None]
    y_log: bool = True


def overlays(contenders: Sequence[Contender], kind: type[Reading]) -> tuple[Figure, ...]:
    """The figures of all models for one kind of reading."""
    drawn = (_drawn(overlay, contenders, kind) for overlay in OVERLAYS.get(kind, ()))
    return tuple(figure for figure in drawn if figure is not None)


def _drawn(overlay: Overlay, contenders: Sequence[Contender], kind: type[Reading]) -> Figure | None:
    marks: list[Mark] = []
    for index, contender in enumerate(contenders):
        found = [overlay.curve(reading) for reading in contender.readings(kind)]
        curves = [curve for curve in found if curve is not None]
        curves = [curve for curve in curves if len(curve.x) == len(curves[0].x)]
        if curves:
            heights = torch.stack([curve.y.double() for curve in curves])
            marks += bundle(curves[0].x, heights, contender.name, index, overlay.y_log)
    if not marks:
        return None
    draws = "Lines are means over draws of the weights, shaded areas reach from the lowest to the highest draw."
    x_label, y_label = overlay.labels
    return Figure(
        overlay.name, overlay.title, f"{overlay.caption} {draws}", x_label, y_label, tuple(marks), y_log=overlay.y_log
    )


def _signal(reading: SignalReading) -> Curve | None:
    return _relative(reading.signal) if reading.depth else None


def _gradient(reading: SignalReading) -> Curve | None:
    return _relative(reading.gradient.flip(0)) if reading.depth else None


def _relative(values: Tensor) -> Curve:
    sizes = values.double().mean(1)
    return Curve(torch.arange(len(sizes)), sizes / sizes[0])


def _path_lengths(reading: PathSpectrum) -> Curve | None:
    return Curve(torch.arange(len(reading.energy)), reading.distribution) if reading.blocks else None


def _steepness(reading: HessianSpectrum) -> Curve:
    sizes, order = reading.nodes.double().abs().sort(descending=True)
    return Curve(100 * _LEVELS, weighted_quantiles(sizes, reading.weights[order], _LEVELS))


def _network_values(reading: JacobianSpectrum) -> Curve | None:
    if "network" not in reading.singular_values:
        return None
    return Curve(100 * _LEVELS, reading.quantiles("network", _LEVELS).clamp_min(FLOOR))


def _block_values(reading: JacobianSpectrum) -> Curve | None:
    if len(reading.blocks) < 2:
        return None
    means = [10 ** reading.statistics(name).mean_log10 for name in reading.blocks]
    return Curve(torch.arange(1, len(means) + 1), torch.tensor(means, dtype=torch.float64))


def _kernel_values(reading: TangentReading) -> Curve:
    values = reading.eigenvalues
    return Curve(torch.arange(1, len(values) + 1), values / values[0])


OVERLAYS: dict[type[Reading], tuple[Overlay, ...]] = {
    SignalReading: (
        Overlay(
            "signal_by_depth",
            "Signal by depth",
            "Size of the signal relative to the input of the first block.",
            ("outermost blocks passed", "relative size"),
            _signal,
        ),
        Overlay(
            "gradient_by_depth",
            "Gradient by depth",
            "Size of the gradient on its way back, relative to the last join.",
            ("outermost blocks passed on the way back", "relative size"),
            _gradient,
        ),
    ),
    PathSpectrum: (
        Overlay(
            "path_lengths",
            "Path spectrum",
            "Share of energy of all paths through exactly r branches.",
            ("branches on the path", "share of the energy"),
            _path_lengths,
            y_log=False,
        ),
    ),
    HessianSpectrum: (
        Overlay(
            "steepness",
            "Steepness of the loss",
            "Eigenvalues of the Hessian by size: so many percent of the directions curve less than this.",
            ("share of the directions (%)", "|eigenvalue|"),
            _steepness,
        ),
    ),
    JacobianSpectrum: (
        Overlay(
            "blocks",
            "Singular values of each block",
            "Geometric mean of the singular values of each block; at 1 directions pass as they are.",
            ("residual block, in order of execution", "singular value"),
            _block_values,
        ),
        Overlay(
            "network",
            "Singular values from input to output",
            "So many percent of the directions are stretched by less than this.",
            ("share of the directions (%)", "singular value"),
            _network_values,
        ),
    ),
    TangentReading: (
        Overlay(
            "kernel_eigenvalues",
            "Eigenvalues of the tangent kernel",
            "Relative to the largest; a steep fall means that some directions are learned very much more slowly.",
            ("rank", "relative eigenvalue"),
            _kernel_values,
        ),
    ),
}
"""By the kind of reading."""
