"""Checks of theorem 4.5: is the gradient of the loss Lipschitz?"""

import math
from collections.abc import Iterator, Sequence

from skiplens.theory.hypotheses.descriptions import (
    Description,
    FreeMap,
    Kinked,
    ResidualLayer,
    Unrecognised,
    all_parts,
)
from skiplens.theory.hypotheses.facts import Case
from skiplens.theory.hypotheses.verdicts import CheckedHypothesis, Evidence, judged, listed
from skiplens.theory.parameterised_systems import Affine, BatchNorm, Elementwise, Free, SampleNorm, ScaleShift

_NORMALISE = "Normalise the map in front of it; then no covariance is needed."


def smoothness_checks(case: Case) -> tuple[CheckedHypothesis, ...]:
    """S1 to S6."""
    return (
        _nonlinearities(case),
        _normalised_maps(case),
        _norms(case),
        _cost(case),
        _branches(case),
        _certificate(case),
    )


def has_kink(part: Description) -> bool:
    """Whether the part has no Lipschitz derivative."""
    return isinstance(part, Kinked) or (isinstance(part, Elementwise) and not part.nonlinearity.is_smooth)


def is_free(part: Description) -> bool:
    """Whether the part has parameters that are not normalised."""
    if isinstance(part, Affine):
        return part.has_bias or not part.parameterisation.is_normalised
    return isinstance(part, ScaleShift | FreeMap)


def lacks_epsilon(part: Description) -> bool:
    """Whether the part is a norm that divides by zero somewhere."""
    return isinstance(part, BatchNorm | SampleNorm) and part.epsilon == 0


def is_unbounded(part: Description) -> bool:
    """Whether first or second derivatives of the part have no bound."""
    return has_kink(part) or is_free(part) or lacks_epsilon(part)


def unrecognised(parts: Sequence[Description]) -> list[str]:
    """Names of the parts about which nothing is known, with what they are."""
    return [f"{part.name} ({part.what})" for part in parts if isinstance(part, Unrecognised)]


def is_harmless_first_layer(case: Case) -> bool:
    """Whether a free first matrix does no harm: its data are fixed, and all layers behind bound what they take."""
    first = case.layers[0]
    if not isinstance(first, Affine) or first.has_bias or not isinstance(first.parameterisation, Free):
        return False
    return case.certificate is not None and case.certificate.is_finite


def _nonlinearities(case: Case) -> CheckedHypothesis:
    parts = list(all_parts(case.layers))
    bad = [part for part in parts if has_kink(part)]
    names = [part.name for part in bad]
    kinds = sorted({part.nonlinearity.name if isinstance(part, Elementwise) else part.what for part in bad})  # type: ignore[union-attr]  # bad parts are one or the other
    return judged(
        "S1",
        Evidence(names, unrecognised(parts), float(len(bad))),
        "every nonlinearity is smooth",
        f"{listed(kinds)} has a kink: its derivative jumps",
        f"Use tanh (or softplus) in place of {listed(kinds)}.",
    )


def _normalised_maps(case: Case) -> CheckedHypothesis:
    parts = list(all_parts(case.layers))
    bad = [part for part in parts if is_free(part)]
    harmless = is_harmless_first_layer(case)
    if harmless:
        bad = [part for part in bad if part is not case.layers[0]]
    good = "the first matrix is free, which does no harm: its data are fixed" if harmless else "all maps are normalised"
    return judged(
        "S2",
        Evidence([part.name for part in bad], unrecognised(parts), float(len(bad))),
        good,
        f"{listed(_why_free(bad))}: derivatives are unbounded",
        "Use NormalisedLinear or NormalisedConv2d without bias, and norms without scale and shift (affine=False).",
    )


def _why_free(parts: Sequence[Description]) -> list[str]:
    return sorted({_why_one_is_free(part) for part in parts})


def _why_one_is_free(part: Description) -> str:
    if isinstance(part, ScaleShift):
        return "scale and shift of a norm"
    if isinstance(part, Affine) and part.parameterisation.is_normalised:
        return "free biases"
    return "matrices without normalisation"


