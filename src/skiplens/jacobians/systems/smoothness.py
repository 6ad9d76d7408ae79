"""How fast the gradient of a training loss changes: certified over all parameters from its layers, and measured."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from skiplens.base import Float, InvalidInputError
from skiplens.jacobians.systems.costs import Cost
from skiplens.jacobians.systems.layer import Certificate, Composition, DataBound, Layer, composed, product
from skiplens.linalg.operator import FunctionOperator
from skiplens.linalg.trace import gaussian


@dataclass(frozen=True)
class Smoothness:
    """β with |∇ℓ(θ) − ∇ℓ(θ')| <= β |θ − θ'| for all parameters (on a sublevel set, if one was given)."""

    joint: float  # from the whole data matrix
    per_sample: float  # the mean of the constants of single samples; infinite if a layer couples samples
    literal: float  # lemma B.1 of the paper as printed; none of the three is always the smallest
    unbounded: str = ""  # layers whose derivatives are not bounded, each with the reason

    @property
    def constant(self) -> float:
        """The smallest of the three: all of them are valid."""
        return min(self.joint, self.per_sample, self.literal)

    @property
    def mode(self) -> str:
        """The name of the smallest."""
        return min(("joint", "per_sample", "literal"), key=lambda name: getattr(self, name))

    @property
    def best_step(self) -> float:
        """1/β: the step with the largest certified decrease; any step below 2/β never goes up."""
        return 1 / self.finite()

    def finite(self) -> float:
        """The constant, or an error that names the layers that have none."""
        if not math.isfinite(self.constant):
            raise InvalidInputError(
                f"The gradient of this loss has no certified Lipschitz constant: {self.unbounded or 'it overflows'}. "
                "Normalise these layers, or use smooth nonlinearities."
            )
        return self.constant


@dataclass(frozen=True, eq=False)
class TrainingLoss:
    """θ -> γ(F(θ, X)) for one data matrix X of features × samples."""

    system: Layer
    data: Float[Tensor, "features samples"]
    cost: Cost

    def __post_init__(self) -> None:
        """Refuse a cost of another number of samples."""
        if self.cost.samples != self.data.shape[1]:
            raise InvalidInputError(
                f"The data matrix has {self.data.shape[1]} columns, the cost {self.cost.samples} targets; one target a "
                "sample was wanted. Data matrices are features × samples."
            )

    def __call__(self, parameters: Float[Tensor, " params"]) -> Float[Tensor, ""]:
        """The loss."""
        return self.cost(self.system(parameters, self.data))

    def with_gradient(self, parameters: Float[Tensor, " params"]) -> tuple[Tensor, Tensor]:
        """The loss and its gradient."""
        gradient, value = torch.func.grad_and_value(self)(parameters.detach())
        return value, gradient

    def hessian(self, parameters: Float[Tensor, " params"]) -> Float[Tensor, "params params"]:
        """The Hessian as a matrix."""
        return torch.func.jacrev(torch.func.jacrev(self))(parameters)

    def hessian_product(self, parameters: Float[Tensor, " params"], direction: Tensor) -> Float[Tensor, " params"]:
        """The Hessian times a vector, without forming it."""
        variable = parameters.detach().requires_grad_()
        gradient = torch.autograd.grad(self(variable), variable, create_graph=True)[0]
        return torch.autograd.grad(gradient @ direction, variable)[0]


class SmoothnessLaw:
    """The certified smoothness of one loss as a function of a loss that is not exceeded; layers are bounded once."""

    def __init__(self, loss: TrainingLoss) -> None:
        self._loss = loss
        system, bound = loss.system, DataBound.of_data(loss.data)
        self._whole = system.certificates(bound) if isinstance(system, Composition) else [system.certificate(bound)]
        columns = () if system.couples_samples else loss.data.T.unbind()
        self._single = [
            (loss.cost.of_sample(i), system.certificate(DataBound.of_data(column[:, None])))
            for i, column in enumerate(columns)
        ]

    def at(self, sublevel: float = math.inf) -> Smoothness:
        """The constants where the loss is at most `sublevel`."""
        cost, N = self._loss.cost, self._loss.cost.samples
        # of a mean, one sample may be N times as large
        single = [smoothness_constant(own, certificate, N * sublevel) for own, certificate in self._single]
        joint, literal = (
            smoothness_constant(cost, composed(self._whole), sublevel),
            _literal(cost, self._whole, sublevel),
        )
        per_sample = sum(single) / N if single else math.inf
        return Smoothness(joint, per_sample, literal, self._loss.system.unbounded_because(is_first=True))


def certified_smoothness(loss: TrainingLoss, sublevel: float = math.inf) -> Smoothness:
    """The certified smoothness β of a loss, everywhere or where the loss is at most `sublevel`.

    Gradient descent with a step below 2/β stays below its first loss, so that may be given; it is needed for the square
    cost where outputs are unbounded.
    """
    return SmoothnessLaw(loss).at(sublevel)


Number = TypeVar("Number", float, Tensor)


def descent_constant(smoothness: Number, step: Number) -> Number:
    """α = η (1 − β η/2): a step decreases the loss by at least α |∇ℓ|² (the paper prints η (1 − 2 η/β))."""
    return step * (1 - smoothness * step / 2)


def smoothness_constant(cost: Cost, certificate: Certificate, sublevel: float) -> float:
    """β = β_γ D² + G DD."""
    G = cost.gradient_bound(certificate.size, sublevel)
    return cost.gradient_lipschitz * certificate.slope**2 + product(G, certificate.curvature)


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


DENSE_PARAMETERS = 256
SAFETY = 1.9  # steps are this number over a smoothness; from 2 on they may go up


def local_smoothness(loss: TrainingLoss, parameters: Float[Tensor, " params"], generator: torch.Generator) -> float:
    """|H|_2 at one point: dense for few parameters, by Lanczos from a random vector otherwise."""
    if len(parameters) <= DENSE_PARAMETERS:
        return float(torch.linalg.matrix_norm(loss.hessian(parameters), 2))

    from scipy.sparse.linalg import eigsh

    operator = FunctionOperator(lambda direction: loss.hessian_product(parameters, direction), parameters)
    start = gaussian(len(parameters), 1, generator).cpu().numpy()
    values, _ = eigsh(operator.to_scipy(), k=1, which="LM", v0=start, tol=1e-6)
    return abs(float(values[0]))


def search_rough_point(
    loss: TrainingLoss, start: Float[Tensor, " params"], steps: int = 200, rate: float = 0.05
) -> tuple[float, Float[Tensor, " params"]]:
    """The largest |H|_2 found by gradient ascent on it from `start`, and where: an adversary of a certificate.

    With v the top eigenvector, the gradient of |λ| = |vᵀ H v| in the parameters is that of the form with v held fixed.
    """
    variable = start.detach().clone()
    ascent = torch.optim.Adam([variable.requires_grad_()], lr=rate)
    best, place = 0.0, start
    for _ in range(steps):
        values, vectors = torch.linalg.eigh(loss.hessian(variable.detach()))
        top = int(values.abs().argmax())
        if float(values[top].abs()) > best:
            best, place = float(values[top].abs()), variable.detach().clone()
        v = vectors[:, top]
        gradient = torch.autograd.grad(loss(variable), variable, create_graph=True)[0]
        form = torch.autograd.grad(gradient @ v, variable, create_graph=True)[0] @ v
        ascent.zero_grad()
        (-values[top].sign() * form).backward()
        ascent.step()
    return best, place
