"""Upper bounds of the loss that are proved before training begins."""

import math
from dataclasses import dataclass

from skiplens.core.errors import InvalidInputError
from skiplens.theory.smoothness import Cost, CrossEntropy, SquareCost


@dataclass(frozen=True)
class Guarantee:
    """What is proved of gradient descent from a start with loss `start`: ℓ_t <= `bound(t)`, which tends to 0.

    Attributes:
        cost: Square cost or cross-entropy.
        start: The first loss ℓ_0.
        regularity: λ_0, a lower bound of λ(DF) for all parameters.
        decrease: α: each step decreases the loss by at least α |∇ℓ|².
    """

    cost: Cost
    start: float
    regularity: float
    decrease: float

    def __post_init__(self) -> None:
        """Refuse a cost for which nothing is proved."""
        if not isinstance(self.cost, SquareCost | CrossEntropy):
            raise InvalidInputError(f"Nothing is proved for the {self.cost.name}; use SquareCost or CrossEntropy.")

    def bound(self, step: int) -> float:
        """The upper bound of the loss after so many steps."""
        if self.start == 0:
            return 0.0
        if isinstance(self.cost, SquareCost):  # |∇γ|² = μ γ: linear convergence
            return self.start * (1 - self.rate) ** step
        return 1 / (1 / self.start + self.rate * step)

    @property
    def rate(self) -> float:
        """The share that a step takes away (square cost), or what a step adds to 1/ℓ (cross-entropy).

        Cross-entropy: with every sample's cost at most N ℓ_0, |∇γ|² >= κ² γ²/N with κ = (1 − e^(−N ℓ_0))/(N ℓ_0).
        """
        N, strength = self.cost.samples, self.decrease * self.regularity
        if isinstance(self.cost, SquareCost):
            return strength * self.cost.domination(math.inf)
        kappa = -math.expm1(-N * self.start) / (N * self.start) if self.start > 0 else 1.0
        return strength * kappa**2 / N

    def steps_until(self, loss: float) -> int:
        """The number of steps after which the loss is certainly at most `loss`."""
        if not loss > 0:
            raise InvalidInputError(
                f"A loss of {loss} was asked for; it is approached, never reached. Ask for one above 0."
            )
        if self.start <= loss:
            return 0
        if isinstance(self.cost, SquareCost):
            return math.ceil(math.log(loss / self.start) / math.log1p(-self.rate))
        return math.ceil((1 / loss - 1 / self.start) / self.rate)
