"""Where the printed proof of theorem 5.1 breaks: one normalised layer, and a bound that the loss crosses."""

import math
from dataclasses import dataclass

import torch

from skiplens.core.axes import Float, Tensor

INPUT = 1.5


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
    alpha, floor = eta * (1 - smoothness * eta / 2), math.log1p(math.exp(-INPUT))
    mu = math.expm1(-floor) ** 2 / floor
    w, valid, printed = 0.0, math.log(2), math.log(2)
    rows = []
    for _ in range(steps + 1):
        s = 1 + w * w
        loss = math.log1p(math.exp(-INPUT * w * s**-0.5))
        rows.append((loss, w, valid, printed))
        sigma = INPUT * s**-1.5
        valid *= 1 - alpha * mu * sigma**2
        printed *= 1 - alpha * mu * sigma
        w += eta * -math.expm1(-loss) * sigma  # the gradient is −(1 − e^(−loss)) dz/dw
    losses, weights, valids, printeds = torch.tensor(rows, dtype=torch.float64).T
    return PrintedBoundRun(losses, weights, valids, printeds, floor)


def _smoothness() -> float:
    """β = D²/4 + DD of the one layer: D = 1.5, DD = 1.5 K2."""
    return INPUT**2 / 4 + INPUT * 48 / (25 * math.sqrt(5))
