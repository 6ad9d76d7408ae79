"""What may be wrong from layer to layer: growth and fading without blocks, features alike, parts without a gradient."""

import math
from collections.abc import Iterator
from typing import Any

import torch

from skiplens.edits.remedies import code_of
from skiplens.readings.finding import Finding, Remedy, Rule, Severity, listed
from skiplens.signal.findings import LEAST_BLOCKS, MOSTLY, SURPRISE
from skiplens.signal.layers import FLAT, LayerStates
from skiplens.signal.reading import Growth, SignalReading, growth_of
from skiplens.signal.units import surprise

SATURATING = tuple(kind.__name__ for kind in FLAT)
LEAST_LAYERS = 4  # weights in a row; fewer give no rate with an uncertainty
ALIKE = math.exp(-6)
MANY_LAYERS = 32
ALIKE_IF_DEEP = 9 * math.pi**2 / 2 / MANY_LAYERS**2
OWN_SPREAD = 0.1  # of the inputs' spread: less than this share was lost in the network, not in the data


def judge_values(states: LayerStates) -> Iterator[Finding]:
    """The first layer whose output is not finite."""
    broken = [place for place, size in enumerate(states.outputs.tolist()) if not math.isfinite(size)]
    if broken:
        yield _about(
            states,
            broken[:1],
            rule="not_finite_layer",
            severity="critical",
            sentence=f"What {states.names[broken[0]]} gives is NaN or infinite, and all that follows it.",
            number=float(len(broken)),
            threshold=0.0,
            source="every theorem speaks of finite values",
            change="Draw smaller weights, normalise before this layer, and check inputs and parameters for NaN.",
        )


def judge_signal(states: LayerStates) -> Iterator[Finding]:
    """The signal from layer to layer."""
    yield from _grown(states, growth_by_layer(states, "signal"), "signal")


def judge_gradient(states: LayerStates) -> Iterator[Finding]:
    """The gradient on its way back, where the signal itself behaves."""
    if not list(judge_signal(states)):
        yield from _grown(states, growth_by_layer(states, "gradient"), "gradient")


def _chain(states: LayerStates) -> list[int]:
    """Places of the weights between embedding and head."""
    return [place for place in states.of_kind("weights") if states.types[place] != "Embedding"][:-1]


def growth_by_layer(states: LayerStates, what: str) -> Growth:
    """How the signal, or the gradient on its way back, grows from weights to weights."""
    chain = _chain(states)
    return growth_of((states.outputs[chain] if what == "signal" else states.gradients[chain].flip(0))[:, None])


def _grown(states: LayerStates, growth: Growth, what: str) -> Iterator[Finding]:
    chain, rounding = _chain(states), torch.finfo(getattr(torch, states.precision)).eps
    depth = len(chain)
    power = 2 * depth * growth.surely / -math.log(rounding)  # in units of the digits of the dtype
    # With blocks the rules of `findings.py` follow the stream, of which single layers see only a part.
    if states.joins >= LEAST_BLOCKS or depth < LEAST_LAYERS or -1 <= power <= 0.5:
        return
    grows, way = power > 0, "" if what == "signal" else " on its way back"
    yield _about(
        states,
        chain,
        rule=f"layer_{what}",
        severity="critical" if power > 1 or power < -2 else "warning",
        sentence=f"The {what} {'grows' if grows else 'fades'} exponentially from layer to layer{way}: by a factor "
        f"{math.exp(growth.rate):.3g} at each ({math.exp(growth.low):.3g} to {math.exp(growth.high):.3g}), "
        f"{growth.over(depth):.3g} over all {depth}, and there are no residual blocks to keep it.",
        number=growth.over(2 * depth),
        threshold=rounding**-0.5 if grows else rounding,
        source="power over all layers against the rounding ε of the dtype: above ε^(−½) steps that suit the first "
        "layers are far off for the last ones, below ε no digit of the gradient reaches the first layers",
        **_mended(states, chain, growth.rate),
    )


