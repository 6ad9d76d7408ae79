"""Descents of theorem 5.1: the counterexample, the proof's bounds, the paper's network and the repaired one."""

import torch

from skiplens.core.axes import Int, Tensor
from skiplens.studies.macdonald2023_regularity.convergence.settings import (
    START_SCALES,
    Descents,
    OneLayer,
    Repaired,
    Trapped,
)
from skiplens.studies.macdonald2023_regularity.networks import (
    CLASSES,
    HIDDEN,
    WIDTHS,
    ResidualNetwork,
    random_data,
    random_labels,
    random_parameters,
    random_targets,
)
from skiplens.theory.guaranteed_training import (
    GuaranteedNetwork,
    TrainingPlan,
    descend,
    largest_weight_bound,
    run_counterexample,
    run_printed_bound,
    train_with_guarantee,
)
from skiplens.theory.guaranteed_training.counterexample import FREE_START, TRAPPED_START
from skiplens.theory.guaranteed_training.printed_bound import INPUT
from skiplens.theory.smoothness import CrossEntropy, TrainingLoss, certified_smoothness

SAFETY = 1.9
"""Step sizes are this over β."""


def trapped_descent(settings: Trapped) -> dict[str, Tensor]:
    """Losses and outputs of the counterexample at some steps, the trap and the infimum."""
    centre = torch.tensor(TRAPPED_START if settings.start == "trapped" else FREE_START, dtype=torch.float64)
    w, a, b = (centre + settings.spread * torch.randn(3, dtype=torch.float64, generator=settings.stream())).tolist()
    run = run_counterexample(settings.cost, (w, a, b), settings.iterations)
    places = some_steps(settings.iterations)
    return {
        "step": places,
        "loss": run.losses[places],
        "output": run.outputs[places],
        "sum_of_lambda": run.regularity.cumsum(0)[places],
        "trap": torch.tensor(run.trap, dtype=torch.float64),
        "infimum": torch.tensor(run.infimum, dtype=torch.float64),
    }


def one_layer_bounds(settings: OneLayer) -> dict[str, Tensor]:
    """Loss, weight, both bounds and σ(DF) of one normalised weight at some steps; nothing is drawn."""
    run, places = run_printed_bound(settings.iterations), some_steps(settings.iterations)
    return {
        "step": places,
        "loss": run.losses[places],
        "weight": run.weights[places],
        "valid": run.valid[places],
        "printed": run.printed[places],
        "sigma": INPUT * (1 + run.weights[places].square()) ** -1.5,
        "floor": torch.tensor(run.floor, dtype=torch.float64),
    }


def printed_network_descent(settings: Descents) -> dict[str, Tensor]:
    """The theorem's network with cross-entropy from each size of start (starts, steps), and its largest weights."""
    generator = settings.stream()
    system, data = ResidualNetwork().system(), random_data(generator)
    loss = TrainingLoss(system, data, CrossEntropy(random_labels(generator), CLASSES))
    step = SAFETY / certified_smoothness(loss).finite()
    losses, weights, bounds = [], [], []
    for scale in START_SCALES:
        start = random_parameters(system, scale, generator)
        points = list(descend(loss, start, step, settings.iterations))
        losses.append([point.loss for point in points])
        weights.append(float(points[-1].parameters[: system.layers[0].parameters].abs().max()))
        bounds.append(largest_weight_bound(loss, start, step, settings.iterations))
    found = {"loss": losses, "largest_weight": weights, "weight_bound": bounds}
    return {name: torch.tensor(values, dtype=torch.float64) for name, values in found.items()}


def repaired_descent(settings: Repaired) -> dict[str, Tensor]:
    """Losses and proved bounds (starts, steps) of the repaired network, and whether every certificate was kept."""
    generator = settings.stream()
    network, data = GuaranteedNetwork(WIDTHS, HIDDEN), random_data(generator)
    targets = random_labels(generator) if settings.cost == "cross_entropy" else random_targets(generator).T
    plan = TrainingPlan(settings.iterations, regularity_every=max(1, settings.iterations // 10))
    starts = (network.random_start(generator, scale) for scale in START_SCALES)
    runs = [train_with_guarantee(network, (data.T, targets), start, plan) for start in starts]
    return {
        "loss": torch.stack([run.losses for run in runs]),
        "bound": torch.stack([run.bounds for run in runs]),
        "kept": torch.tensor([run.holds for run in runs]),
    }


def some_steps(iterations: int) -> Int[Tensor, " points"]:
    """Numbers of steps from 0 to all, equally spaced in their logarithm."""
    powers = torch.logspace(0, torch.tensor(float(iterations)).log10().item(), 61, dtype=torch.float64)
    return torch.cat([torch.zeros(1, dtype=torch.int64), powers.round().long()]).unique()
