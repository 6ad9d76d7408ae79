"""What the theorems ask about: layers, data, cost and step size, known or not known; the hypotheses, and verdicts."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from skiplens.base import Float, InvalidInputError, refuse_if
from skiplens.jacobians.systems.costs import Cost
from skiplens.jacobians.systems.elementwise import Residual, SkipMap
from skiplens.jacobians.systems.layer import Certificate, Composition, DataBound, Layer, composed, product
from skiplens.jacobians.systems.smoothness import smoothness_constant


@dataclass(frozen=True)
class Unrecognised:
    """A part about which nothing is known; `what` says what it is."""

    name: str
    what: str
    inputs: int
    outputs: int


@dataclass(frozen=True)
class FreeMap:
    """An affine map whose trained numbers are neither bounded nor one for each entry of its matrix: a convolution."""

    name: str
    inputs: int
    outputs: int
    parameters: int
    """Trained numbers of the matrix."""
    fan_in: int
    """Entries that one output is made of."""


@dataclass(frozen=True)
class LinearMap:
    """A linear map without parameters (pooling, selection); `gain` is its largest singular value, None if not known."""

    name: str
    inputs: int
    outputs: int
    gain: float | None


@dataclass(frozen=True)
class Kinked:
    """A map without parameters that is not differentiable, such as max pooling; `gain` bounds its slopes."""

    name: str
    what: str
    inputs: int
    outputs: int
    gain: float | None = None


@dataclass(frozen=True)
class Skip:
    """The shortcut of a residual layer; `what` it is in words: identity, truncation, projection, …."""

    what: str
    inputs: int
    outputs: int
    is_linear: bool | None = True
    """Whether it is a linear map of each sample; None if that is not known."""
    parameters: int = 0
    """Number of trained parameters in it."""
    smallest: float | None = None
    """Smallest of its min(inputs, outputs) singular values, None if not known."""
    largest: float | None = None
    deviation: float | None = None
    """|I Iᵀ u − u|/|u| for a random u, where singular values are too many to compute: 0 for an isometry."""

    @classmethod
    def of_map(cls, skip: SkipMap) -> "Skip":
        """The description of a known linear skip map."""
        return cls("linear map", skip.inputs, skip.outputs, smallest=skip.smallest, largest=skip.largest)


@dataclass(frozen=True)
class ResidualLayer:
    """Skip plus branch; the parts of the branch in order of execution."""

    name: str
    skip: Skip
    branch: tuple["Description", ...]

    @property
    def inputs(self) -> int:
        """Features that enter."""
        return self.skip.inputs

    @property
    def outputs(self) -> int:
        """Features that leave."""
        return self.skip.outputs


@dataclass(frozen=True)
class ParallelBranches:
    """Several branches with parameters of their own whose outputs are added; each is a list of parts."""

    name: str
    branches: tuple[tuple["Description", ...], ...]
    inputs: int
    outputs: int


Description = Layer | Unrecognised | FreeMap | LinearMap | Kinked | ResidualLayer | ParallelBranches


def describe(system: Layer) -> tuple[Description, ...]:
    """The descriptions of a multilayer parameterised system; nested compositions are written out."""
    if isinstance(system, Composition):
        return tuple(part for layer in system.layers for part in describe(layer))
    if isinstance(system, Residual):
        return (ResidualLayer(system.name, Skip.of_map(system.skip), describe(system.branch)),)
    return (system,)


def all_parts(layers: Iterable[Description]) -> Iterator[Description]:
    """Every layer and every part of a branch, in order of execution; a residual layer comes after its parts."""
    for layer in layers:
        if isinstance(layer, ResidualLayer):
            yield from all_parts(layer.branch)
        if isinstance(layer, ParallelBranches):
            yield from (part for branch in layer.branches for part in all_parts(branch))
        yield layer


def certificate_of(description: Description, bound: DataBound) -> Certificate | None:
    """Bounds over all parameters, or None where something is not known."""
    if isinstance(description, ResidualLayer):
        branch, skip = chain_certificate(description.branch, bound), description.skip
        if branch is None or skip.largest is None or not skip.is_linear or skip.parameters:
            return None
        size = product(skip.largest, bound.frobenius) + branch.size
        return replace(branch, size=size, gain=skip.largest + branch.gain)
    if isinstance(description, ParallelBranches):
        chains = [chain_certificate(branch, bound) for branch in description.branches]
        terms = [term for term in chains if term is not None]
        return _added(terms) if len(terms) == len(chains) else None
    if isinstance(description, LinearMap | Kinked):
        gain, bend = description.gain, math.inf if isinstance(description, Kinked) else 0.0
        return None if gain is None else Certificate(product(gain, bound.frobenius), 0.0, gain, 0.0, 0.0, bend)
    if isinstance(description, FreeMap):
        return Certificate(math.inf, math.inf, math.inf, 0.0, 1.0, 0.0)
    return None if isinstance(description, Unrecognised) else description.certificate(bound)


def chain_certificate(layers: Iterable[Description], bound: DataBound) -> Certificate | None:
    """Bounds of layers one after the other, or None where something is not known."""
    found: list[Certificate] = []
    for layer in layers:
        certificate = certificate_of(layer, bound)
        if certificate is None:
            return None
        found.append(certificate)
        bound = DataBound.of_radius(certificate.size, bound.samples)
    return composed(found) if found else Certificate(bound.frobenius, 0.0, 1.0, 0.0, 0.0, 0.0)


def branch_gain(layer: ResidualLayer, samples: int) -> float | None:
    """An upper bound of |Jg|_2 over all parameters and data, or None if something in the branch is not known."""
    certificate = chain_certificate(layer.branch, DataBound.of_radius(math.inf, samples))
    return None if certificate is None else certificate.gain


def _added(terms: Sequence[Certificate]) -> Certificate:
    """Sums, and roots of sums of squares for derivatives in parameters, which the branches do not share."""
    return Certificate(
        size=sum(term.size for term in terms),
        slope=math.hypot(*(term.slope for term in terms)),
        gain=sum(term.gain for term in terms),
        curvature=max(term.curvature for term in terms),
        mixed=math.hypot(*(term.mixed for term in terms)),
        bend=sum(term.bend for term in terms),
    )


@dataclass(frozen=True)
class DataFacts:
    """What is known of a data matrix of features × samples; None where it is not known."""

    samples: int
    features: int
    smallest: float | None = None
    """The smallest of the min(samples, features) singular values."""
    largest: float | None = None
    covariance: float | None = None
    """Smallest eigenvalue of the covariance of the features; 0 where there are no more samples than features."""
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
        values, covariance = torch.linalg.svdvals(data), 0.0
        if samples > features:
            covariance = float(torch.linalg.svdvals(data - data.mean(1, keepdim=True))[-1] ** 2 / samples)
        return cls(samples, features, float(values[-1]), float(values[0]), covariance, DataBound.of_data(data))

    @property
    def are_independent(self) -> bool | None:
        """Whether the samples are linearly independent."""
        if self.samples > self.features:
            return False
        return None if self.smallest is None or self.largest is None else self.smallest > self.tolerance

    @property
    def tolerance(self) -> float:
        """Singular values below this number are zero up to rounding."""
        return max(self.samples, self.features) * torch.finfo(torch.float64).eps * (self.largest or 0.0)


@dataclass(frozen=True)
class CostFacts:
    """What is known of a cost; None where it is not known."""

    name: str
    is_convex: bool | None = None
    """Whether it is convex and differentiable."""
    has_lipschitz_gradient: bool | None = None
    """Whether its gradient is bounded and Lipschitz on sublevel sets."""
    is_dominated: bool | None = None
    """Whether it has the Polyak–Łojasiewicz inequality on bounded sets of outputs."""
    cost: Cost | None = None
    """The cost itself, for numbers."""

    @classmethod
    def of_cost(cls, cost: Cost) -> "CostFacts":
        """The facts of a cost of Skiplens: all of them meet the hypotheses."""
        return cls(cost.name, True, True, True, cost)


@dataclass(frozen=True)
class SampledGain:
    """|Jg|_2 of a branch as measured at some parameters and data."""

    gain: float
    is_lower_bound: bool = True
    """Whether the supremum is at least as large; not so if samples are coupled and only some of them were taken."""


@dataclass(frozen=True, eq=False)
class Case:
    """Everything a check looks at: the network, its training data, and what is minimised with which step."""

    layers: tuple[Description, ...]
    data: DataFacts
    cost: CostFacts
    step: float | None = None
    sublevel: float = math.inf
    """A loss that is not exceeded, the first loss of a run."""
    first_weights: Float[Tensor, " params"] | None = None
    """Parameters of the first layer, for the number of hypothesis R5."""
    sampled_gains: Mapping[str, SampledGain] = field(default_factory=dict)
    """Measured slopes of branches by the name of their layer, for hypothesis R3."""

    def __post_init__(self) -> None:
        """Refuse a network without layers or without outputs."""
        refuse_if(not self.layers, "There are no layers to check; describe at least one.")
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
        return None if total is None or cost is None else smoothness_constant(cost, total, self.sublevel)


Verdict = Literal["holds", "fails", "cannot be decided"]


@dataclass(frozen=True)
class Hypothesis:
    """A hypothesis of one of the theorems; `number` says what is measured."""

    label: str
    theorem: str
    statement: str
    number: str


_THEOREMS = {"S": "4.5", "R": "4.7", "G": "5.1"}
HYPOTHESES = {
    label: Hypothesis(label, _THEOREMS[label[0]], statement, number)
    for label, statement, number in json.loads(Path(__file__).with_name("hypotheses.json").read_text("utf-8"))
}
"""The hypotheses in the order of the theorems: smoothness, regularity, convergence."""


@dataclass(frozen=True)
class CheckedHypothesis:
    """One hypothesis with its verdict and the number behind it."""

    hypothesis: Hypothesis
    verdict: Verdict
    number: float | None
    where: tuple[str, ...]
    """Names of the layers that it fails at, or that are not known."""
    reason: str
    change: str = ""
    """The smallest change that would make it hold; '' where it holds."""
    sampled: float | None = None
    """What the number is at the present parameters, where it is a bound for all of them."""

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
    """What a check found: names of what breaks the hypothesis and of what leaves it open, why, and what would close it.

    One failing layer is enough; one unknown layer leaves it open.
    """

    failing: Sequence[str] = ()
    unknown: Sequence[str] = ()
    number: float | None = None
    why_open: str = "these parts are not recognised"
    ask: str = "Replace them by layers that are recognised, or judge them by hand."
    sampled: float | None = None  # what the number is at the present parameters


def judged(label: str, evidence: Evidence, good: str, bad: str, change: str) -> CheckedHypothesis:
    """The verdict of the evidence with its reason, `good` or `bad`, and the `change` to make where it fails."""
    hypothesis, number, sampled = HYPOTHESES[label], evidence.number, evidence.sampled
    where = tuple(dict.fromkeys(evidence.failing or evidence.unknown))
    if evidence.failing:
        return CheckedHypothesis(hypothesis, "fails", number, where, bad, change, sampled)
    if not evidence.unknown:
        return CheckedHypothesis(hypothesis, "holds", number, (), good, "", sampled)
    reason, ask = evidence.why_open, evidence.ask
    return CheckedHypothesis(hypothesis, "cannot be decided", number, where, reason, ask, sampled)
