"""Layer by layer on the page: a figure, the section, and what models are compared by."""

import math
from collections.abc import Mapping
from typing import Any

from skiplens.plots.figure import Figure, Line, drawn, numbers
from skiplens.plots.section import KeyNumber, Quantity, ReadingView, Section, number_in_words, provenance_of
from skiplens.readings.finding import Finding
from skiplens.signal.layer_findings import RULES, growth_by_layer
from skiplens.signal.layers import LayersLens, LayerStates

MOST_ROWS = 200


def layer_sizes(states: LayerStates) -> Figure | None:
    """Signal, gradient and difference between samples at the weights, in the order of their calls."""
    places = states.of_kind("weights")
    if len(places) < 2:
        return None
    fields = {
        "signal (root mean square of the output)": states.outputs,
        "gradient (norm by the output)": states.gradients,
        "1 − cosine between the inputs of two samples": states.spreads,
    }
    positive = {name: values[places].where(values[places] > 0, math.nan) for name, values in fields.items()}
    marks = tuple(Line(numbers(range(len(places))), numbers(values), name) for name, values in positive.items())
    caption = (
        "Straight lines that rise or fall grow or fade exponentially; where the last curve nears zero, the network no "
        "longer tells samples apart."
    )
    words = ("layer_sizes", "Signal and gradient by layer", caption, "weights, in the order of their calls", "size")
    return Figure(*words, marks, y_log=True)


FIGURES = (layer_sizes,)


def layers_section(states: LayerStates) -> Section:
    """How each layer fares."""
    cut = len(states.names) - MOST_ROWS
    return Section(
        anchor=states.kind,
        title="Layers",
        sentence=layers_sentence(states),
        facts=(
            ("samples", str(states.samples)),
            ("loss of these samples", number_in_words(states.loss)),
            ("calls of layers", str(len(states.names))),
            ("1 − cosine between two inputs", number_in_words(states.input_spread)),
            ("parameters whose gradient is zero", f"{len(states.zero_gradients)} of {states.trainable}"),
            ("modules without a gradient", ", ".join(states.unreached) or "none"),
        ),
        rows=_rows(states),
        notes=(f"The table shows the first {MOST_ROWS} of {len(states.names)} calls.",) if cut > 0 else (),
        figures=drawn(states, FIGURES),
        provenance=provenance_of(states),
    )


def layers_sentence(states: LayerStates) -> str:
    """What reaches the ends of the network, in one sentence."""
    places = states.of_kind("weights")
    if not places:
        return "There is no layer with weights."
    gradient, spread = float(states.gradients[places[0]]), float(states.spreads[places[-1]])
    return (
        f"Of {len(places)} calls of weights the first gets a gradient of norm {number_in_words(gradient)} and the "
        f"last sees samples that differ by {number_in_words(spread)} (1 − cosine)."
    )


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
    words = {name: ["–" if math.isnan(v) else f"{v:.3g}" for v in values.tolist()] for name, values in columns.items()}
    table = {"layer": states.names, "type": states.types, **words}
    rows = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
    return tuple(row for row, kind in zip(rows, states.kinds, strict=True) if kind != "other")[:MOST_ROWS]


def layer_numbers(states: LayerStates) -> tuple[KeyNumber, ...]:
    """What models are compared by."""
    places = states.of_kind("weights")
    spread = float(states.spreads[places[-1]]) if places else math.nan
    return (KeyNumber("1 − cosine of the last features", spread, logarithmic=True),) if spread > 0 else ()


def _power(what: str) -> Quantity:
    """The growth of power over all layers."""

    def measure(finding: Finding, states: LayerStates) -> float:
        return growth_by_layer(states, what).over(2 * len(finding.where))

    return Quantity(f"growth of the {what}'s power over all layers", measure)


QUANTITIES = {f"layer_{what}": _power(what) for what in ("signal", "gradient")}
VIEW = ReadingView(LayerStates, LayersLens, layers_section, FIGURES, RULES, layer_numbers, quantities=QUANTITIES)