def _mended(states: LayerStates, chain: list[int], rate: float) -> dict[str, Any]:
    """Weights times e^(−rate) where the network is nearly homogeneous in them, else drawn anew."""
    activations = {states.types[place] for place in states.of_kind("activation")}
    matrices = tuple(dict.fromkeys(name for place in chain for name in states.matrices[place]))
    if "Sigmoid" in activations or not matrices or not math.isfinite(rate):
        change = "Use ReLU or GELU instead of sigmoid, normalise before each activation, or add shortcuts."
        return {"change": change}
    if activations & set(SATURATING):
        change, zeros = "Draw the weights anew at the size of He", [n for place in chain for n in states.shifts[place]]
        parameters = {"drawn": matrices, "ones": (), "zeros": tuple(dict.fromkeys(zeros)), "seed": 0}
        remedy = Remedy("redraw_parameters", parameters)
    else:
        change = f"Multiply the weights of each layer by {math.exp(-rate):.3g} (He's size for ReLU is √(2/inputs))"
        factors = dict.fromkeys(matrices, float(f"{math.exp(-rate):.4g}"))
        remedy = Remedy("scale_parameters", {"factors": factors})
    return {"change": f"{change}, normalise each layer, or add shortcuts.", "code": code_of(remedy), "remedy": remedy}


