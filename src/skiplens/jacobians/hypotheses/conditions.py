"""Every hypothesis of theorems 4.5 (S), 4.7 (R) and 5.1 (G), checked on a described network."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from skiplens.base.words import in_words
from skiplens.jacobians.hypotheses import descriptions
from skiplens.jacobians.hypotheses.descriptions import Case, CheckedHypothesis, Description, Evidence, FreeMap
from skiplens.jacobians.systems.affine import Affine, ScaleShift
from skiplens.jacobians.systems.elementwise import Elementwise
from skiplens.jacobians.systems.norms import BatchNorm, SampleNorm
from skiplens.jacobians.systems.parameterisation import EntryNormalised, Free, Parameterisation
from skiplens.readings.finding import listed


def check(case: Case) -> tuple[CheckedHypothesis, ...]:
    """One verdict for each hypothesis of theorems 4.5 (S), 4.7 (R) and 5.1 (G), in this order."""
    smoothness = (_nonlinearities, _normalised_maps, _norms, _cost, _branches, _certificate)
    before = (*_verdicts("S", smoothness, case), *regularity_checks(case))

    def _all_before(case: Case) -> Judgement:  # G1
        labels = _with(before, "fails"), _with(before, "cannot be decided")
        failing, unknown = ([_ABOUT[label[0]] for label in some] for some in labels)
        evidence = Evidence(failing, unknown, float(len(failing) + len(unknown)))
        return evidence, "all of them hold", "some of them fail", "Make the changes named there."

    return (*before, *_verdicts("G", (_all_before, _entry_normalised, _slopes, _margin, _convex_cost, _step), case))


_ABOUT = {"S": "smoothness", "R": "regularity"}


def regularity_checks(case: Case) -> tuple[CheckedHypothesis, ...]:
    """R1 to R6."""
    return _verdicts("R", (_widths, _skips, _gains, _samples, _first_layer, _all_have_skips), case)


Judgement = tuple[Evidence, str, str, str]  # what was found, why it holds or else fails, the change to make then


def _verdicts(theorem: str, checks: Sequence[Callable[[Case], Judgement]], case: Case) -> tuple[CheckedHypothesis, ...]:
    return tuple(
        descriptions.judged(f"{theorem}{number}", *check(case)) for number, check in enumerate(checks, start=1)
    )


def _with(checks: Sequence[CheckedHypothesis], verdict: descriptions.Verdict) -> list[str]:
    return [check.label for check in checks if check.verdict == verdict]


def what_follows(case: Case) -> str:
    """What the verdicts mean for gradient descent, in a sentence or two."""
    return conclusion(case, check(case))


def conclusion(case: Case, checks: Sequence[CheckedHypothesis]) -> str:
    """What follows for gradient descent; never that the printed theorem says so."""
    needed = [check for check in checks if check.label not in ("G1", "G2", "G6")]
    for verdict, verb in (("fails", "fail"), ("cannot be decided", "cannot be decided")):
        if found := tuple(f"“{check.hypothesis.statement}”" for check in needed if check.verdict == verdict):
            return f"Nothing is certified: {listed(found, 1)} {verdict if len(found) == 1 else verb}."
    if is_harmless_first_layer(case):
        return (
            "Certified: this is the repaired network. Gradient descent with steps below 2/β reaches the global "
            "minimum of the square cost and of cross-entropy from any start."
        )
    if "G2" not in _with(checks, "holds"):
        return "Certified is that DF is onto everywhere: every critical point of the loss is a global minimum."
    return (
        "All hypotheses of theorem 5.1 hold, but the theorem as printed is false. What is true: the loss falls at "
        "every step; every critical point is a global minimum; convergence is linear while the first layer's weights "
        "stay bounded, and certified only if the sum of lambda(DF) diverges; cross-entropy cannot fall below a "
        "positive floor, because outputs are bounded. For a guarantee use the repaired network guaranteed_resnet."
    )


def _entry_normalised(case: Case) -> Judgement:  # G2
    first = case.layers[0]
    entries = first.parameterisation if isinstance(first, Affine) and not first.has_bias else None
    epsilon = entries.epsilon if isinstance(entries, EntryNormalised) else None
    harmless = is_harmless_first_layer(case)
    why = "its first matrix is free: outside the printed theorem, inside the repaired one" if harmless else "it is not"
    change = "None is needed: the repaired network has a free first layer." if harmless else (
        "Use NormalisedLinear with entry normalisation, or the repaired network's plain first layer."
    )  # fmt: skip
    evidence = Evidence([first.name] if epsilon is None else [], (), epsilon)
    return evidence, "each entry of its matrix is normalised", why, change


def _slopes(case: Case) -> Judgement:  # G3
    parts = list(descriptions.all_parts(case.layers))
    slopes = {part.name: part.nonlinearity.slope for part in parts if isinstance(part, Elementwise)}
    largest = max(slopes.values(), default=0.0)
    return (
        Evidence([name for name, slope in slopes.items() if slope > 1], unrecognised(parts), largest),
        "no slope above 1",
        f"a slope of {in_words(largest, 6)}",
        "Divide the nonlinearity by its largest slope, or use tanh.",
    )


def _margin(case: Case) -> Judgement:  # G4
    gain, failing, unknown = largest_gain(case)
    without = [] if residual_layers(case) else ["no residual layer"]
    return (
        Evidence(failing or without, unknown, 1 - gain if math.isfinite(gain) and (failing or not unknown) else None),
        f"all branches have slopes of at most 1 − {in_words(1 - gain, 4)}",
        "no margin holds for all parameters",
        "Scale the last map of each branch so that its slope is below 1 by a margin.",
    )


def _convex_cost(case: Case) -> Judgement:  # G5
    cost, name = case.cost, case.cost.name
    evidence = _about([cost.is_convex, cost.has_lipschitz_gradient, cost.is_dominated], name, "this loss is not known")
    return (
        replace(evidence, ask="Use the square cost or cross-entropy, or judge it by hand."),
        f"{name} has all of it",
        f"{name} is not convex with a Lipschitz gradient, or has no such inequality near its minimum",
        "Use the square cost or cross-entropy.",
    )


def _step(case: Case) -> Judgement:  # G6
    beta, step = case.smoothness, case.step
    if beta is None:
        evidence = Evidence((), ["the smoothness"], None, "the smoothness is not known", "Is the loss smooth?")
        return evidence, "", "", ""
    limit = 2 / beta if beta else math.inf
    most = in_words(limit, 4)
    if step is None:
        ask = f"Give a step size; any below {most} is certified." if limit else "Make the loss smooth first."
        return Evidence((), ["the step size"], limit, "the step size is not known", ask), "", "", ""
    taken = in_words(step, 4)
    return (
        Evidence([f"step {taken}"] if not step < limit else [], (), limit),
        f"{taken} is below {most}",
        f"{taken} is not below {most}" if limit else "no step is certified, because no smoothness is",
        f"Use a step below {most}; larger ones may work, but nothing is certified." if limit else "Make it smooth.",
    )


def residual_layers(case: Case) -> list[descriptions.ResidualLayer]:
    """The residual layers, in order."""
    return [layer for layer in case.layers if isinstance(layer, descriptions.ResidualLayer)]


def unrecognised(parts: Sequence[Description]) -> list[str]:
    """Names of the parts about which nothing is known, with what they are."""
    return [f"{part.name} ({part.what})" for part in parts if isinstance(part, descriptions.Unrecognised)]


def is_harmless_first_layer(case: Case) -> bool:
    """Whether a free first matrix does no harm: its data are fixed, and all layers behind bound what they take."""
    first = case.layers[0]
    if not isinstance(first, Affine) or first.has_bias or not isinstance(first.parameterisation, Free):
        return False
    return case.certificate is not None and case.certificate.is_finite


def _has_kink(part: Description) -> bool:
    """Whether the part has no Lipschitz derivative."""
    return isinstance(part, descriptions.Kinked) or (isinstance(part, Elementwise) and not part.nonlinearity.is_smooth)


def _is_free(part: Description) -> bool:
    """Whether the part has parameters that are not normalised."""
    if isinstance(part, Affine):
        return part.has_bias or not part.parameterisation.is_normalised
    return isinstance(part, ScaleShift | FreeMap)


def _lacks_epsilon(part: Description) -> bool:
    """Whether the part is a norm that divides by zero somewhere."""
    return isinstance(part, BatchNorm | SampleNorm) and part.epsilon == 0


def _about(known: Sequence[bool | None], name: str, why_open: str) -> Evidence:
    """The evidence on one thing: it fails where something of it does not hold, and is open where that is not known."""
    return Evidence([name] if False in known else [], [name] if None in known else [], None, why_open)


def _is_unbounded(part: Description) -> bool:
    """Whether first or second derivatives of the part have no bound."""
    return _has_kink(part) or _is_free(part) or _lacks_epsilon(part)


def _nonlinearities(case: Case) -> Judgement:  # S1
    parts = list(descriptions.all_parts(case.layers))
    bad = [part for part in parts if _has_kink(part)]
    kinds = {part.nonlinearity.name if isinstance(part, Elementwise) else part.what for part in bad}  # type: ignore[union-attr]  # bad parts are one or the other
    named = listed(tuple(sorted(kinds)), most=3)
    return (
        Evidence([part.name for part in bad], unrecognised(parts), float(len(bad))),
        "every nonlinearity is smooth",
        f"{named} has a kink: its derivative jumps",
        f"Use tanh (or softplus) in place of {named}.",
    )


def _normalised_maps(case: Case) -> Judgement:  # S2
    parts, harmless = list(descriptions.all_parts(case.layers)), is_harmless_first_layer(case)
    bad = [part for part in parts if _is_free(part) and not (harmless and part is case.layers[0])]
    reasons = set()
    for part in bad:
        if isinstance(part, ScaleShift):
            reasons.add("scale and shift of a norm")
        elif isinstance(part, Affine) and part.parameterisation.is_normalised:
            reasons.add("free biases")
        else:
            reasons.add("matrices without normalisation")
    return (
        Evidence([part.name for part in bad], unrecognised(parts), float(len(bad))),
        "the first matrix is free, which does no harm: its data are fixed" if harmless else "all maps are normalised",
        f"{listed(tuple(sorted(reasons)), most=3)}: derivatives are unbounded",
        "Use NormalisedLinear or NormalisedConv2d without bias, and norms without scale and shift (affine=False).",
    )


_NORMALISE = "Normalise the map in front of it; then no covariance is needed."


def _norms(case: Case) -> Judgement:  # S3
    verdicts: list[tuple[str, bool | None]] = []
    before: Description | None = None
    for part in descriptions.all_parts(case.layers):
        if isinstance(part, BatchNorm):
            verdicts.append((part.name, _batch_norm_is_smooth(case, part, before)))
        before = part
    zero = [part.name for part in descriptions.all_parts(case.layers) if _lacks_epsilon(part)]
    singular = [name for name, good in verdicts if good is False and name not in zero]
    open_ = [name for name, good in verdicts if good is None]
    covariance = "its map is not normalised and its inputs have no more samples than features: a singular covariance"
    why = ["its epsilon is 0, so it divides by zero at constant inputs"] * bool(zero) + [covariance] * bool(singular)
    change = ["Give it an epsilon above 0."] * bool(zero) + [_NORMALISE] * bool(singular)
    unknown = "its map is not normalised, and the covariance of its inputs changes as layers before it are trained"
    return (
        Evidence([*zero, *singular], open_, float(len(verdicts)), unknown, _NORMALISE),
        "each comes after a normalised map, or on data with full covariance" if verdicts else "there is no batch norm",
        "; ".join(why),
        " ".join(change),
    )


def _batch_norm_is_smooth(case: Case, norm: BatchNorm, before: Description | None) -> bool | None:
    """Whether the covariance of what a batch norm takes from the map before it is bounded below; None if not known."""
    if not isinstance(before, Affine | FreeMap):
        return True
    if isinstance(before, Affine) and before.parameterisation.is_normalised:
        return True
    fan_in = before.fan_in if isinstance(before, FreeMap) else before.inputs
    if case.data.samples * norm.positions <= fan_in:  # centred data have a rank below the number of samples
        return False
    if before is case.layers[0] and isinstance(before, Affine) and case.data.covariance is not None:
        return case.data.covariance > case.data.tolerance
    return None


def _cost(case: Case) -> Judgement:  # S4
    name = case.cost.name
    return (
        _about([case.cost.has_lipschitz_gradient], name, "this loss is not known"),
        f"{name}: the gradient is bounded and Lipschitz on sublevel sets",
        f"the gradient of {name} jumps or is unbounded",
        "Use the square cost or cross-entropy.",
    )


def _branches(case: Case) -> Judgement:  # S5
    failing, unknown = [], []
    for layer in residual_layers(case):
        parts = list(descriptions.all_parts(layer.branch))
        if any(map(_is_unbounded, parts)):
            failing.append(layer.name)
        elif unrecognised(parts):
            unknown.append(layer.name)
    return (
        Evidence(failing, unknown, float(len(failing))),
        "all branches are made of smooth normalised layers",
        "branches hold kinks, maps that are not normalised or norms without epsilon",
        "Change the layers that the hypotheses above name.",
    )


def _certificate(case: Case) -> Judgement:  # S6
    beta, parts = case.smoothness, list(descriptions.all_parts(case.layers))
    unbounded = [part for part in parts if _is_unbounded(part)]
    infinite = [part.name for part in unbounded]
    fails = (infinite or ["the outputs"]) if beta == math.inf else []
    if beta is None and any(part is not case.layers[0] for part in unbounded):
        fails = infinite  # whatever the unknown parts are
    unknown = (unrecognised(parts) or ["the data, the cost or a skip"]) if beta is None else []
    return (
        Evidence(fails, unknown, beta, "no constant can be computed"),
        f"steps below {in_words(2 / beta if beta else math.inf, 4)} never increase the loss",
        "the recursion over the layers gives no finite constant",
        "Change the layers that the hypotheses above name; with unbounded outputs, give the first loss as sublevel.",
    )


def _widths(case: Case) -> Judgement:  # R1
    behind = case.layers[1:]
    growing = [layer.name for layer in behind if layer.outputs > layer.inputs]
    return (
        Evidence(growing, (), max((layer.outputs / layer.inputs for layer in behind), default=1.0)),
        "widths after the first layer never grow",
        "more outputs than inputs: the Jacobian has more rows than columns and cannot be onto",
        "Make the first layer as wide as the widest layer, and never widen after it.",
    )


def _skips(case: Case) -> Judgement:  # R2
    layers = residual_layers(case)
    verdicts = {layer.name: isometry(layer.skip) for layer in layers}
    failing = [name for name, (good, _) in verdicts.items() if good is False]
    unknown = [name for name, (good, _) in verdicts.items() if good is None]
    told = [layer.skip for layer in layers if not failing or layer.name in failing]
    values = [value for skip in told for value in (skip.smallest, skip.largest) if value is not None]
    farthest = max(values, key=lambda value: abs(value - 1), default=None)
    return (
        Evidence(failing, unknown, farthest, "its singular values are not known"),
        "all skips are isometric" if layers else "there is no skip that could break it",
        "; ".join(sorted({verdicts[name][1] for name in failing})),
        "Use the identity where widths agree, Truncation or IsometricPool where they shrink, without parameters.",
    )


ISOMETRY = 1e-12  # the theory's demand in float64


def isometry(skip: descriptions.Skip) -> tuple[bool | None, str]:
    """Whether all singular values of a fixed linear skip are 1, None if that is not known; and why they are not."""
    if skip.is_linear is False:
        return False, f"the skip ({skip.what}) is not linear"
    if skip.parameters:
        return False, f"the skip ({skip.what}) has trained parameters"
    if skip.smallest is not None and skip.largest is not None:
        good = abs(skip.smallest - 1) <= ISOMETRY and abs(skip.largest - 1) <= ISOMETRY
        return good, f"singular values from {in_words(skip.smallest)} to {in_words(skip.largest)}"
    if skip.deviation is None:
        return None, ""
    return (
        skip.deviation <= ISOMETRY,
        f"I Iᵀ differs from the identity by {in_words(skip.deviation)} on a random vector",
    )


def _gains(case: Case) -> Judgement:  # R3
    number, failing, unknown = largest_gain(case)
    bounded = f"slopes are at most {in_words(number, 4)} for all parameters"
    sampled = max((one.gain for one in case.sampled_gains.values()), default=None)
    return (
        Evidence(failing, unknown, None if unknown and not failing else number, sampled=sampled),
        bounded if residual_layers(case) else "there is no branch that could break it",
        f"the product of the layers' bounds, or a measured slope, is {in_words(number, 4)}",
        "Normalise the maps of the branch, use slopes of at most 1, and scale its last map (contraction_factor).",
    )


def largest_gain(case: Case) -> tuple[float, list[str], list[str]]:
    """The largest bound of a branch's slope, the layers where it is not below 1 and those where it is not known.

    A branch with parts that are not recognised fails if a slope of 1 or more was measured.
    """
    gains = {layer.name: descriptions.branch_gain(layer, case.data.samples) for layer in residual_layers(case)}
    lowest = {name: one.gain for name, one in case.sampled_gains.items() if one.is_lower_bound}
    known = {name: gain for name, gain in gains.items() if gain is not None}
    known |= {name: lowest[name] for name in gains if name not in known and lowest.get(name, 0.0) >= 1}
    failing = [name for name, gain in known.items() if not gain < 1]
    return max(known.values(), default=0.0), failing, [name for name in gains if name not in known]


def _samples(case: Case) -> Judgement:  # R4
    data, too_many = case.data, case.data.samples > case.data.features
    not_known = "the inputs are not one matrix of numbers, or too large for singular values"
    evidence = _about([data.are_independent], "the data", not_known)
    return (
        replace(evidence, number=data.smallest, ask="Compute the rank of the data by hand."),
        f"{data.samples} independent samples of {data.features} features",
        f"{data.samples} samples, {data.features} features" if too_many else "the samples are linearly dependent",
        f"Train on at most {data.features} samples, or add features." if too_many else "Drop repeated samples.",
    )


def _first_layer(case: Case) -> Judgement:  # R5
    first, weights, number = case.layers[0], case.first_weights, None
    matrix, unknown = first.parameterisation if isinstance(first, Affine) else first, unrecognised([first])
    # an affine layer whose derivative with respect to its parameters is onto all matrices
    onto = isinstance(matrix, Parameterisation | FreeMap) and matrix.parameters >= matrix.outputs * matrix.inputs
    if not onto and not unknown:
        number = 0.0
    elif weights is not None and isinstance(first, Affine):
        number = first.parameterisation.smallest_derivative(weights[: first.parameterisation.parameters])
    return (
        Evidence([] if onto or unknown else [first.name], unknown, number),
        "the first layer is affine and has a parameter for each entry of its matrix",
        "its parameters do not reach every matrix (a convolution shares them), or it is not affine",
        "Start with a fully connected layer: nn.Linear(features, width, bias=False).",
    )


def _all_have_skips(case: Case) -> Judgement:  # R6
    bare = [layer.name for layer in case.layers[1:] if not isinstance(layer, descriptions.ResidualLayer)]
    return (
        Evidence(bare, (), float(len(bare))),
        "every layer after the first is residual",
        "a layer without skip may lose directions: heads, pooling, norms and activations between blocks count",
        "Move activations and norms into the branches, and let the last block give the outputs.",
    )
