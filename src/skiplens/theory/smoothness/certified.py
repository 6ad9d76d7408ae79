"""A global Lipschitz constant of the gradient of a training loss, certified by the recursion over its layers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from skiplens.core.axes import Float, Tensor
from skiplens.core.errors import InvalidInputError
from skiplens.theory.parameterised_systems import Certificate, Composition, DataBound, Layer
from skiplens.theory.parameterised_systems.certificate import product
from skiplens.theory.parameterised_systems.composition import composed
from skiplens.theory.smoothness.costs import Cost
from skiplens.theory.smoothness.training_loss import TrainingLoss


@dataclass(frozen=True)
class Smoothness:
    """β with |∇ℓ(θ) − ∇ℓ(θ')| <= β |θ − θ'| for all parameters (on a sublevel set, if one was given).

    Attributes:
        joint: From the whole data matrix.
        per_sample: The mean over the samples of the constants of single samples; infinite if a layer couples samples.
        literal: Lemma B.1 of the paper as printed; none of the three is always the smallest.
        unbounded: Layers whose derivatives are not bounded, each with the reason.
    """

    joint: float
    per_sample: float
    literal: float
    unbounded: str = ""

    @property
    def constant(self) -> float:
        """The smallest of the three: all of them are valid."""
        return min(self.joint, self.per_sample, self.literal)

    @property
    def mode(self) -> str:
        """The name of the smallest."""
        return min(("joint", "per_sample", "literal"), key=lambda name: getattr(self, name))

    @property
    def largest_step(self) -> float:
        """2/β: gradient descent with any smaller step never goes up."""
        return 2 / self.finite()

    @property
    def best_step(self) -> float:
        """1/β: the step with the largest certified decrease."""
        return 1 / self.finite()

    def finite(self) -> float:
        """The constant, or an error that names the layers that have none."""
        if not math.isfinite(self.constant):
            raise InvalidInputError(
                f"The gradient of this loss has no certified Lipschitz constant: {self.unbounded or 'it overflows'}. "
                "Normalise these layers, or use smooth nonlinearities."
            )
        return self.constant


class SmoothnessLaw:
    """The certified smoothness of one loss as a function of a loss that is not exceeded; layers are bounded once."""

    def __init__(self, loss: TrainingLoss) -> None:
        self._loss = loss
        self._whole = _certificates(loss.system, DataBound.of_data(loss.data))
        single = [] if loss.system.couples_samples else _sample_certificates(loss.system, loss.data)
        self._single = [(loss.cost.of_sample(i), certificate) for i, certificate in enumerate(single)]

    def at(self, sublevel: float = math.inf) -> Smoothness:
        """The constants where the loss is at most `sublevel`."""
        cost, N = self._loss.cost, self._loss.cost.samples
        # of a mean, one sample may be N times as large
        single = [_constant(own, certificate, N * sublevel) for own, certificate in self._single]
        return Smoothness(
            joint=_constant(cost, composed(self._whole), sublevel),
            per_sample=sum(single) / N if single else math.inf,
            literal=_literal(cost, self._whole, sublevel),
            unbounded=self._loss.system.unbounded_because(is_first=True),
        )


def certified_smoothness(loss: TrainingLoss, sublevel: float = math.inf) -> Smoothness:
    """The certified smoothness β of a loss.

    Args:
        loss: System, data and cost.
        sublevel: A loss that is not exceeded. Gradient descent with a step below 2/β stays below its first loss, so
            that may be given; it is needed for the square cost where outputs are unbounded.
    """
    return SmoothnessLaw(loss).at(sublevel)


def descent_constant(smoothness: float, step: float) -> float:
    """α = η (1 − β η/2): a step decreases the loss by at least α |∇ℓ|² (the paper prints η (1 − 2 η/β))."""
    return step * (1 - smoothness * step / 2)


def _certificates(system: Layer, bound: DataBound) -> list[Certificate]:
    return system.certificates(bound) if isinstance(system, Composition) else [system.certificate(bound)]


def _constant(cost: Cost, certificate: Certificate, sublevel: float) -> float:
    """β = β_γ D² + G DD."""
    G = cost.gradient_bound(certificate.size, sublevel)
    return cost.gradient_lipschitz * certificate.slope**2 + product(G, certificate.curvature)


def _sample_certificates(system: Layer, data: Float[Tensor, "features samples"]) -> list[Certificate]:
    return [system.certificate(DataBound.of_data(column[:, None])) for column in data.T]


def _literal(cost: Cost, certificates: Sequence[Certificate], sublevel: float) -> float:
    """β_γ sup|DF|² + G Lip(DF) with Lip(DF) from the product rule, factor by factor (lemma B.1)."""
    L = len(certificates)
    a, slopes, gains = 0.0, [], []
    for c in certificates:  # how fast each factor changes with all parameters before it
        slopes.append(c.curvature + product(c.mixed, a))
        gains.append(c.mixed + product(c.bend, a))
        a = c.slope + product(c.gain, a)
    squares = 0.0
    for start in range(L):
        bounds = [certificates[start].slope, *(c.gain for c in certificates[start + 1 :])]
        changes = [slopes[start], *gains[start + 1 :]]
        squares += sum(product(changes[k], *bounds[:k], *bounds[k + 1 :]) for k in range(L - start)) ** 2
    total = composed(certificates)
    G = cost.gradient_bound(total.size, sublevel)
    return cost.gradient_lipschitz * total.slope**2 + product(G, math.sqrt(squares))
