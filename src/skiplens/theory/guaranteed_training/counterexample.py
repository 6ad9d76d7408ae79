"""Theorem 5.1 as printed is false: networks that meet every hypothesis, and gradient descent that does not arrive."""

import math
from dataclasses import dataclass
from typing import Literal

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.core.errors import InvalidInputError
from skiplens.theory.guaranteed_training.descent import descend
from skiplens.theory.parameterised_systems import (
    Affine,
    Composition,
    Elementwise,
    EntryNormalised,
    Nonlinearity,
    Residual,
    SkipMap,
    WeightNormalised,
)
from skiplens.theory.smoothness import Cost, Logistic, SquareCost, TrainingLoss, certified_smoothness

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