def _norms(case: Case) -> CheckedHypothesis:
    rows = list(_batch_norms_with_map(case.layers))
    verdicts = [(norm.name, _batch_norm_is_smooth(case, norm, before)) for norm, before in rows]
    zero = [part.name for part in all_parts(case.layers) if lacks_epsilon(part)]
    singular = [name for name, good in verdicts if good is False and name not in zero]
    covariance = "its map is not normalised and its inputs have no more samples than features: a singular covariance"
    why = ["its epsilon is 0, so it divides by zero at constant inputs"] * bool(zero) + [covariance] * bool(singular)
    change = ["Give it an epsilon above 0."] * bool(zero) + [_NORMALISE] * bool(singular)
    unknown = "its map is not normalised, and the covariance of its inputs changes as layers before it are trained"
    return judged(
        "S3",
        Evidence(
            [*zero, *singular], [name for name, good in verdicts if good is None], float(len(rows)), unknown, _NORMALISE
        ),
        "there is no batch norm" if not rows else "each comes after a normalised map, or on data with full covariance",
        "; ".join(why),
        " ".join(change),
    )


def _batch_norms_with_map(layers: Sequence[Description]) -> Iterator[tuple[BatchNorm, Affine | FreeMap | None]]:
    """Each batch norm with the affine map whose outputs it takes, or None if it takes something else."""
    before: Description | None = None
    for part in all_parts(layers):
        if isinstance(part, BatchNorm):
            yield part, before if isinstance(before, Affine | FreeMap) else None
        before = part


def _batch_norm_is_smooth(case: Case, norm: BatchNorm, before: Affine | FreeMap | None) -> bool | None:
    if before is None or (isinstance(before, Affine) and before.parameterisation.is_normalised):
        return True
    fan_in = before.fan_in if isinstance(before, FreeMap) else before.inputs
    if case.data.samples * norm.positions <= fan_in:  # centred data have a rank below the number of samples
        return False
    if before is case.layers[0] and isinstance(before, Affine):
        covariance = case.data.covariance
        return None if covariance is None else covariance > case.data.tolerance
    return None


def _cost(case: Case) -> CheckedHypothesis:
    known, name = case.cost.has_lipschitz_gradient, case.cost.name
    return judged(
        "S4",
        Evidence([name] if known is False else [], [name] if known is None else [], None, "this loss is not known"),
        f"{name}: the gradient is bounded and Lipschitz on sublevel sets",
        f"the gradient of {name} jumps or is unbounded",
        "Use the square cost or cross-entropy.",
    )


def _branches(case: Case) -> CheckedHypothesis:
    failing, unknown = [], []
    for layer in case.layers:
        if isinstance(layer, ResidualLayer):
            parts = list(all_parts(layer.branch))
            if any(map(is_unbounded, parts)):
                failing.append(layer.name)
            elif unrecognised(parts):
                unknown.append(layer.name)
    return judged(
        "S5",
        Evidence(failing, unknown, float(len(failing))),
        "all branches are made of smooth normalised layers",
        "branches hold kinks, maps that are not normalised or norms without epsilon (S1 to S3)",
        "Change the layers that S1 to S3 name.",
    )


def _certificate(case: Case) -> CheckedHypothesis:
    beta, parts = case.smoothness, list(all_parts(case.layers))
    infinite = [part.name for part in parts if is_unbounded(part)]
    fails = (infinite or ["the outputs"]) if beta is not None and math.isinf(beta) else []
    if beta is None and any(part is not case.layers[0] for part in parts if is_unbounded(part)):
        fails = infinite  # whatever the unknown parts are
    unknown = unrecognised(parts) or ["the data, the cost or a skip"]
    return judged(
        "S6",
        Evidence(fails, unknown if beta is None else [], beta, "no constant can be computed"),
        f"steps below {2 / beta if beta else math.inf:.4g} never increase the loss",
        "the recursion over the layers gives no finite constant",
        "Change the layers that S1 to S3 name; with unbounded outputs, give the first loss as sublevel.",
    )
