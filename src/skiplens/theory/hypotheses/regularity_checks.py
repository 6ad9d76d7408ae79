"""Checks of theorem 4.7: is the derivative DF onto, for all parameters?"""

from dataclasses import replace

from skiplens.theory.hypotheses.descriptions import Description, FreeMap, ResidualLayer, Skip, Unrecognised, branch_gain
from skiplens.theory.hypotheses.facts import Case
from skiplens.theory.hypotheses.verdicts import CheckedHypothesis, Evidence, judged
from skiplens.theory.parameterised_systems import Affine, Parameterisation

ISOMETRY = 1e-12
"""The theory's demand in float64."""


def regularity_checks(case: Case) -> tuple[CheckedHypothesis, ...]:
    """R1 to R6."""
    return (_widths(case), _skips(case), _gains(case), _samples(case), _first_layer(case), _all_have_skips(case))


def residual_layers(case: Case) -> list[ResidualLayer]:
    """The residual layers, in order."""
    return [layer for layer in case.layers if isinstance(layer, ResidualLayer)]


def largest_gain(case: Case) -> tuple[float, list[str], list[str]]:
    """The largest bound of a branch's slope, the layers where it is not below 1 and those where it is not known.

    A branch with parts that are not recognised fails if a slope of 1 or more was measured.
    """
    gains = {layer.name: branch_gain(layer, case.data.samples) for layer in residual_layers(case)}
    lowest = {name: one.gain for name, one in case.sampled_gains.items() if one.is_lower_bound}
    known = {name: gain for name, gain in gains.items() if gain is not None}
    known |= {name: lowest[name] for name in gains if name not in known and lowest.get(name, 0.0) >= 1}
    failing = [name for name, gain in known.items() if not gain < 1]
    return max(known.values(), default=0.0), failing, [name for name in gains if name not in known]


def _widths(case: Case) -> CheckedHypothesis:
    behind = case.layers[1:]
    growing = [layer.name for layer in behind if layer.outputs > layer.inputs]
    number = max((layer.outputs / layer.inputs for layer in behind), default=1.0)
    return judged(
        "R1",
        Evidence(growing, (), number),
        "widths after the first layer never grow",
        "more outputs than inputs: the Jacobian has more rows than columns and cannot be onto",
        "Make the first layer as wide as the widest layer, and never widen after it.",
    )


def _skips(case: Case) -> CheckedHypothesis:
    layers = residual_layers(case)
    verdicts = {layer.name: is_isometric(layer.skip) for layer in layers}
    failing = [layer for layer in layers if verdicts[layer.name] is False]
    unknown = [name for name, good in verdicts.items() if good is None]
    values = [value for layer in layers for value in (layer.skip.smallest, layer.skip.largest) if value is not None]
    farthest = max(values, key=lambda value: abs(value - 1), default=None)
    return judged(
        "R2",
        Evidence([layer.name for layer in failing], unknown, farthest, "its singular values are not known"),
        "all skips are isometric" if layers else "there is no skip (see R6)",
        "; ".join(sorted({_why_not(layer.skip) for layer in failing})),
        "Use the identity where widths agree, Truncation or IsometricPool where they shrink, without parameters.",
    )


def is_isometric(skip: Skip) -> bool | None:
    """Whether all singular values of a fixed linear skip are 1; None if that is not known."""
    if skip.is_linear is False or skip.parameters:
        return False
    if skip.smallest is not None and skip.largest is not None:
        return abs(skip.smallest - 1) <= ISOMETRY and abs(skip.largest - 1) <= ISOMETRY
    if skip.deviation is not None:
        return skip.deviation <= ISOMETRY
    return None


def _why_not(skip: Skip) -> str:
    if skip.is_linear is False:
        return f"the skip ({skip.what}) is not linear"
    if skip.parameters:
        return f"the skip ({skip.what}) has trained parameters"
    if skip.smallest is not None and skip.largest is not None:
        return f"singular values from {skip.smallest:.3g} to {skip.largest:.3g}"
    return f"I Iᵀ differs from the identity by {skip.deviation:.3g} on a random vector"


def _gains(case: Case) -> CheckedHypothesis:
    number, failing, unknown = largest_gain(case)
    sampled = max((one.gain for one in case.sampled_gains.values()), default=None)
    checked = judged(
        "R3",
        Evidence(failing, unknown, None if unknown and not failing else number),
        f"slopes are at most {number:.4g} for all parameters"
        if residual_layers(case)
        else "there is no branch (see R6)",
        f"the product of the layers' bounds, or a measured slope, is {number:.4g}",
        "Normalise the maps of the branch, use slopes of at most 1, and scale its last map (contraction_factor).",
    )
    return replace(checked, sampled=sampled)


def _samples(case: Case) -> CheckedHypothesis:
    data, independent = case.data, case.data.are_independent
    too_many = data.samples > data.features
    why = f"{data.samples} samples, {data.features} features" if too_many else "the samples are linearly dependent"
    change = f"Train on at most {data.features} samples, or add features." if too_many else "Drop repeated samples."
    return judged(
        "R4",
        Evidence(
            ["the data"] if independent is False else [],
            ["the data"] if independent is None else [],
            data.smallest,
            "the inputs are not one matrix of numbers, or too large for singular values",
            "Compute the rank of the data by hand.",
        ),
        f"{data.samples} independent samples of {data.features} features",
        why,
        change,
    )


def _first_layer(case: Case) -> CheckedHypothesis:
    first = case.layers[0]
    onto = is_onto(first)
    unknown = [f"{first.name} ({first.what})"] if isinstance(first, Unrecognised) else []
    return judged(
        "R5",
        Evidence([first.name] if onto is False else [], unknown, _smallest_derivative(case)),
        "the first layer is affine and has a parameter for each entry of its matrix",
        "its parameters do not reach every matrix (a convolution shares them), or it is not affine",
        "Start with a fully connected layer: nn.Linear(features, width, bias=False).",
    )


def is_onto(first: Description) -> bool | None:
    """Whether the first layer is affine with a derivative onto all matrices; None if it is not known."""
    if isinstance(first, Unrecognised):
        return None
    matrix = first.parameterisation if isinstance(first, Affine) else first
    return isinstance(matrix, Parameterisation | FreeMap) and matrix.parameters >= matrix.outputs * matrix.inputs


def _smallest_derivative(case: Case) -> float | None:
    first = case.layers[0]
    if is_onto(first) is False:
        return 0.0
    if case.first_weights is None or not isinstance(first, Affine):
        return None
    return first.parameterisation.smallest_derivative(case.first_weights[: first.parameterisation.parameters])


def _all_have_skips(case: Case) -> CheckedHypothesis:
    bare = [layer for layer in case.layers[1:] if not isinstance(layer, ResidualLayer)]
    return judged(
        "R6",
        Evidence([layer.name for layer in bare], (), float(len(bare))),
        "every layer after the first is residual",
        "a layer without skip may lose directions: heads, pooling, norms and activations between blocks count",
        "Move activations and norms into the branches, and let the last block give the outputs.",
    )
