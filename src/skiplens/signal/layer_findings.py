"""What may be wrong from layer to layer: growth and fading without blocks, features alike, parts without a gradient."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from skiplens.base.words import in_words, percent, times
from skiplens.edits.remedies import code_of
from skiplens.readings.finding import Finding, Remedy, Rule, Severity, listed
from skiplens.signal.findings import LEAST_BLOCKS, MOSTLY, SURPRISE, WORDS, allowed_growth
from skiplens.signal.layers import FLAT, LayerStates
from skiplens.signal.reading import Growth, SignalReading, growth_of
from skiplens.signal.units import surprise

SATURATING = tuple(kind.__name__ for kind in FLAT)
DIGITS = 23 * math.log(2)  # −ln ε of float32, in which networks are trained
LEAST_LAYERS = 4  # weights in a row; fewer give no rate with an uncertainty
MANY_LAYERS, MANY_SUMS = 32, 36
ALIKE, ALIKE_IF_DEEP = math.exp(-6), 9 * math.pi**2 / 2 / MANY_LAYERS**2
OWN_SPREAD = 0.1  # of the inputs' spread: less than this share was lost in the network, not in the data


def _finding(
    rule: str, severity: Severity, sentence: str, numbers: tuple[float, float], where: Sequence[str]
) -> Finding:
    return Finding(rule, severity, sentence, *numbers, **WORDS[rule], where=tuple(dict.fromkeys(where)))


def judge_values(states: LayerStates) -> Iterator[Finding]:
    """The first layer whose output is not finite."""
    broken = [name for name, size in zip(states.names, states.outputs.tolist(), strict=True) if not math.isfinite(size)]
    if broken:
        sentence = f"What {broken[0]} gives is NaN or infinite, and all that follows it."
        yield _finding("not_finite_layer", "critical", sentence, (len(broken), 0.0), broken[:1])


def judge_reach(states: LayerStates) -> Iterator[Finding]:
    """Modules that the loss does not reach, and a loss that moves nothing."""
    lost = [name for name in states.unreached if name not in states.aside]
    if states.trainable and len(states.zero_gradients) == states.trainable:
        lost = ["any parameter"]
    if lost:
        severity: Severity = "critical" if lost[0] in ("the whole model", "any parameter") else "warning"
        sentence = f"No gradient of the loss reaches {listed(tuple(lost))}."
        yield _finding("no_gradient", severity, sentence, (len(lost), 0.0), lost)
    if states.aside:
        sentence = f"No gradient of the loss reaches {listed(states.aside)}: nothing of it is in what the loss reads."
        yield _finding("no_gradient", "note", sentence, (len(states.aside), 0.0), states.aside)


def judge_dead(states: LayerStates) -> Iterator[Finding]:
    """Layers of which nearly all units are zero on all samples; inside of branches the rules of blocks tell it."""
    shut, units = states.shut.tolist(), states.units.tolist()
    relu = [place for place, kind in enumerate(states.types) if kind not in SATURATING and units[place]]
    found = [place for place in relu if surprise(shut[place], units[place]) > SURPRISE]
    trained = [norm for norm in states.parameter_gradients.tolist() if not math.isnan(norm)]
    cut = any(shut[place] == 1 for place in found) and trained[:1] == [0.0]
    if not found or (states.joins and not cut):
        return
    worst = max(found, key=lambda place: shut[place])
    share = "every unit" if shut[worst] == 1 else f"{percent(shut[worst])} of the {units[worst]} units"
    what = "at" if states.kinds[worst] == "activation" else "before"
    sentence = f"Most units are shut: {share} {what} {states.names[worst]} is zero on all {states.samples} samples" + (
        ", so nothing before it gets a gradient." if cut else "."
    )
    numbers = (shut[worst], MOSTLY + SURPRISE / 2 / units[worst] ** 0.5)
    yield _finding("dead_layers", "critical" if cut else "warning", sentence, numbers, _names(states, found))


def judge_saturation(states: LayerStates) -> Iterator[Finding]:
    """Layers of tanh, sigmoid and their kind in which most values have no slope."""
    found = [i for i, kind in enumerate(states.types) if kind in SATURATING and float(states.shut[i]) > MOSTLY]
    if found and not states.joins:  # in branches the rules of blocks tell it
        share, names = float(states.shut[found].max()), _names(states, found)
        saturated = f"Up to {percent(share)} of the values of {listed(names)} are saturated"
        sentence = f"{saturated}: under 1 % of the full slope."
        yield _finding("saturated_layers", "warning", sentence, (share, MOSTLY), names)


def judge_signal(states: LayerStates) -> Iterator[Finding]:
    """The signal from layer to layer."""
    yield from _grown(states, "signal")


def judge_gradient(states: LayerStates) -> Iterator[Finding]:
    """The gradient on its way back, where the signal itself behaves."""
    if not list(judge_signal(states)):
        yield from _grown(states, "gradient")


def growth_by_layer(states: LayerStates, what: str) -> tuple[Growth, list[int]]:
    """How the signal, or the gradient on its way back, grows along the weights between embedding and head."""
    chain = [place for place in states.of_kind("weights") if states.types[place] != "Embedding"][:-1]
    return growth_of((states.outputs[chain] if what == "signal" else states.gradients[chain].flip(0))[:, None]), chain


def _grown(states: LayerStates, what: str) -> Iterator[Finding]:
    growth, chain = growth_by_layer(states, what)
    depth = len(chain)
    power = 2 * depth * growth.surely / DIGITS
    # With blocks the rules of `findings.py` follow the stream, of which single layers see only a part.
    if states.joins >= LEAST_BLOCKS or depth < LEAST_LAYERS or -1 <= power <= 0.5:
        return
    sentence = (
        f"The {what} {'grows' if power > 0 else 'fades'} exponentially from layer to layer"
        f"{' on its way back' * (what == 'gradient')}: {times(growth.over(depth))} over all {depth}, by a factor "
        f"{growth.words} at each, and there are no residual blocks to keep it."
    )
    numbers = growth.over(depth), math.exp(DIGITS / 4 if power > 0 else -DIGITS / 2)
    severity: Severity = "critical" if power > 1 or power < -2 else "warning"
    words = {"source": WORDS["layer_growth"]["source"], **_mended(states, chain, growth.rate)}
    where = tuple(dict.fromkeys(_names(states, chain)))
    yield Finding(f"layer_{what}", severity, sentence, *numbers, **words, where=where)


def _mended(states: LayerStates, chain: list[int], rate: float) -> dict[str, Any]:
    """Weights times e^(−rate) where the network is nearly homogeneous in them, else drawn anew."""
    activations = {states.types[place] for place in states.of_kind("activation")}
    matrices = tuple(dict.fromkeys(name for place in chain for name in states.matrices[place]))
    if "Sigmoid" in activations or not matrices:
        return {"change": "Use ReLU or GELU instead of sigmoid, normalise before each activation, or add shortcuts."}
    if activations & set(SATURATING):
        zeros = tuple(dict.fromkeys(name for place in chain for name in states.shifts[place]))
        remedy = Remedy("redraw_parameters", {"drawn": matrices, "ones": (), "zeros": zeros, "seed": 0})
        change = "Draw the weights anew at the size of He"
    else:
        change = f"Multiply the weights of each layer by {in_words(math.exp(-rate))} (for ReLU this is the size of He)"
        remedy = Remedy("scale_parameters", {"factors": dict.fromkeys(matrices, float(f"{math.exp(-rate):.4g}"))})
    return {"change": f"{change}, normalise each layer, or add shortcuts.", "code": code_of(remedy), "remedy": remedy}


def judge_features(states: LayerStates) -> Iterator[Finding]:
    """Last features that are the same for all samples, although the inputs differ."""
    layers = states.of_kind("weights")
    last, before, threshold = alike(states)
    if last < threshold and before < 2 * threshold and last < OWN_SPREAD * states.input_spread:
        severity: Severity = "critical" if last < math.exp(-DIGITS) else "warning"
        sentence = (
            "What the last layer gets is nearly the same for all samples: one minus the cosine between two of them is "
            f"{in_words(last, 2)} (of the inputs it is {in_words(states.input_spread, 2)})."
        )
        yield _finding("features_alike", severity, sentence, (last, threshold), _names(states, layers[-1:]))


def alike(states: LayerStates) -> tuple[float, float, float]:
    """How much samples differ at the last weights, at the most a little before, and where they count as alike."""
    layers = states.of_kind("weights")
    last = float(states.spreads[layers[-1]]) if len(layers) > 1 else math.nan
    # A token that starts alike for all samples tells them apart late; all other tokens still do before.
    before = float(states.spreads[layers[-max(2, len(layers) // 4) :]].max()) if layers else math.nan
    return last, before, ALIKE_IF_DEEP if len(layers) >= MANY_LAYERS else ALIKE


def judge_statistics(states: LayerStates) -> Iterator[Finding]:
    """Batch norms in training mode that normalise two numbers."""
    found = _names(states, [place for place, count in enumerate(states.statistics.tolist()) if count == 2])
    if found:
        sentence = f"In training mode two numbers a channel are normalised in {listed(found)}: only a sign is left."
        yield _finding("few_statistics", "warning", sentence, (2.0, 2.0), found)


def judge_hidden_growth(reading: SignalReading) -> Iterator[Finding]:
    """Sums that are normalised or squashed right after: what the size of the signal hides, the shares at joins tell."""
    r, rho = reading.branch_ratios, reading.alignments
    gains = (1 + r.square() + 2 * rho * r).log()[torch.tensor(reading.outermost, dtype=torch.bool)]
    growth = reading.signal_growth  # at once where an embedding is small, or from block to block
    total, seen = float(gains.sum()), max(0.0, 2 * growth.rate * reading.longest, 2 * growth.total)
    threshold = math.log(allowed_growth(reading.depth)) if reading.depth >= MANY_SUMS else 2 * DIGITS
    if reading.depth >= LEAST_BLOCKS and total - seen > threshold and not reading.fresh_norms:
        sentence = (
            f"What comes in is lost on the way: after {reading.depth} blocks it has e^−{in_words(total)} of the "
            "power of the signal, because each sum is brought back to size by what follows it."
        )
        yield _finding("hidden_growth", "warning", sentence, (total, threshold), reading.depths[1:])


def _names(states: LayerStates, places: Sequence[int]) -> tuple[str, ...]:
    return tuple(states.names[place] for place in places)


_JUDGES = {"not_finite_layer": judge_values, "no_gradient": judge_reach, "dead_layers": judge_dead}
_JUDGES |= {"layer_signal": judge_signal, "layer_gradient": judge_gradient, "saturated_layers": judge_saturation}
_JUDGES |= {"features_alike": judge_features, "few_statistics": judge_statistics}
_LAYER_RULES = tuple(Rule(name, (LayerStates,), judge) for name, judge in _JUDGES.items())
RULES = (*_LAYER_RULES, Rule("hidden_growth", (SignalReading,), judge_hidden_growth))


def layer_findings(states: LayerStates) -> list[Finding]:
    """What all rules of single layers find in `states`."""
    return [finding for rule in _LAYER_RULES for finding in rule([states])]
