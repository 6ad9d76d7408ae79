"""Pictures of the theorem: how many hypotheses hold, and what is certified at which depth."""

import math
from collections.abc import Sequence
from dataclasses import replace

from skiplens.explorer.views.jacobians.theorem import TheoremOptions, case_of
from skiplens.figures import Bars, Figure, Line, Reference
from skiplens.figures.figure import numbers
from skiplens.theory.hypotheses import CheckedHypothesis
from skiplens.theory.hypotheses.regularity_checks import largest_gain, regularity_checks

BLOCKS = tuple(range(1, 9))
THEOREMS = {"4.5": "smoothness (4.5)", "4.7": "regularity (4.7)", "5.1": "convergence (5.1)"}
VERDICTS = ("holds", "fails", "cannot be decided")


def verdicts_by_theorem(checks: Sequence[CheckedHypothesis]) -> Figure:
    """How many hypotheses of each theorem hold."""
    counted = {
        verdict: [sum(one.hypothesis.theorem == theorem and one.verdict == verdict for one in checks)
                  for theorem in THEOREMS]
        for verdict in VERDICTS
    }  # fmt: skip
    labels = tuple(THEOREMS.values())
    return Figure(
        name="verdicts",
        title="Hypotheses that hold",
        caption="Six hypotheses of each theorem. All of smoothness and regularity together make every critical point "
        "a global minimum; one that fails leaves nothing certified, though training may well work.",
        x_label="theorem",
        y_label="hypotheses",
        marks=tuple(Bars(labels, numbers(counts), verdict) for verdict, counts in counted.items() if any(counts)),
    )


def certified_step(options: TheoremOptions) -> Figure | None:
    """The largest certified step against the number of blocks; None where no smoothness is certified."""
    steps = [2 / beta if beta else math.nan for beta in map(_smoothness, _of_all_depths(options))]
    if not any(step > 0 for step in steps):
        return None
    return Figure(
        name="certified_step",
        title="Largest step that is certified",
        caption="Steps of gradient descent below this number lower the loss from any weights whatsoever. It is the "
        "price of a worst case: in practice far larger steps work.",
        x_label="residual blocks",
        y_label="step 2/β",
        marks=(
            Line(numbers(BLOCKS), numbers(steps)),
            Reference(float(options.blocks), f"{options.blocks} blocks", "x"),
        ),
        y_log=True,
    )


def certified_slope(options: TheoremOptions) -> Figure | None:
    """The share of λ(DF) that all blocks together are certified to keep; None where theorem 4.7 does not apply."""
    kept = [kept_by_blocks(each) for each in _of_all_depths(options)]
    if not any(share > 0 for share in kept):
        return None
    return Figure(
        name="certified_slope",
        title="Slope that the blocks are certified to keep",
        caption="Each block keeps at least δ² of the squared slope that reaches it, so the guarantee fades with depth; "
        "a larger margin δ (weaker branches) keeps more of it.",
        x_label="residual blocks",
        y_label="kept share of λ(DF)",
        marks=(Line(numbers(BLOCKS), numbers(kept)), Reference(float(options.blocks), f"{options.blocks} blocks", "x")),
        y_log=True,
    )


def kept_by_blocks(options: TheoremOptions) -> float:
    """∏ (1 − |Jg|)² with the bound of |Jg| that holds for all parameters; 0 where theorem 4.7 does not apply."""
    case = case_of(options)
    if not all(one.holds for one in regularity_checks(case)):
        return 0.0
    gain, _, _ = largest_gain(case)
    return (1 - gain) ** (2 * options.blocks)


def _smoothness(options: TheoremOptions) -> float | None:
    return case_of(options).smoothness


def _of_all_depths(options: TheoremOptions) -> list[TheoremOptions]:
    return [replace(options, blocks=blocks) for blocks in BLOCKS]
