"""Costs γ of an output matrix (classes × samples): means over the samples, with what the theorems need of them."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from skiplens.base import Float, Int, InvalidInputError

RATIO_PEAK = 0.814528755178133  # twice the largest (1 − e^(−c))²/c, attained at c = 1.25643


class Cost(ABC):
    """γ(Z): convex, with infimum 0 over all Z."""

    name: str
    targets: Tensor  # what is wanted; its last axis are the samples

    @property
    def samples(self) -> int:
        """Number of samples."""
        return self.targets.shape[-1]

    @property
    @abstractmethod
    def gradient_lipschitz(self) -> float:
        """Lipschitz constant of the gradient."""

    @abstractmethod
    def __call__(self, outputs: Float[Tensor, "classes samples"]) -> Float[Tensor, ""]:
        """γ(Z)."""

    def gradient(self, outputs: Float[Tensor, "classes samples"]) -> Float[Tensor, "classes samples"]:
        """∇γ(Z)."""
        return torch.func.grad(self)(outputs)

    @abstractmethod
    def gradient_bound(self, radius: float, sublevel: float = math.inf) -> float:
        """Supremum of |∇γ|_F where |Z|_F <= radius and γ <= sublevel."""

    @abstractmethod
    def domination(self, radius: float) -> float:
        """μ with |∇γ|² >= μ γ wherever |Z|_F <= radius (Polyak–Łojasiewicz); 0 if there is none."""

    @abstractmethod
    def floor(self, radius: float) -> float:
        """A lower bound of γ where |Z|_F <= radius."""

    def of_sample(self, sample: int) -> "Cost":
        """The cost of one sample alone."""
        return replace(self, targets=self.targets[..., sample : sample + 1])  # type: ignore[type-var]  # all are dataclasses


@dataclass(frozen=True)
class SquareCost(Cost):
    """The mean of scale · |z − y|²/2."""

    targets: Float[Tensor, "classes samples"]
    scale: float = 1.0
    name: str = "square cost"

    @property
    def gradient_lipschitz(self) -> float:
        """scale/N."""
        return self.scale / self.samples

    def __call__(self, outputs: Float[Tensor, "classes samples"]) -> Float[Tensor, ""]:
        """The mean squared distance, halved and scaled."""
        return self.scale * (outputs - self.targets).square().sum() / (2 * self.samples)

    def gradient_bound(self, radius: float, sublevel: float = math.inf) -> float:
        """The smaller of scale (radius + |Y|)/N and sqrt(2 scale · sublevel/N)."""
        by_size = self.scale * (radius + float(self.targets.norm())) / self.samples
        return min(by_size, math.sqrt(2 * self.scale * sublevel / self.samples))

    def domination(self, radius: float) -> float:
        """2 scale/N, with equality."""
        return 2 * self.scale / self.samples

    def floor(self, radius: float) -> float:
        """The cost at the distance from the targets to the ball of outputs."""
        return self.scale * max(0.0, float(self.targets.norm()) - radius) ** 2 / (2 * self.samples)


@dataclass(frozen=True)
class CrossEntropy(Cost):
    """The mean softmax cross-entropy of integer labels."""

    targets: Int[Tensor, " samples"]
    classes: int
    name: str = "cross-entropy"

    def __post_init__(self) -> None:
        """Refuse a single class and labels that are none."""
        if self.classes < 2 or not bool(((self.targets >= 0) & (self.targets < self.classes)).all()):
            raise InvalidInputError(
                f"Cross-entropy got {self.classes} classes and labels from {int(self.targets.min())} to "
                f"{int(self.targets.max())}; it needs at least two classes and labels from 0 to classes − 1."
            )

    @property
    def gradient_lipschitz(self) -> float:
        """1/(2N)."""
        return 1 / (2 * self.samples)

    def __call__(self, outputs: Float[Tensor, "classes samples"]) -> Float[Tensor, ""]:
        """The mean of −log of the probability of the right class."""
        return F.cross_entropy(outputs.T, self.targets)

    def gradient_bound(self, radius: float, sublevel: float = math.inf) -> float:
        """sqrt(2/N), or less on a low sublevel set."""
        return math.sqrt(min(2.0, RATIO_PEAK * sublevel) / self.samples)

    def domination(self, radius: float) -> float:
        """The smaller of (1 − e^(−c))²/c at the lowest and the highest cost of one sample, over N."""
        highest = _log_one_plus(self.classes - 1, math.sqrt(2) * radius)
        return _smallest_ratio(self.floor(radius), highest) / self.samples

    def floor(self, radius: float) -> float:
        """The exact minimum over outputs of norm `radius`: bounded outputs never reach zero cross-entropy."""
        others = self.classes - 1
        return _log_one_plus(others, -radius * math.sqrt(self.classes / others))


@dataclass(frozen=True)
class Logistic(Cost):
    """The mean of log(1 + e^(−y z)) of one output, y = ±1."""

    targets: Float[Tensor, " samples"]
    name: str = "logistic cost"

    @property
    def gradient_lipschitz(self) -> float:
        """1/(4N)."""
        return 1 / (4 * self.samples)

    def __call__(self, outputs: Float[Tensor, "classes samples"]) -> Float[Tensor, ""]:
        """The mean of log(1 + e^(−y z))."""
        return F.softplus(-self.targets * outputs[0]).mean()

    def gradient_bound(self, radius: float, sublevel: float = math.inf) -> float:
        """1/sqrt(N)."""
        return 1 / math.sqrt(self.samples)

    def domination(self, radius: float) -> float:
        """As for cross-entropy, between log(1 + e^(−radius)) and log(1 + e^radius)."""
        return _smallest_ratio(self.floor(radius), _log_one_plus(1, radius)) / self.samples

    def floor(self, radius: float) -> float:
        """log(1 + e^(−radius))."""
        return _log_one_plus(1, -radius)


def _log_one_plus(count: int, exponent: float) -> float:
    """log(1 + count · e^exponent) without overflow."""
    shifted = exponent + math.log(count)
    return math.log1p(math.exp(shifted)) if shifted < 0 else shifted + math.log1p(math.exp(-shifted))


def _smallest_ratio(lowest: float, highest: float) -> float:
    """The minimum of (1 − e^(−c))²/c between two costs: it rises and then falls, so it is at an end."""
    # near 0 the ratio is c itself; at infinity it is 0
    return min(c if c < 1e-8 else math.expm1(-c) ** 2 / c for c in (lowest, highest))
