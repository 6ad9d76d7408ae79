"""What the theorems ask about the data, the cost and the step size."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.core.errors import InvalidInputError
from skiplens.theory.hypotheses.descriptions import Description, chain_certificate
from skiplens.theory.parameterised_systems import Certificate, DataBound
from skiplens.theory.parameterised_systems.certificate import product
from skiplens.theory.smoothness import Cost


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
