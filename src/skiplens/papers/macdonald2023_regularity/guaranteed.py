"""Training with a guarantee: gradient descent on the repaired network, certified at each step; what it rests on.

That are lower bounds of λ(DF), the smallest eigenvalue of DF DFᵀ, from the layers. λ is 0 for a matrix with more rows
than columns, σ (the smallest singular value) is not: the bounds need λ.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from skiplens.base import Float, InvalidInputError, Progress, refuse_if, silent, track
from skiplens.jacobians.systems import NONLINEARITIES, Affine, Elementwise, Free, Residual, SkipMap, WeightNormalised
from skiplens.jacobians.systems.costs import Cost, CrossEntropy, SquareCost
from skiplens.jacobians.systems.layer import Composition, Inputs, Layer, Weights
from skiplens.jacobians.systems.smoothness import SmoothnessLaw, TrainingLoss, descent_constant
from skiplens.linalg.singular_values import largest_singular_value, smallest_gram_eigenvalue, smallest_singular_value
from skiplens.papers.macdonald2023_regularity.common import descend


@dataclass(frozen=True)
class TrainingPlan:
    """How long to train and how often to look closer."""

    steps: int = 1000
    regularity_every: int = 0  # λ(DF) is computed every so many steps (a singular value decomposition); 0 for never


@dataclass(frozen=True)
class Guarantee:
    """What is proved of gradient descent from a start with loss `start`: ℓ_t <= `bound(t)`, which tends to 0."""

    cost: Cost
    start: float  # the first loss ℓ_0
    regularity: float  # λ_0, a lower bound of λ(DF) for all parameters
    decrease: float  # α: each step decreases the loss by at least α |∇ℓ|²

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
        refuse_if(
            not loss > 0, f"A loss of {loss} was asked for; it is approached, never reached. Ask for one above 0."
        )
        if self.start <= loss:
            return 0
        if isinstance(self.cost, SquareCost):
            return math.ceil(math.log(loss / self.start) / math.log1p(-self.rate))
        return math.ceil((1 / loss - 1 / self.start) / self.rate)


@dataclass(frozen=True, eq=False)
class GuaranteedRun:
    """A run with its certificate at each step; entry t of each list speaks of the point after t steps."""

    losses: Float[Tensor, " points"]
    promised: Float[Tensor, " points"]  # the loss that step t may at most leave, ℓ_t − α_t |∇ℓ_t|²
    bounds: Float[Tensor, " points"]  # what was proved of ℓ_t before the first step
    steps: Float[Tensor, " points"]  # sizes η_t = 1/β_t
    smoothness: Float[Tensor, " points"]  # β_t, certified for all parameters whose loss is at most ℓ_t
    regularity: dict[int, float]  # λ(DF) by step, where it was computed; its proved floor is `guarantee.regularity`
    parameters: Weights  # after the last step
    guarantee: Guarantee

    @property
    def holds(self) -> bool:
        """Whether each step kept its promise, each loss its bound and each λ(DF) its floor, up to rounding."""
        # near the optimum differences of losses are a few thousand roundings of the parameters' type
        slack = 1e-15 + 4500 * torch.finfo(self.parameters.dtype).eps * self.losses
        kept = bool((self.losses[1:] <= self.promised[:-1] + slack[:-1]).all())
        below = bool((self.losses <= self.bounds + slack).all())
        return kept and below and all(value >= self.guarantee.regularity for value in self.regularity.values())


@dataclass(frozen=True)
class GuaranteedNetwork:
    """W x, then blocks I z + s_b wn(B) tanh(s_a wn(A) tanh(z)) with truncated skips I.

    Theorem 5.1 of the paper normalises the first layer, and is false: its derivative dies where weights grow. Here the
    first layer is plain, so λ(DF) >= σ(X)² margin^(2 blocks) for all parameters; the tanh in front of each branch keeps
    the gradient Lipschitz although the outputs are unbounded.

    The parameters are W, then A and B of each block, each row first: the order of the zoo's `guaranteed_resnet`.
    """

    widths: tuple[int, ...]  # features of the input and of each layer's output; they never grow after the first layer
    hidden: int = 16  # units between the two matrices of a branch
    margin: float = 0.5  # δ; branches have slopes of at most 1 − margin
    epsilon: float = 1.0  # of the normalisations

    def __post_init__(self) -> None:
        """Refuse what the proof does not cover."""
        layers = self.widths[1:]
        if not layers or min(self.widths) < 1 or any(after > before for before, after in pairwise(layers)):
            raise InvalidInputError(
                f"widths are {self.widths}; wanted are the input's features and then layers that never grow, such as "
                "(784, 32, 16, 10)."
            )
        if not 0 < self.margin < 1 or self.epsilon <= 0 or self.hidden < 1:
            raise InvalidInputError(
                f"margin is {self.margin}, epsilon {self.epsilon}, hidden {self.hidden}; wanted are a margin between 0 "
                "and 1, epsilon above 0 and at least one hidden unit."
            )

    @property
    def blocks(self) -> int:
        """Residual layers behind the first layer."""
        return len(self.widths) - 2

    def system(self) -> Composition:
        """The network as layers on a data matrix of features × samples."""
        tanh, blocks = NONLINEARITIES["tanh"], []
        for number, (inputs, outputs) in enumerate(pairwise(self.widths[1:])):
            name = f"blocks.{number}"
            inner = WeightNormalised(self.hidden, inputs, self.epsilon, 1 / math.sqrt(self.hidden))
            outer = WeightNormalised(outputs, self.hidden, self.epsilon, (1 - self.margin) / math.sqrt(outputs))
            branch = (
                Elementwise(tanh, inputs, name=f"{name}.bound"),
                Affine(inner, name=f"{name}.inner"),
                Elementwise(tanh, self.hidden, name=f"{name}.tanh"),
                Affine(outer, name=f"{name}.outer"),
            )
            skip = SkipMap.truncation(outputs, inputs)
            blocks.append(Residual(skip, Composition(branch, name=f"{name}.branch"), name=name))
        return Composition((Affine(Free(self.widths[1], self.widths[0]), name="first"), *blocks))

    def random_start(self, generator: torch.Generator, scale: float = 1.0) -> Weights:
        """Normal parameters in float64; the guarantee holds from any start."""
        size = self.system().parameters
        return scale * torch.randn(size, dtype=torch.float64, device=generator.device, generator=generator)


def train_with_guarantee(
    network: GuaranteedNetwork,
    batch: tuple[Tensor, Tensor],
    start: Weights,
    plan: TrainingPlan | None = None,
    progress: Progress = silent,
) -> GuaranteedRun:
    """A certified run of gradient descent from `start`, any start; `progress` is reported to after each step.

    The batch has inputs of (samples, features), linearly independent, so at most as many samples as features; targets
    are integer labels (cross-entropy) or numbers of (samples, outputs) (mean of |z − y|²/2).
    """
    plan, loss = plan or TrainingPlan(), guaranteed_loss(network, batch)
    law, first = SmoothnessLaw(loss), float(loss(start))
    at_start, floor = law.at(first), uniform_bound(loss.data, network.margin, network.blocks)
    guarantee = Guarantee(loss.cost, first, floor, descent_constant(at_start.finite(), at_start.best_step))
    points = descend(loss, start, lambda value: law.at(value).best_step, plan.steps)
    kept: list[tuple[float, float, float]] = []
    regularity: dict[int, float] = {}
    for number, point in enumerate(track(points, "training with a guarantee", plan.steps + 1, progress)):
        # a step of 1/β decreases the loss by at least |∇ℓ|²/(2β)
        promised_loss = point.loss - point.step / 2 * float(point.gradient.square().sum())
        kept.append((point.loss, promised_loss, point.step))
        if plan.regularity_every and number % plan.regularity_every == 0:
            regularity[number] = smallest_gram_eigenvalue(loss.system.parameter_derivative(point.parameters, loss.data))
    losses, promised, steps = torch.tensor(kept, dtype=torch.float64).T
    bounds = torch.tensor([guarantee.bound(t) for t in range(len(kept))], dtype=torch.float64)
    return GuaranteedRun(losses, promised, bounds, steps, 1 / steps, regularity, point.parameters, guarantee)


def guaranteed_loss(network: GuaranteedNetwork, batch: tuple[Tensor, Tensor]) -> TrainingLoss:
    """The training loss of the network on a batch, refused where the proof does not apply."""
    inputs, targets = batch
    if inputs.ndim != 2 or inputs.shape[1] != network.widths[0] or inputs.shape[0] != targets.shape[0]:
        raise InvalidInputError(
            f"inputs have shape {tuple(inputs.shape)} and targets {tuple(targets.shape)}; wanted are inputs of "
            f"(samples, {network.widths[0]}) and one target a sample. Flatten images."
        )
    _require_independent(inputs)
    outputs, are_labels = network.widths[-1], not targets.is_floating_point()
    if not are_labels and targets.shape[1:] != (outputs,):
        raise InvalidInputError(
            f"targets have shape {tuple(targets.shape)}; numbers to fit have the shape (samples, {outputs}), labels "
            "are integers."
        )
    cost = CrossEntropy(targets, outputs) if are_labels else SquareCost(targets.T.contiguous())
    return TrainingLoss(network.system(), inputs.T.contiguous(), cost)


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


# Lower bounds of λ(DF) from the layers, beside its true value.


@dataclass(frozen=True)
class LayerRegularity:
    """One layer at one point."""

    name: str
    parameter_derivative: float  # λ(Df)
    input_jacobian: float  # λ(Jf)
    smallest_gain: float  # σ(Jf)
    largest_gain: float  # |Jf|_2
    branch_gain: float | None  # |Jg|_2 of a residual layer's branch


@dataclass(frozen=True)
class Regularity:
    """λ(DF) at one point with its lower bounds."""

    true: float
    from_layers: float  # Σ_l λ(Df_l) Π_{j>l} λ(Jf_j) (proposition 4.6, equation 12)
    from_skips: float  # σ(X)² σ(DP)² Π (1 − |Jg_l|)² (theorem 4.7); 0 where its hypotheses do not hold
    largest: float  # |DF|_2
    layers: tuple[LayerRegularity, ...]


def regularity(system: Composition, parameters: Weights, data: Inputs) -> Regularity:
    """The true λ(DF) of a system on a data matrix, and its lower bounds from the layers."""
    DF = system.parameter_derivative(parameters, data)
    states, own = system.states(parameters, data), system.split(parameters)
    layers = tuple(map(_layer_regularity, system.layers, own, states[:-1]))
    from_layers, behind = 0.0, 1.0
    for layer in reversed(layers):
        from_layers += layer.parameter_derivative * behind
        behind *= layer.input_jacobian
    from_skips = _from_skips(system, own[0], data, layers)
    return Regularity(smallest_gram_eigenvalue(DF), from_layers, from_skips, largest_singular_value(DF), layers)


def skip_bound(branch_gain: float) -> float:
    """σ(I + Jg) >= 1 − |Jg|_2 for a skip whose singular values are 1 (lemma B.4); 0 where that says nothing."""
    return max(0.0, 1 - branch_gain)


def uniform_bound(data: Inputs, margin: float, blocks: int) -> float:
    """σ(X)² margin^(2 blocks): below λ(DF) for all parameters, where the first layer is free.

    The data have independent columns, and behind the first layer the branches have gains of at most 1 − margin.
    """
    return smallest_gram_eigenvalue(data.T) * margin ** (2 * blocks)


def _layer_regularity(layer: Layer, own: Tensor, Z: Tensor) -> LayerRegularity:
    J = layer.input_jacobian(own, Z)
    values = torch.linalg.svdvals(J)
    branch = layer.branch.input_jacobian(own, Z) if isinstance(layer, Residual) else None
    return LayerRegularity(
        name=layer.name,
        parameter_derivative=smallest_gram_eigenvalue(layer.parameter_derivative(own, Z)) if layer.parameters else 0.0,
        input_jacobian=smallest_gram_eigenvalue(J),
        smallest_gain=float(values[-1]),
        largest_gain=float(values[0]),
        branch_gain=None if branch is None else largest_singular_value(branch),
    )


def _from_skips(system: Composition, own: Tensor, data: Tensor, layers: tuple[LayerRegularity, ...]) -> float:
    """The bound, if all layers behind the affine one have skips with all singular values 1 that do not widen."""
    first, *blocks = system.layers
    contracting = (
        isinstance(block, Residual) and block.skip.is_isometric() and block.outputs <= block.inputs for block in blocks
    )
    if not isinstance(first, Affine) or not all(contracting):
        return 0.0
    P = first.parameterisation
    # λ(D(P X)) >= λ(Xᵀ) λ(DP): lemma B.5 with λ where the paper prints σ
    bound = smallest_gram_eigenvalue(data.T) * smallest_gram_eigenvalue(P.derivative(own[: P.parameters]))
    for layer in layers[1:]:
        assert layer.branch_gain is not None, "all layers after the first are residual"
        bound *= skip_bound(layer.branch_gain) ** 2
    return bound
