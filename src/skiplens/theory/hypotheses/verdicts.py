"""What a check says: the verdict, the number behind it, where it comes from and what would change it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["holds", "fails", "cannot be decided"]


@dataclass(frozen=True)
class Hypothesis:
    """A hypothesis of one of the theorems; `number` says what is measured."""

    label: str
    theorem: str
    statement: str
    number: str


HYPOTHESES = {
    entry.label: entry
    for entry in (
        Hypothesis("S1", "4.5", "nonlinearities have a derivative that is locally Lipschitz", "kinks"),
        Hypothesis(
            "S2", "4.5", "affine maps are normalised with epsilon above 0, without free bias or scale", "free maps"
        ),
        Hypothesis(
            "S3",
            "4.5",
            "norms have epsilon above 0; batch norm comes after normalised maps or on data with full covariance",
            "batch norms",
        ),
        Hypothesis("S4", "4.5", "the cost's gradient is bounded and Lipschitz on sublevel sets", "-"),
        Hypothesis("S5", "4.5", "residual branches are made of such layers", "bad branches"),
        Hypothesis("S6", "4.5", "a finite smoothness of the loss is certified", "beta"),
        Hypothesis("R1", "4.7", "layers after the first never grow", "largest outputs/inputs"),
        Hypothesis("R2", "4.7", "skips are linear with all singular values 1", "singular value farthest from 1"),
        Hypothesis("R3", "4.7", "branches have slopes below 1 for all parameters", "largest slope"),
        Hypothesis("R4", "4.7", "there are at most as many samples as features, and they are independent", "sigma(X)"),
        Hypothesis("R5", "4.7", "the first layer is affine and its parameters reach every matrix", "sigma(DP)"),
        Hypothesis("R6", "4.7", "every layer after the first has a skip", "layers without skip"),
        Hypothesis("G1", "5.1", "all hypotheses of theorems 4.5 and 4.7 hold", "not holding"),
        Hypothesis("G2", "5.1", "the first layer is entry-normalised", "epsilon"),
        Hypothesis("G3", "5.1", "nonlinearities have slopes of at most 1", "largest slope"),
        Hypothesis("G4", "5.1", "one margin below 1 holds for all branches and parameters", "margin"),
        Hypothesis("G5", "5.1", "the cost is convex with a Polyak-Lojasiewicz inequality on bounded sets", "-"),
        Hypothesis("G6", "5.1", "the step size is below 2/beta", "2/beta"),
    )
}
"""The hypotheses in the order of the theorems: smoothness, regularity, convergence."""


@dataclass(frozen=True)
class CheckedHypothesis:
    """One hypothesis with its verdict.

    Attributes:
        hypothesis: What was checked.
        verdict: Holds, fails or cannot be decided.
        number: What was measured, None if there is nothing to measure.
        where: Names of the layers that it fails at, or that are not known.
        reason: Why, in a sentence.
        change: The smallest change that would make it hold; '' where it holds.
        sampled: What the number is at the present parameters, where it is a bound for all of them.
    """

    hypothesis: Hypothesis
    verdict: Verdict
    number: float | None
    where: tuple[str, ...]
    reason: str
    change: str = ""
    sampled: float | None = None

    @property
    def label(self) -> str:
        """The short name, such as S1."""
        return self.hypothesis.label

    @property
    def holds(self) -> bool:
        """Whether the verdict is that it holds."""
        return self.verdict == "holds"


@dataclass(frozen=True)
class Evidence:
    """What a check found: the layers that break the hypothesis and those that may.

    Attributes:
        failing: Names of what breaks it.
        unknown: Names of what leaves it open.
        number: What was measured.
        why_open: Why it is open.
        ask: What would close it.
    """

    failing: Sequence[str] = ()
    unknown: Sequence[str] = ()
    number: float | None = None
    why_open: str = "these parts are not recognised"
    ask: str = "Replace them by layers that are recognised, or judge them by hand."

    @property
    def verdict(self) -> Verdict:
        """One failing layer is enough; one unknown layer leaves it open."""
        return "fails" if self.failing else "cannot be decided" if self.unknown else "holds"


def judged(label: str, evidence: Evidence, good: str, bad: str, change: str) -> CheckedHypothesis:
    """The verdict of the evidence with the sentence that fits it.

    Args:
        label: Short name of the hypothesis.
        evidence: What was found.
        good: The reason if it holds.
        bad: The reason if it fails.
        change: What to do if it fails.
    """
    hypothesis, number, verdict = HYPOTHESES[label], evidence.number, evidence.verdict
    if verdict == "holds":
        return CheckedHypothesis(hypothesis, verdict, number, (), good)
    names = tuple(dict.fromkeys(evidence.failing if verdict == "fails" else evidence.unknown))
    if verdict == "fails":
        return CheckedHypothesis(hypothesis, verdict, number, names, bad, change)
    return CheckedHypothesis(hypothesis, verdict, number, names, evidence.why_open, evidence.ask)


def listed(names: Sequence[str], most: int = 3) -> str:
    """The first few names and how many more there are."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
