"""Training with a guarantee: gradient descent on the repaired network, certified at each step."""

import math
from dataclasses import dataclass

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.core.errors import InvalidInputError
from skiplens.core.progress import Progress, silent, track
from skiplens.theory.guaranteed_training.descent import DescentPoint, descend
from skiplens.theory.guaranteed_training.guarantee import Guarantee
from skiplens.theory.guaranteed_training.network import GuaranteedNetwork
from skiplens.theory.parameterised_systems import smallest_gram_eigenvalue, smallest_singular_value
from skiplens.theory.regularity import uniform_bound
from skiplens.theory.smoothness import (
    Cost,
    CrossEntropy,
    SmoothnessLaw,
    SquareCost,
    TrainingLoss,
    descent_constant,
)


@dataclass(frozen=True)
class TrainingPlan:
    """How long to train and how often to look closer.

    Attributes:
        steps: Steps of gradient descent.
        regularity_every: λ(DF) is computed every so many steps (a singular value decomposition); 0 for never.
    """

    steps: int = 1000
    regularity_every: int = 0


@dataclass(frozen=True, eq=False)
class GuaranteedRun:
    """A run with its certificate at each step; entry t of each list speaks of the point after t steps.

    Attributes:
        losses: ℓ_t.
        promised: The loss that step t may at most leave, ℓ_t − α_t |∇ℓ_t|².
        bounds: What was proved of ℓ_t before the first step.
        steps: Step sizes η_t = 1/β_t.
        smoothness: β_t, certified for all parameters whose loss is at most ℓ_t.
        regularity: λ(DF) by step, where it was computed; `guarantee.regularity` is its proved floor.
        parameters: After the last step.
        guarantee: The proof's numbers.
    """

    losses: Float[Tensor, " points"]
    promised: Float[Tensor, " points"]
    bounds: Float[Tensor, " points"]
    steps: Float[Tensor, " points"]
    smoothness: Float[Tensor, " points"]
    regularity: dict[int, float]
    parameters: Float[Tensor, " params"]
    guarantee: Guarantee

    @property
    def holds(self) -> bool:
        """Whether each step kept its promise, each loss its bound and each λ(DF) its floor, up to rounding."""
        # near the optimum differences of losses are a few thousand roundings of the parameters' type
        slack = 1e-15 + 4500 * torch.finfo(self.parameters.dtype).eps * self.losses
        kept = bool((self.losses[1:] <= self.promised[:-1] + slack[:-1]).all())
        below = bool((self.losses <= self.bounds + slack).all())
        return kept and below and all(value >= self.guarantee.regularity for value in self.regularity.values())


def train_with_guarantee(
    network: GuaranteedNetwork,
    batch: tuple[Tensor, Tensor],
    start: Float[Tensor, " params"],
    plan: TrainingPlan | None = None,
    progress: Progress = silent,
) -> GuaranteedRun:
    """A certified run of gradient descent from `start`, any start.

    Args:
        network: Its first width is the number of features, its last the number of outputs or classes.
        batch: Inputs of (samples, features) with at most as many samples as features, linearly independent; targets
            are integer labels (cross-entropy) or numbers of (samples, outputs) (mean of |z − y|²/2).
        start: Parameters as in `GuaranteedNetwork`.
        plan: How long to train.
        progress: Told after each step.
    """
    plan, loss = plan or TrainingPlan(), guaranteed_loss(network, batch)
    law, guarantee = SmoothnessLaw(loss), guarantee_from(network, loss, start)
    points = descend(loss, start, lambda value: law.at(value).best_step, plan.steps)
    kept: list[tuple[float, float, float]] = []
    regularity: dict[int, float] = {}
    for number, point in enumerate(track(points, "training with a guarantee", plan.steps + 1, progress)):
        kept.append((point.loss, _promised(point), point.step))
        if plan.regularity_every and number % plan.regularity_every == 0:
            regularity[number] = smallest_gram_eigenvalue(loss.system.parameter_derivative(point.parameters, loss.data))
    losses, promised, steps = torch.tensor(kept, dtype=torch.float64).T
    bounds = torch.tensor([guarantee.bound(t) for t in range(len(kept))], dtype=torch.float64)
    return GuaranteedRun(losses, promised, bounds, steps, 1 / steps, regularity, point.parameters, guarantee)


def guarantee_from(network: GuaranteedNetwork, loss: TrainingLoss, start: Float[Tensor, " params"]) -> Guarantee:
    """What is proved of steps 1/β from this start, before any step."""
    first = float(loss(start))
    smoothness = SmoothnessLaw(loss).at(first)
    decrease = descent_constant(smoothness.finite(), smoothness.best_step)
    return Guarantee(loss.cost, first, uniform_bound(loss.data, network.margin, network.blocks), decrease)


def guaranteed_loss(network: GuaranteedNetwork, batch: tuple[Tensor, Tensor]) -> TrainingLoss:
    """The training loss of the network on a batch, refused where the proof does not apply."""
    inputs, targets = batch
    if inputs.ndim != 2 or inputs.shape[1] != network.widths[0] or inputs.shape[0] != targets.shape[0]:
        raise InvalidInputError(
            f"inputs have shape {tuple(inputs.shape)} and targets {tuple(targets.shape)}; wanted are inputs of "
            f"(samples, {network.widths[0]}) and one target a sample. Flatten images."
        )
    _require_independent(inputs)
    return TrainingLoss(network.system(), inputs.T.contiguous(), _cost(targets, network.widths[-1]))


def _promised(point: DescentPoint) -> float:
    """A step of 1/β decreases the loss by at least |∇ℓ|²/(2β)."""
    return point.loss - point.step / 2 * point.squared_gradient


def _cost(targets: Tensor, outputs: int) -> Cost:
    if not targets.is_floating_point():
        return CrossEntropy(targets, outputs)
    if targets.shape[1:] != (outputs,):
        raise InvalidInputError(
            f"targets have shape {tuple(targets.shape)}; numbers to fit have the shape (samples, {outputs}), labels "
            "are integers."
        )
    return SquareCost(targets.T.contiguous())


def _require_independent(inputs: Float[Tensor, "samples features"]) -> None:
    samples, features = inputs.shape
    if samples > features:
        raise InvalidInputError(
            f"There are {samples} samples of {features} features; the proof needs at most as many samples as features. "
            f"Train on {features} samples or fewer, or add features."
        )
    smallest, largest = smallest_singular_value(inputs), float(torch.linalg.matrix_norm(inputs, 2))
    if smallest <= features * torch.finfo(inputs.dtype).eps * largest or not math.isfinite(largest):
        raise InvalidInputError(
            f"The {samples} samples are linearly dependent (singular values from {smallest:.3g} to {largest:.3g}); the "
            "proof needs independent ones. Drop repeated samples, or add a little noise."
        )
