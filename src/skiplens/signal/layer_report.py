"""Layer by layer on the page: a figure, the section, and what models are compared by."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from skiplens.base.words import in_words, percent
from skiplens.plots.figure import Band, Figure, Line, bundle, colour, numbers
from skiplens.plots.section import KeyNumber, Quantity, ReadingView, Scale, Section
from skiplens.readings.finding import Finding
from skiplens.signal.findings import LEAST_BLOCKS, growth_scale
from skiplens.signal.layer_findings import DIGITS, LEAST_LAYERS, OWN_SPREAD, RULES, alike, growth_by_layer
from skiplens.signal.layers import LayersLens, LayerStates

MOST_ROWS, MOST_PLACES = 200, 120


def layer_sizes(states: LayerStates) -> Figure | None:
    """Signal, gradient and difference between samples at the weights, in the order of their calls."""
    places = states.of_kind("weights")
    if len(places) < 2:
        return None
    fields = {"signal": states.outputs, "gradient": states.gradients, "1 − cosine of two samples": states.spreads}
    positive = {name: values[places].where(values[places] > 0, math.nan) for name, values in fields.items()}
    wide = 1 if len(places) <= MOST_PLACES else 2 * math.ceil(len(places) / 2 / MOST_PLACES)  # branches have two
    marks = [mark for name, values in positive.items() for mark in _along(values, name, wide)]
    caption = (
        "Root mean square of what the weights give, norm of the gradient of the loss by it, and how much their inputs "
        "differ between samples. Straight lines that rise or fall grow or fade exponentially."
    )
    if wide > 1:
        caption += f" Each point is the mean of {wide} calls in a row, and the area their range."
    words = ("layer_sizes", "Signal and gradient by layer", caption, "weights, in the order of their calls", "size")
    return Figure(*words, tuple(marks), y_log=True)


def _along(values: Tensor, name: str, wide: int) -> tuple[Line | Band, ...]:
    """A curve in the order of the calls; mean and range of so many in a row where these are more than one."""
    shade = colour(0, name)
    if wide == 1:
        return (Line(numbers(range(len(values))), numbers(values), name, colour=shade),)
    starts = [*range(0, len(values) - wide, wide), len(values) - wide]
    rows = torch.stack([values[start : start + wide] for start in starts], 1)
    middles = torch.tensor(starts) + (wide - 1) / 2
    return tuple(replace(mark, colour=shade) for mark in bundle(middles, rows, name, 0, logarithmic=True))


def layers_section(states: LayerStates) -> Section:
    """How each layer fares."""
    places = states.of_kind("weights")
    spread = _last_spread(states) if places else math.nan
    rows, known = _rows(states), not math.isnan(spread)  # one sample differs from no other
    differ = f" and the last sees samples that differ by {in_words(spread)} (1 − cosine)" * known
    reached = [place for place in places if not states.gradients[place].isnan()]
    first = f"Of {len(places)} calls of weights none gets a gradient"
    if reached:
        which = "the first" if reached[0] == places[0] else f"the first that one reaches, {states.names[reached[0]]},"
        size = in_words(float(states.gradients[reached[0]]))
        first = f"Of {len(places)} calls of weights {which} gets a gradient of norm {size}"
    facts = (
        ("samples", str(states.samples)),
        ("loss of these samples", in_words(states.loss)),
        ("1 − cosine of two inputs", in_words(states.input_spread)),
        ("parameters whose gradient is zero", f"{len(states.zero_gradients)} of {states.trainable}"),
        ("modules without a gradient", ", ".join(states.unreached) or "none"),
    )
    notes = (f"The table shows the first {MOST_ROWS} of {len(rows)} calls.",) if len(rows) > MOST_ROWS else ()
    told: dict[str, Any] = {"facts": facts, "rows": rows[:MOST_ROWS], "notes": notes}
    return Section.of(states, "Layers", f"{first}{differ}.", FIGURES, **told)


def _last_spread(states: LayerStates) -> float:
    return float(states.spreads[(states.of_kind("weights") or [-1])[-1]]) if states.names else math.nan


def _rows(states: LayerStates) -> tuple[Mapping[str, Any], ...]:
    columns = {
        "input": states.inputs,
        "output": states.outputs,
        "gradient": states.gradients,
        "shut": states.shut,
        "1 − cosine": states.spreads,
        "parameters": states.parameter_norms,
        "their gradient": states.parameter_gradients,
    }
    words = {name: ["–" if math.isnan(v) else in_words(v) for v in values.tolist()] for name, values in columns.items()}
    table = {"layer": states.names, "type": states.types, **words}
    rows = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
    return tuple(row for row, kind in zip(rows, states.kinds, strict=True) if kind != "other")


def layers_scale(states: LayerStates) -> Scale | None:
    """Without blocks, whichever of signal and gradient changes more; else how far samples stay apart."""
    if states.joins < LEAST_BLOCKS and len(growth_by_layer(states, "signal")[1]) >= LEAST_LAYERS:
        return max((_growth_scale(states, what) for what in ("signal", "gradient")), key=lambda scale: scale.place)
    last, before, threshold = alike(states)
    if not last > 0 or not states.input_spread > 0:
        return None
    why = (
        "At 100 % the last layer sees samples as far apart as the inputs are; where it cannot tell them apart nothing "
        "can be learned from it."
    )
    least = min(threshold / states.input_spread, OWN_SPREAD)
    if last < least * states.input_spread and before >= 2 * threshold:  # told apart until late, which no rule minds
        return None
    label = "of the difference between samples reaches the last layer"
    return Scale(label, last / states.input_spread, 1, least, why, percent)


def _growth_scale(states: LayerStates, what: str) -> Scale:
    growth, chain = growth_by_layer(states, what)
    why = (
        "At ×1 every layer passes on what it gets. The threshold is where the power of what arrives leaves the digits "
        "of float32. The mark stands at the end of a 95 % confidence interval nearest to no change."
    )
    return growth_scale(f"the {what}", growth, (len(chain), "layers"), DIGITS / 2 if growth.surely > 0 else DIGITS, why)


def layer_numbers(states: LayerStates) -> tuple[KeyNumber, ...]:
    """What models are compared by, where it has a logarithm."""
    spread = _last_spread(states)
    return (KeyNumber("1 − cosine of the last features", spread, logarithmic=True),) if spread > 0 else ()


def _total(what: str) -> Quantity:
    def measure(finding: Finding, states: LayerStates) -> float:
        growth, chain = growth_by_layer(states, what)
        return growth.over(len(chain))

    return Quantity(f"growth of the {what} over all layers", measure)


FIGURES = (layer_sizes,)
QUANTITIES = {f"layer_{what}": _total(what) for what in ("signal", "gradient")}
VIEW = ReadingView(
    LayerStates, LayersLens, layers_section, FIGURES, RULES, layer_numbers, quantities=QUANTITIES, scale=layers_scale
)
