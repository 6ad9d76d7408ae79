"""Figure 3, measured: mean Frobenius norms of many networks trained together."""

import torch

from skiplens.core.axes import Tensor
from skiplens.core.randomness import Randomness
from skiplens.studies.li2016_shortcuts.digits import WIDTH, digit_moments, whitened_digits
from skiplens.studies.li2016_shortcuts.families import FAMILIES
from skiplens.studies.li2016_shortcuts.norms.settings import NormHistory
from skiplens.training.batched import (
    ManyRuns,
    Plan,
    Units,
    drawn_starts,
    train_linear_networks,
    train_rectified_networks,
)


def norm_history(settings: NormHistory) -> dict[str, Tensor]:
    """Mean over the matrices of ‖W‖_F, and the loss, of every network (epochs, networks)."""
    run = _trained(settings)
    return {"epoch": run.epochs, "norm": run.mean_norm_history.double(), "loss": run.loss_history.double()}


def _trained(settings: NormHistory) -> ManyRuns:
    family = FAMILIES["2-shortcut"]
    streams = [Randomness(settings.seed).child(settings.key(), network) for network in range(settings.networks)]
    starts = drawn_starts(family.law, settings.depth, WIDTH, streams)
    rates = torch.full((settings.networks,), settings.learning_rate, dtype=torch.float64)
    plan = Plan(settings.epochs, record_at=tuple(range(0, settings.epochs + 1, settings.every)))
    if settings.activation == "identity":
        moments = digit_moments(settings.source, settings.samples)
        return train_linear_networks(starts, rates, moments, plan, Units(family.branch_depth, family.shortcut))
    digits = whitened_digits(settings.source, settings.samples)
    data = (digits.inputs.float(), digits.targets.float())
    return train_rectified_networks(starts.float(), rates.float(), data, plan)
