"""What the theorems ask about the data, the cost and the step size."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from skiplens.base.axes import Float
from skiplens.base.errors import InvalidInputError
from skiplens.jacobians.hypotheses.descriptions import Description, chain_certificate
from skiplens.jacobians.systems.costs import Cost
from skiplens.jacobians.systems.layer import Certificate, DataBound, product


@dataclass(frozen=True)
class DataFacts:
    """What is known of a data matrix of features × samples.

    Attributes:
        samples: N.
        features: d_0.
        smallest: The smallest of the min(N, d_0) singular values, None if not known.
        largest: The largest, None if not known.
        covariance: Smallest eigenvalue of the covariance of the features; 0 when N <= d_0, None if not known.
        bound: Its norms, None if not known.
    """

    samples: int
    features: int
    smallest: float | None = None
    largest: float | None = None
    covariance: float | None = None
    bound: DataBound | None = None

    @classmethod
    def of_matrix(cls, data: Float[Tensor, "features samples"]) -> "DataFacts":
        """The facts of a matrix that is there in full."""
        features, samples = data.shape
        if data.numel() == 0:
            raise InvalidInputError(
                f"The data matrix has {features} features and {samples} samples; it needs at least one of each."
            )
        if not bool(torch.isfinite(data).all()):
            raise InvalidInputError(
                "The data matrix has NaN or infinite entries; finite numbers were wanted. Drop them."
            )
        values = torch.linalg.svdvals(data)
        return cls(
            samples,
            features,
            float(values[-1]),
            float(values[0]),
            _covariance(data) if samples > features else 0.0,
            DataBound.of_data(data),
        )

    @property
    def are_independent(self) -> bool | None:
        """Whether the samples are linearly independent."""
        if self.samples > self.features:
            return False
        if self.smallest is None or self.largest is None:
            return None
        return self.smallest > self.tolerance

    @property
    def tolerance(self) -> float:
        """Singular values below this number are zero up to rounding."""
        return max(self.samples, self.features) * torch.finfo(torch.float64).eps * (self.largest or 0.0)


@dataclass(frozen=True)
class CostFacts:
    """What is known of a cost; None where it is not known.

    Attributes:
        name: What people call it.
        is_convex: Whether it is convex and differentiable.
        has_lipschitz_gradient: Whether its gradient is bounded and Lipschitz on sublevel sets.
        is_dominated: Whether it has the Polyak–Łojasiewicz inequality on bounded sets of outputs.
        cost: The cost itself, for numbers.
    """

    name: str
    is_convex: bool | None = None
    has_lipschitz_gradient: bool | None = None
    is_dominated: bool | None = None
    cost: Cost | None = None

    @classmethod
    def of_cost(cls, cost: Cost) -> "CostFacts":
        """The facts of a cost of Skiplens: all of them meet the hypotheses."""
        return cls(cost.name, True, True, True, cost)


@dataclass(frozen=True)
class SampledGain:
    """|Jg|_2 of a branch as measured at some parameters and data.

    Attributes:
        gain: The number.
        is_lower_bound: Whether the supremum is at least as large; not so if samples are coupled and only some of them
            were taken.
    """

    gain: float
    is_lower_bound: bool = True


@dataclass(frozen=True, eq=False)
class Case:
    """Everything a check looks at.

    Attributes:
        layers: The network.
        data: Its training data.
        cost: What is minimised.
        step: Step size of gradient descent, if one is asked about.
        sublevel: A loss that is not exceeded, the first loss of a run.
        first_weights: Parameters of the first layer, for the number of hypothesis R5.
        sampled_gains: Measured slopes of branches by the name of their layer, for hypothesis R3.
    """

    layers: tuple[Description, ...]
    data: DataFacts
    cost: CostFacts
    step: float | None = None
    sublevel: float = math.inf
    first_weights: Float[Tensor, " params"] | None = None
    sampled_gains: Mapping[str, SampledGain] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a network without layers or without outputs."""
        if not self.layers:
            raise InvalidInputError("There are no layers to check; describe at least one.")
        empty = [layer.name for layer in self.layers if layer.outputs < 1]
        if empty:
            raise InvalidInputError(f"{empty[0]} has no outputs, so nothing can be said about it. Remove it.")

    @cached_property
    def certificate(self) -> Certificate | None:
        """Bounds of the whole network on these data, or None where something is not known."""
        return None if self.data.bound is None else chain_certificate(self.layers, self.data.bound)

    @cached_property
    def smoothness(self) -> float | None:
        """The certified Lipschitz constant of the gradient, or None where something is not known."""
        total, cost = self.certificate, self.cost.cost
        if total is None or cost is None:
            return None
        G = cost.gradient_bound(total.size, self.sublevel)
        return cost.gradient_lipschitz * total.slope**2 + product(G, total.curvature)


def _covariance(data: Tensor) -> float:
    centred = data - data.mean(1, keepdim=True)
    return float(torch.linalg.svdvals(centred)[-1] ** 2 / data.shape[1])


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
