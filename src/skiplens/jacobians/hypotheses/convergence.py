"""Every hypothesis of the convergence theorems, checked on a described network."""

import math
from collections.abc import Sequence

from skiplens.jacobians.hypotheses.conditions import (
    is_harmless_first_layer,
    largest_gain,
    regularity_checks,
    residual_layers,
    smoothness_checks,
    unrecognised,
)
from skiplens.jacobians.hypotheses.descriptions import all_parts
from skiplens.jacobians.hypotheses.facts import Case, CheckedHypothesis, Evidence, judged
from skiplens.jacobians.systems.affine import Affine
from skiplens.jacobians.systems.elementwise import Elementwise
from skiplens.jacobians.systems.parameterisation import EntryNormalised


def check(case: Case) -> tuple[CheckedHypothesis, ...]:
    """One verdict for each hypothesis of theorems 4.5 (S), 4.7 (R) and 5.1 (G), in this order."""
    before = (*smoothness_checks(case), *regularity_checks(case))
    return (*before, *convergence_checks(case, before))


def what_follows(case: Case) -> str:
    """What the verdicts mean for gradient descent, in a sentence or two."""
    return conclusion(case, check(case))


def convergence_checks(case: Case, before: Sequence[CheckedHypothesis]) -> tuple[CheckedHypothesis, ...]:
    """G1 to G6; `before` are the checks of the other two theorems."""
    failing = [check.label for check in before if check.verdict == "fails"]
    unknown = [check.label for check in before if check.verdict == "cannot be decided"]
    all_before = judged(
        "G1",
        Evidence(failing, unknown, float(len(failing) + len(unknown))),
        "S1 to S6 and R1 to R6 hold",
        "hypotheses of theorems 4.5 or 4.7 fail",
        "Make the changes named there.",
    )
    return (all_before, *(check(case) for check in (_first_layer, _slopes, _margin, _cost, _step)))


def conclusion(case: Case, checks: Sequence[CheckedHypothesis]) -> str:
    """What follows for gradient descent; never that the printed theorem says so."""
    verdicts = {check.label: check.verdict for check in checks}
    needed = [label for label in verdicts if label not in ("G1", "G2", "G6")]
    failing = [label for label in needed if verdicts[label] == "fails"]
    unknown = [label for label in needed if verdicts[label] == "cannot be decided"]
    if failing:
        return f"Nothing is certified: {', '.join(failing)} {'fail' if len(failing) > 1 else 'fails'}."
    if unknown:
        return f"Nothing is certified: {', '.join(unknown)} cannot be decided."
    if is_harmless_first_layer(case):
        return (
            "Certified: this is the repaired network. Gradient descent with steps below 2/beta reaches the global "
            "minimum of the square cost and of cross-entropy from any start."
        )
    if verdicts["G2"] != "holds":
        return "Certified is that DF is onto everywhere: every critical point of the loss is a global minimum."
    return (
        "All hypotheses of theorem 5.1 hold, but the theorem as printed is false. What is true: the loss falls at "
        "every step; every critical point is a global minimum; convergence is linear while the first layer's weights "
        "stay bounded, and certified only if the sum of lambda(DF) diverges; cross-entropy cannot fall below a "
        "positive floor, because outputs are bounded. For a guarantee use the repaired network guaranteed_resnet."
    )


def _first_layer(case: Case) -> CheckedHypothesis:
    first = case.layers[0]
    entries = first.parameterisation if isinstance(first, Affine) and not first.has_bias else None
    epsilon = entries.epsilon if isinstance(entries, EntryNormalised) else None
    harmless = is_harmless_first_layer(case)
    why = "its first matrix is free: outside the printed theorem, inside the repaired one" if harmless else "it is not"
    change = "None is needed: the repaired network has a free first layer." if harmless else (
        "Use NormalisedLinear with entry normalisation, or the repaired network's plain first layer."
    )  # fmt: skip
    return judged("G2", Evidence([first.name] if epsilon is None else [], (), epsilon), "en(W) X", why, change)


def _slopes(case: Case) -> CheckedHypothesis:
    parts = list(all_parts(case.layers))
    slopes = {part.name: part.nonlinearity.slope for part in parts if isinstance(part, Elementwise)}
    steep = [name for name, slope in slopes.items() if slope > 1]
    largest = max(slopes.values(), default=0.0)
    return judged(
        "G3",
        Evidence(steep, unrecognised(parts), largest),
        "no slope above 1",
        f"a slope of {largest:.6g}",
        "Divide the nonlinearity by its largest slope, or use tanh.",
    )


def _margin(case: Case) -> CheckedHypothesis:
    gain, failing, unknown = largest_gain(case)
    without = [] if residual_layers(case) else ["no residual layer"]
    return judged(
        "G4",
        Evidence(failing or without, unknown, 1 - gain if math.isfinite(gain) and (failing or not unknown) else None),
        f"all branches have slopes of at most 1 - {1 - gain:.4g}",
        "no margin holds for all parameters",
        "Scale the last map of each branch so that R3 holds with a margin.",
    )


def _cost(case: Case) -> CheckedHypothesis:
    known = (case.cost.is_convex, case.cost.has_lipschitz_gradient, case.cost.is_dominated)
    name = case.cost.name
    return judged(
        "G5",
        Evidence(
            [name] if False in known else [],
            [name] if None in known else [],
            why_open="this loss is not known",
            ask="Use the square cost or cross-entropy, or judge it by hand.",
        ),
        f"{name} has all of it",
        f"{name} is not convex with a Lipschitz gradient, or has no such inequality near its minimum",
        "Use the square cost or cross-entropy.",
    )


def _step(case: Case) -> CheckedHypothesis:
    beta, step = case.smoothness, case.step
    if beta is None or step is None:
        missing, ask = ("the smoothness", "See S6.") if beta is None else ("the step size", "")
        if beta is not None:
            ask = f"Give a step size; any below {2 / beta if beta else math.inf:.4g} is certified."
        evidence = Evidence((), [missing], None if beta is None else 2 / beta, f"{missing} is not known", ask)
        return judged("G6", evidence, "", "", "")
    limit = 2 / beta
    return judged(
        "G6",
        Evidence([f"step {step:.4g}"] if not step < limit else [], (), limit),
        f"{step:.4g} is below {limit:.4g}",
        f"{step:.4g} is not below {limit:.4g}" if limit else "no step is certified, because no smoothness is (S6)",
        f"Use a step below {limit:.4g}; larger ones may work, but nothing is certified." if limit else "See S6.",
    )
