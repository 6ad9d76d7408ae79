"""Which shortcuts a network is offered: over its layers, where one is missing in a row of blocks, and average pools."""

from typing import Any

from torch import nn

from skiplens.edits.structure import ACTIVATIONS
from skiplens.improvement.patient import LayerCall, Patient
from skiplens.improvement.plan import Change, Made
from skiplens.readings.finding import Remedy

LEAST_LAYERS = 4  # of equal shape: fewer need no shortcut
Span = tuple[str, LayerCall, str]
"""Both ends of what a shortcut could pass by, and its last layer."""


def shortcuts(patient: Patient) -> Made:
    """Shortcuts over one and two layers; where there are blocks those that are missing, and pools at projections."""
    if patient.blocks:
        found = [*_missing(patient), *_pools(patient)]
        return found or f"it has {len(patient.blocks)} residual blocks, and none is missing in a row of them"
    spans = _spans(patient)
    if len(spans) < LEAST_LAYERS:
        return f"only {len(spans)} of its layers give what they take in shape"
    made, growth = list[Change](), f"{len(patient.weights)} layers in a row without a shortcut"
    for length, over in ((1, "1 layer"), (2, "2 layers")):
        pairs = [(spans[k], spans[k + length - 1]) for k in range(0, len(spans) - length + 1, length)]
        pairs = [pair for pair in pairs if pair[0][1].before == pair[1][1].after]
        if not pairs:
            continue
        chosen: list[list[Any]] = [[first, last.name, *last.place] for (first, *_), (_, last, _) in pairs]
        zeros = [name for _, (*_, end) in pairs for name in _own_parameters(patient, end)]
        words = f"add {len(chosen)} identity shortcuts over {over} each, with branches that start at zero"
        made.append(_added(f"shortcuts_over_{length}", words, growth, chosen, zeros))
        pools = _pooled_spans(patient)
        if length == 1 and pools:
            words = words.replace(", with", f" and {len(pools)} average pools where the shape changes, with")
            made.append(_added("pooled_shortcuts", words, growth, [*chosen, *pools], zeros))
    return made


def _added(name: str, words: str, reason: str, spans: list[list[Any]], zeros: list[str]) -> Change:
    return Change(name, "shortcuts", words, reason, (Remedy("add_shortcuts", {"spans": spans, "zeros": zeros}),))


def _own_parameters(patient: Patient, layer: str) -> list[str]:
    return [f"{layer}.{part}" for part, _ in patient.model.get_submodule(layer).named_parameters(recurse=False)]


def _spans(patient: Patient) -> list[Span]:
    """Spans around single layers that keep the shape: from an activation right before each, if any."""
    calls, once = patient.calls, {call.name for call in patient.weights}
    found: dict[str, tuple[int, LayerCall, LayerCall]] = {}  # where it begins, what the shortcut is around, last layer
    for place, call in enumerate(calls):
        around = patient.around(call) if call.name in once and call is not patient.weights[-1] else None
        if around is not None and around.end in ("", call.name):
            found[around.name] = found[around.name][0] if around.name in found else place, around, call
    spans = list[Span]()
    for name, (place, around, last) in found.items():
        if any(other.startswith(f"{name}.") for other in found):
            continue  # shortcuts inside it are enough
        first = _beginning(patient, place, around)
        inside = calls[first].name.startswith(f"{name}.") or first == place
        spans.append((name if inside else calls[first].name, around, last.name))
    return spans


def _pooled_spans(patient: Patient) -> list[list[Any]]:
    """Spans around single layers of images or tables that change the shape, but at most double it in features."""
    pairs = [(place, call) for place, call in enumerate(patient.calls) if call in patient.weights[1:-1]]
    changing = [(place, call) for place, call in pairs if call.before != call.after and _fits(call)]
    return [[patient.calls[_beginning(patient, place, call)].name, call.name] for place, call in changing]


def _fits(call: LayerCall) -> bool:
    """Whether what goes in can be added to what comes out, cut off, pooled or padded with as many zeros at most."""
    same = len(call.before) == len(call.after) in (2, 4) and call.before[0] == call.after[0]
    return same and call.after[1] <= 2 * call.before[1]


def _beginning(patient: Patient, place: int, around: LayerCall) -> int:
    """The first of the activations, norms and dropouts that lead to a layer without changing the shape."""
    once = {call.name for call in patient.weights}
    while place and _passes_on(patient.calls[place - 1], once) and patient.calls[place - 1].before == around.before:
        place -= 1
    return place


def _passes_on(call: LayerCall, once: set[str]) -> bool:
    """Whether it is an activation, a norm or dropout of its own between two layers."""
    return call.name not in once and call.before == call.after and not isinstance(call.module, nn.Embedding)


def _missing(patient: Patient) -> list[Change]:
    """A shortcut around each module that stands in a row between residual blocks, but has none."""
    names, order = _rows(patient), {call.name: place for place, call in enumerate(patient.all_calls)}
    rows, places = {name.rpartition(".")[0] for name in names}, [order[name] for name in names if name in order]
    spans, zeros = list[list[Any]](), list[str]()
    for call in patient.all_calls:
        inside = f"{call.name}."
        in_row = call.name.rpartition(".")[0] in rows and call.name not in names
        holds = any(f"{layer.name}.".startswith(inside) for layer in patient.weights)
        between = places and min(places) < order[call.name] < max(places)
        if not (in_row and holds and between and (call.before == call.after or _fits(call))):
            continue
        spans.append([call.name, call.name])
        last = next(part for part in reversed(patient.calls) if f"{part.name}.".startswith(inside))
        if call.before == call.after and not isinstance(last.module, tuple(ACTIVATIONS.values())):
            # not before a ReLU: its slope at zero is zero, so a branch that starts there would stay there
            zeros += _own_parameters(patient, last.name)
    if not 0 < len(spans) < len(names):
        return []
    words = f"add the shortcut that is missing around {len(spans)} of the modules in a row with residual blocks"
    reason = f"{len(names)} modules beside them have one"
    return [_added("missing_shortcuts", words, reason, spans, zeros)]


def _rows(patient: Patient) -> set[str]:
    """The modules of sequences of modules, two at least in each, that hold residual blocks."""
    parts = [block.name.split(".") for block in patient.blocks]
    held = {".".join(part[:count]) for part in parts for count in range(1, len(part) + 1)}
    rows = [name.rpartition(".")[0] for name in held]
    kinds = nn.Sequential | nn.ModuleList
    several = {row for row in rows if rows.count(row) > 1 and isinstance(patient.model.get_submodule(row), kinds)}
    return {name for name in held if name.rpartition(".")[0] in several}


def _pools(patient: Patient) -> list[Change]:
    """An average pool beside each projection of images."""
    projecting = [block for block in patient.blocks if block.shortcut.kind == "projection"]
    shapes = ((block.input_shape, block.output_shape) for block in projecting)
    count = sum(len(before) == len(after) == 4 and before[1] <= after[1] for before, after in shapes)
    if not count:
        return []
    words = f"add an average pool to the projection of {count} shortcuts"
    reason = "a projection has small singular values, a pool has none between 0 and 1 and passes the signal on"
    return [Change("pooled_projections", "shortcuts", words, reason, (Remedy("add_average_pool_skips"),))]