def judge_features(states: LayerStates) -> Iterator[Finding]:
    """Last features that are the same for all samples, although the inputs differ."""
    layers = states.of_kind("weights")
    if len(layers) < 2:
        return
    last, deep = float(states.spreads[layers[-1]]), len(layers) >= MANY_LAYERS
    # Of a token that starts alike for all samples only the last layer sees nothing yet; then the others still do.
    before = float(states.spreads[layers[-max(2, len(layers) // 4) :]].max())
    threshold = ALIKE_IF_DEEP if deep else ALIKE
    if not (last < threshold and before < 2 * threshold and last < OWN_SPREAD * states.input_spread):
        return
    critical = last < torch.finfo(getattr(torch, states.precision)).eps
    yield _about(
        states,
        layers[-1:],
        rule="features_alike",
        severity="critical" if critical else "warning",
        sentence=f"What the last layer gets is nearly the same for all samples: one minus the cosine between two of "
        f"them is {last:.2g} (of the inputs it is {states.input_spread:.2g}).",
        number=last,
        threshold=threshold,
        source="networks train up to a depth of six correlation lengths ('Deep Information Propagation', 2017): e⁻⁶; "
        f"from {MANY_LAYERS} layers on 9π²/(2·{MANY_LAYERS}²), what so many layers of ReLU at the size of He leave",
        change="Add shortcuts or batch norm, which keep samples apart, use fewer layers, or draw the weights at the "
        "size of He if they are smaller.",
    )


def judge_dead(states: LayerStates) -> Iterator[Finding]:
    """Layers of which nearly all units are zero on all samples; inside of branches the rules of blocks tell it."""
    shut, units = states.shut.tolist(), states.units.tolist()
    found = [
        place
        for place, kind in enumerate(states.types)
        if kind not in SATURATING and units[place] and surprise(shut[place], units[place]) > SURPRISE
    ]
    trained = [norm for norm in states.parameter_gradients.tolist() if not math.isnan(norm)]
    all_dead = [place for place in found if shut[place] == 1]
    cut = bool(all_dead and trained and trained[0] == 0)
    if not found or (states.joins and not cut):
        return
    worst = max(found, key=lambda place: shut[place])
    made = "is zero" if states.kinds[worst] == "activation" else "gets only zeros"
    share = "every unit" if shut[worst] == 1 else f"{shut[worst]:.0%} of the {units[worst]} units"
    yield _about(
        states,
        found,
        rule="dead_layers",
        severity="critical" if cut else "warning",
        sentence=f"In {len(found)} layer{'s' * (len(found) > 1)} most units are shut: {share} at "
        f"{states.names[worst]} {made} on all {states.samples} samples"
        + (", so nothing before it gets a gradient." if cut else "."),
        number=shut[worst],
        threshold=MOSTLY + SURPRISE / 2 / units[worst] ** 0.5,
        source="gates of random networks are open with probability ½ ('Residual Tangent Kernels', theorem 3), give or "
        "take four standard deviations",
        change="Set the biases before these units to zero and draw the weights anew, or lower the rate that shut them.",
    )


def judge_saturation(states: LayerStates) -> Iterator[Finding]:
    """Layers of tanh, sigmoid and their kind in which most values have no slope."""
    found = [i for i, kind in enumerate(states.types) if kind in SATURATING and float(states.shut[i]) > MOSTLY]
    if found and not states.joins:  # in branches the rules of blocks tell it
        share = float(states.shut[found].max())
        yield _about(
            states,
            found,
            rule="saturated_layers",
            severity="warning",
            sentence=f"Up to {share:.0%} of the values of {listed(_names(states, found))} are saturated: they have "
            "under 1 % of the largest slope.",
            number=share,
            threshold=MOSTLY,
            source="the Jacobian of a nonlinearity is diag φ′ ('On skip connections and normalisation layers in deep "
            "optimisation', proposition 4.2): most of its entries are zero",
            change="Draw the weights before these layers at the size of Xavier, standardise the inputs, or normalise "
            "before the nonlinearity.",
        )


def judge_reach(states: LayerStates) -> Iterator[Finding]:
    """Modules that the loss does not reach, and a loss that moves nothing."""
    lost = [name for name in states.unreached if name not in states.aside]
    groups: list[tuple[str, list[str], Severity]] = [
        ("", lost, "warning"),
        (" (side outputs)", [*states.aside], "note"),
    ]
    if not lost and states.trainable and len(states.zero_gradients) == states.trainable:
        groups = [("", ["all parameters"], "critical")]
    for words, names, severity in groups:
        if names:
            yield Finding(
                rule="no_gradient",
                severity="critical" if names == ["the whole model"] else severity,
                sentence=f"No gradient of the loss reaches {listed(tuple(names))}{words}.",
                number=float(len(names)),
                threshold=0.0,
                source="a parameter without a gradient never changes; those with requires_grad=False are not meant",
                change="Look for .detach(), torch.no_grad(), .item() or .data on the way from there to the loss, and "
                "for modules that forward never calls; set requires_grad=False where it is meant.",
                where=tuple(names),
            )


def judge_statistics(states: LayerStates) -> Iterator[Finding]:
    """Batch norms in training mode that normalise two numbers."""
    found = [place for place, count in enumerate(states.statistics.tolist()) if count == 2]
    if found:
        yield _about(
            states,
            found,
            rule="few_statistics",
            severity="warning",
            sentence=f"{listed(_names(states, found))} in training mode normalise{'s' * (len(found) == 1)} two numbers "
            "for each channel: all that is left of them is a sign.",
            number=2.0,
            threshold=2.0,
            source="(x − mean)/deviation of two numbers is ±1 whatever they are",
            change="Use larger batches, or layer norm or group norm, which need no other samples.",
        )


def judge_hidden_growth(reading: SignalReading) -> Iterator[Finding]:
    """Sums that are normalised or squashed right after: what the size of the signal hides, the shares at joins tell."""
    r, rho = reading.branch_ratios, reading.alignments
    outer = torch.tensor(reading.outermost, dtype=torch.bool)
    gains = (1 + r.square() + 2 * rho * r).log()[outer] if len(outer) else torch.zeros(0)
    total, seen = float(gains.sum()), 2 * reading.signal_growth.rate * reading.depth
    rounding = -2 * math.log(torch.finfo(getattr(torch, reading.precision)).eps)
    if not (reading.depth >= LEAST_BLOCKS and total - max(0.0, seen) > rounding) or reading.fresh_norms:
        return
    yield Finding(
        rule="hidden_growth",
        severity="warning",
        sentence=f"What comes in is lost on the way: after {reading.depth} blocks it has e^−{total:.3g} of the power "
        "of the signal, because each sum is brought back to size by what follows it.",
        number=total,
        threshold=rounding,
        source="each join leaves the share 1/(1 + r² + 2ρr) to the shortcut, r the branch over the shortcut and ρ "
        "their cosine; at a power of ε², the rounding of the dtype squared, no digit of it is left: −2 ln ε",
        change=f"Normalise before the branch instead of after the sum, or scale the branches by "
        f"1/√{reading.depth} = {reading.depth**-0.5:.2g}.",
        where=reading.depths[1:],
    )


def _about(states: LayerStates, places: list[int], **words: Any) -> Finding:
    return Finding(**words, where=_names(states, places))


def _names(states: LayerStates, places: list[int]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(states.names[place] for place in places))


_JUDGES = {
    "not_finite_layer": judge_values,
    "no_gradient": judge_reach,
    "dead_layers": judge_dead,
    "layer_signal": judge_signal,
    "layer_gradient": judge_gradient,
    "saturated_layers": judge_saturation,
    "features_alike": judge_features,
    "few_statistics": judge_statistics,
}
RULES = (
    *(Rule(name, (LayerStates,), judge) for name, judge in _JUDGES.items()),
    Rule("hidden_growth", (SignalReading,), judge_hidden_growth),
)


def layer_findings(states: LayerStates) -> list[Finding]:
    """What all rules of single layers find in `states`."""
    return [finding for judge in _JUDGES.values() for finding in judge(states)]
