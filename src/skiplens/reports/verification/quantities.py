"""The number behind each finding as a function of readings, so that it can be taken where the rule is silent too."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from skiplens.findings import Finding
from skiplens.readings import JacobianSpectrum, SignalReading, StructureReading
from skiplens.readings.growth import Growth


@dataclass(frozen=True)
class Quantity:
    """What is measured, in words, and how: from a finding and the readings that its rule needs."""

    label: str
    measure: Callable[..., float]


def _power(growth: Growth, depth: int) -> float:
    exponent = 2 * depth * growth.rate
    return math.exp(exponent) if exponent < 700 else math.inf


def _signal_power(finding: Finding, reading: SignalReading) -> float:
    return _power(reading.signal_growth, reading.depth)


def _gradient_power(finding: Finding, reading: SignalReading) -> float:
    return _power(reading.gradient_growth, reading.depth)


def _of_blocks(name: str, worst: Callable[[Sequence[float]], float]) -> Callable[..., float]:
    """The worst entry of a per-block field over the blocks that the finding speaks of."""

    def measure(finding: Finding, reading: Any) -> float:
        values = dict(zip(reading.block_names, getattr(reading, name).tolist(), strict=True))
        return float(worst([values[block] for block in finding.where if block in values] or [math.nan]))

    return measure


def _projections(finding: Finding, reading: StructureReading) -> float:
    return float(reading.shortcuts.count("projection"))


def _lost(finding: Finding, jacobians: JacobianSpectrum, structure: StructureReading) -> float:
    return max(jacobians.statistics(name).near_zero for name in finding.where)


QUANTITIES: dict[str, Quantity] = {
    "signal_growth": Quantity("growth of the signal's power over all blocks", _signal_power),
    "gradient_growth": Quantity("growth of the gradient's power over all blocks", _gradient_power),
    "flat_branches": Quantity("zero factors in series", _of_blocks("zero_factors", max)),
    "dead_branches": Quantity("smallest gradient of these branches", _of_blocks("branch_gradients", min)),
    "dead_units": Quantity("largest share of dead units", _of_blocks("dead_units", max)),
    "saturated_units": Quantity("largest share of saturated units", _of_blocks("saturated_units", max)),
    "projection_shortcuts": Quantity("shortcuts that are projections", _projections),
    "lost_directions": Quantity("largest share of lost directions", _lost),
    "dropout_on": Quantity("places with dropout on", lambda finding, reading: float(len(reading.dropout))),
    "not_repeatable": Quantity("difference of two calls", lambda finding, reading: reading.repeat_difference),
    "fresh_statistics": Quantity(
        "batch norms without statistics", lambda finding, reading: float(len(reading.fresh_norms))
    ),
}
"""By the name of the rule."""
