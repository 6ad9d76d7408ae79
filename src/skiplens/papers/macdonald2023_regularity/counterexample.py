"""Theorem 5.1 as printed is false: networks that meet every hypothesis, and gradient descent that does not arrive."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import torch
from torch import Tensor

from skiplens.base.axes import Float
from skiplens.base.errors import InvalidInputError
from skiplens.jacobians.systems.affine import Affine
from skiplens.jacobians.systems.costs import Cost, Logistic, SquareCost
from skiplens.jacobians.systems.elementwise import Elementwise, Nonlinearity, Residual, SkipMap
from skiplens.jacobians.systems.layer import Composition, DataBound
from skiplens.jacobians.systems.parameterisation import EntryNormalised, WeightNormalised
from skiplens.jacobians.systems.smoothness import TrainingLoss, certified_smoothness

CostName = Literal["logistic", "square"]

INPUT, FACTOR, TARGET = 1.5, 0.95, 1.85

TRAPPED_START = (1.0, 0.2, 1.0)
"""First-layer weight, inner and outer weight of the branch: from here the better hump is never reached."""

FREE_START = (1.0, 3.0, -1.0)
"""From here gradient descent does find the global minimum."""


def _two_humps(values: Tensor) -> Tensor:
    """(0.8 sin 4t − 0.8 t)/4: its slope 0.8 cos 4t − 0.2 is at most 1 in size."""
    return (0.8 * torch.sin(4 * values) - 0.8 * values) / 4


TWO_HUMPS = Nonlinearity("two humps", _two_humps, slope=1.0, curvature=3.2)


def _hump(angle: float) -> float:
    """The value of the nonlinearity at one of its extrema, where cos 4t = 1/4."""
    return float(_two_humps(torch.tensor(angle / 4, dtype=torch.float64)))


TRAP = INPUT + FACTOR * _hump(math.acos(0.25))
"""Outputs of a trapped run stay below this number."""

REACHABLE = INPUT - FACTOR * _hump(2 * math.pi - math.acos(0.25))
"""The supremum of the outputs over all parameters."""


@dataclass(frozen=True, eq=False)
class CounterexampleRun:
    """Gradient descent on the counterexample; entry t speaks of the point after t steps.

    Attributes:
        losses: ℓ_t, never increasing.
        outputs: The network's output.
        parameters: First-layer weight, inner and outer weight.
        regularity: λ(DF); its sum converges, which is the gap in the printed proof.
        step: 1.9/β with the certified β.
        smoothness: The certified β.
        trap: No loss of a trapped run is below this number.
        infimum: The infimum of the loss over all parameters.
    """

    losses: Float[Tensor, " points"]
    outputs: Float[Tensor, " points"]
    parameters: Float[Tensor, "points three"]
    regularity: Float[Tensor, " points"]
    step: float
    smoothness: float
    trap: float
    infimum: float


def counterexample_loss(cost: CostName = "logistic") -> TrainingLoss:
    """One sample, two layers of width 1: u = 1.5 en(w), z = u + 0.95 wn(b) φ(0.95 wn(a) u); every hypothesis holds."""
    data, one = torch.tensor([[INPUT]], dtype=torch.float64), WeightNormalised(1, 1, factor=FACTOR)
    branch = Composition((Affine(one, name="inner"), Elementwise(TWO_HUMPS, 1), Affine(one, name="outer")))
    block = Residual(SkipMap.truncation(1, 1), branch, name="block")
    return TrainingLoss(Composition((Affine(EntryNormalised(1, 1), name="first"), block)), data, _cost(cost))


def run_counterexample(
    cost: CostName = "logistic", start: tuple[float, float, float] = TRAPPED_START, steps: int = 2000
) -> CounterexampleRun:
    """Gradient descent with a certified step from a start that the printed theorem says leads to a global minimum."""
    loss = counterexample_loss(cost)
    smoothness = certified_smoothness(loss).finite()
    points = list(descend(loss, torch.tensor(start, dtype=torch.float64), 1.9 / smoothness, steps))
    outputs = torch.stack([loss.system(point.parameters, loss.data).squeeze() for point in points])
    gradients = torch.stack([point.gradient for point in points])
    slopes = torch.stack([loss.cost.gradient(output.reshape(1, 1)).squeeze() for output in outputs])
    return CounterexampleRun(
        losses=torch.tensor([point.loss for point in points], dtype=torch.float64),
        outputs=outputs,
        parameters=torch.stack([point.parameters for point in points]),
        regularity=(gradients / slopes[:, None]).square().sum(1),  # of one output, DF is one row: λ = |DF|²
        step=1.9 / smoothness,
        smoothness=smoothness,
        trap=float(loss.cost(torch.tensor([[TRAP]], dtype=torch.float64))),
        infimum=float(loss.cost(torch.tensor([[_best_output(cost)]], dtype=torch.float64))),
    )


def _cost(name: str) -> Cost:
    if name == "logistic":
        return Logistic(torch.ones(1, dtype=torch.float64))
    if name == "square":
        return SquareCost(torch.tensor([[TARGET]], dtype=torch.float64))
    raise InvalidInputError(f"There is no counterexample for the cost {name!r}. Use 'logistic' or 'square'.")


def _best_output(cost: CostName) -> float:
    return TARGET if cost == "square" else REACHABLE


ONE_LAYER_INPUT = 1.5


@dataclass(frozen=True, eq=False)
class PrintedBoundRun:
    """Gradient descent on log(1 + e^(−z)), z = 1.5 w/sqrt(1 + w²), from w = 0; entry t is the point after t steps.

    Attributes:
        losses: ℓ_t.
        weights: w_t.
        valid: The bound with λ(DF) in the rate.
        printed: The bound as printed, with σ in place of λ = σ²: it falls below the losses.
        floor: The infimum of the loss: outputs stay below 1.5.
    """

    losses: Float[Tensor, " points"]
    weights: Float[Tensor, " points"]
    valid: Float[Tensor, " points"]
    printed: Float[Tensor, " points"]
    floor: float


def run_printed_bound(steps: int = 10_000) -> PrintedBoundRun:
    """The losses beside both bounds; written in plain numbers, so that a million steps take seconds."""
    smoothness = _smoothness()
    eta = 1.9 / smoothness
    alpha, floor = eta * (1 - smoothness * eta / 2), math.log1p(math.exp(-ONE_LAYER_INPUT))
    mu = math.expm1(-floor) ** 2 / floor
    w, valid, printed = 0.0, math.log(2), math.log(2)
    rows = []
    for _ in range(steps + 1):
        s = 1 + w * w
        loss = math.log1p(math.exp(-ONE_LAYER_INPUT * w * s**-0.5))
        rows.append((loss, w, valid, printed))
        sigma = ONE_LAYER_INPUT * s**-1.5
        valid *= 1 - alpha * mu * sigma**2
        printed *= 1 - alpha * mu * sigma
        w += eta * -math.expm1(-loss) * sigma  # the gradient is −(1 − e^(−loss)) dz/dw
    losses, weights, valids, printeds = torch.tensor(rows, dtype=torch.float64).T
    return PrintedBoundRun(losses, weights, valids, printeds, floor)


def _smoothness() -> float:
    """β = D²/4 + DD of the one layer: D = 1.5, DD = 1.5 K2."""
    return ONE_LAYER_INPUT**2 / 4 + ONE_LAYER_INPUT * 48 / (25 * math.sqrt(5))


def largest_weight_bound(loss: TrainingLoss, start: Float[Tensor, " params"], step: float, steps: int) -> float:
    """An upper bound of max |w_ij| of the first layer after `steps` steps of gradient descent.

    Each weight has |∂ℓ/∂w| <= C ε (ε + w²)^(−3/2) with C = G · Π gains behind · largest row norm of X, so that w⁴ grows
    by at most (1 + η C ε)⁴ − 1 a step. Then λ(DF) may fall like t^(−3/2), which can be summed: no convergence follows.
    """
    system = loss.system
    first = system.layers[0] if isinstance(system, Composition) else system
    if not isinstance(first, Affine) or not isinstance(first.parameterisation, EntryNormalised):
        raise InvalidInputError(
            f"The first layer {first.name!r} is not entry-normalised; the bound is about layers en(W) X. "
            "Use Affine(EntryNormalised(outputs, inputs)) as the first layer."
        )
    epsilon, C = first.parameterisation.epsilon, _gradient_constant(loss) * first.parameterisation.factor
    largest = float(start[: first.parameters].abs().max())
    begin = max(largest, 1 + step * C * epsilon**-0.5)
    return (begin**4 + ((1 + step * C * epsilon) ** 4 - 1) * steps) ** 0.25


def _gradient_constant(loss: TrainingLoss) -> float:
    behind = loss.system.certificates(DataBound.of_data(loss.data)) if isinstance(loss.system, Composition) else []
    gains = math.prod(certificate.gain for certificate in behind[1:])
    size = loss.system.certificate(DataBound.of_data(loss.data)).size
    return loss.cost.gradient_bound(size) * gains * float(loss.data.norm(dim=1).max())


@dataclass(frozen=True, eq=False)
class DescentPoint:
    """One point of a run: parameters, loss, gradient and the step that is taken from here."""

    parameters: Float[Tensor, " params"]
    loss: float
    gradient: Float[Tensor, " params"]
    step: float

    @property
    def squared_gradient(self) -> float:
        """|∇ℓ|²."""
        return float(self.gradient.square().sum())


def descend(
    loss: TrainingLoss, start: Float[Tensor, " params"], step: float | Callable[[float], float], steps: int
) -> Iterator[DescentPoint]:
    """The start and the points after 1, …, `steps` steps of gradient descent.

    Args:
        loss: What is minimised.
        start: First parameters.
        step: Step size η, or a function of the present loss that gives it.
        steps: How many steps are taken.
    """
    return islice(_forever(loss, start, step), steps + 1)


def _forever(loss: TrainingLoss, start: Tensor, step: float | Callable[[float], float]) -> Iterator[DescentPoint]:
    parameters = start.detach()
    while True:
        value, gradient = loss.with_gradient(parameters)
        size = step(float(value)) if callable(step) else step
        yield DescentPoint(parameters, float(value), gradient, size)
        parameters = parameters - size * gradient
