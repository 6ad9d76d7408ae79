"""What the start says without a step: four signs of trouble, and how much of it they are together."""

import math
from collections.abc import Mapping

from torch import nn

from skiplens.graph.batch import Batch
from skiplens.signal.layers import LayerStates
from skiplens.trainability.features import unexplained

SMALLEST = 1e-12
MOST_UNEXPLAINED, MOST_LOST, MOST_UNEVEN = 1.2, 6.0, 8.0  # what is beyond is not worse
UNITS = {"explained": 0.1, "shut": 0.2, "spread kept": -2.0, "signal ratio": 2.0}
"""How much of each is one unit of trouble: about its spread over networks. Of what is kept less is worse."""


def start_features(model: nn.Module, batch: Batch, states: LayerStates, size: int | None = None) -> dict[str, float]:
    """Readings of the start as numbers of moderate size; a forward pass, `size` samples at a time.

    They are the share of the targets that the last features leave unexplained, the share of units that are shut in the
    worst layer, ln of the spread between samples that is left at the last layer with weights, and ln of the largest
    over the smallest signal of such layers.
    """
    found = {
        "explained": unexplained(model, batch, size),
        "shut": float(states.shut.nan_to_num(0).max()) if len(states.shut) else 0.0,
        **_by_layer(states),
    }
    return {**found, "trouble": trouble(found)}


def trouble(found: Mapping[str, float]) -> float:
    """The sum of all signs, each in its unit; one that could not be read says nothing."""
    cut = {
        "explained": min(found["explained"], MOST_UNEXPLAINED) - 1,
        "shut": found["shut"],
        "spread kept": min(max(found["spread kept"], -MOST_LOST), 1.0),
        "signal ratio": min(found["signal ratio"], MOST_UNEVEN),
    }
    return sum(value / UNITS[name] for name, value in cut.items() if not math.isnan(value))


def _by_layer(states: LayerStates) -> dict[str, float]:
    """How things change from the first layer with weights to the last; NaN where there is none."""
    chain = states.of_kind("weights")
    if not chain:
        return {"spread kept": math.nan, "signal ratio": math.nan}
    spreads, outputs = (values[chain].double() for values in (states.spreads, states.outputs))
    return {
        "spread kept": _logarithm(float(spreads[-1]) / max(states.input_spread, SMALLEST)),
        "signal ratio": _logarithm(float(outputs.max() / outputs.min())),
    }


def _logarithm(value: float) -> float:
    """ln, within ±30; what is no number counts as very large."""
    if math.isnan(value):
        return 30.0
    return max(-30.0, min(30.0, math.log(max(value, 1e-300)))) if value < math.inf else 30.0
