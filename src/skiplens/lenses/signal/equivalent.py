"""The random network that theory knows, of the depth, width and branch size that were measured."""

import math

from skiplens.readings import SignalReading
from skiplens.theory.finite_width.networks import ResNet


def equivalent_network(reading: SignalReading) -> ResNet | None:
    """The random network that theory knows, with this depth, width and branch size; None where branches normalise."""
    outer = [index for index, outermost in enumerate(reading.outermost) if outermost]
    if not outer or reading.broken or any(reading.normalised[index] for index in outer):
        return None
    matrices = int(reading.branch_depths[outer].double().median())
    width, gain = int(reading.widths[outer].min()), float(reading.branch_ratios[outer].square().median())
    if matrices < 1 or width < 1 or not 0 < gain < math.inf:
        return None
    return ResNet(reading.depth, width, matrices, gain ** (1 / matrices))
