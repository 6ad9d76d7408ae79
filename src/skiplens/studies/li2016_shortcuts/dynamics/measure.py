"""Figures 5 and 6, measured: exact Hessians along gradient descent."""

from collections.abc import Callable
from functools import cache

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.studies.li2016_shortcuts.digits import digit_moments
from skiplens.studies.li2016_shortcuts.dynamics.settings import Descent, SpectraAtLosses, Training
from skiplens.studies.li2016_shortcuts.families import FAMILIES
from skiplens.theory.shortcut_hessian import count_negative, linear_hessian, spectrum_of
from skiplens.training.batched import ManyRuns, Plan, Units, train_linear_networks

QUANTITIES = ("largest", "tenth", "condition_number", "index")


def spectra_at_losses(settings: SpectraAtLosses) -> dict[str, Tensor]:
    """The spectrum's numbers where the loss first falls to each value, interpolated linearly in the loss."""
    run = _trained(settings, tuple(range(settings.epochs + 1)))
    spectrum = cache(lambda epoch: _spectrum(settings, run.weights_at(epoch)[0]))
    rows = torch.stack([at_loss(run.loss_history[:, 0], loss, spectrum) for loss in settings.losses])
    return {
        "loss": torch.tensor(settings.losses, dtype=torch.float64),
        **dict(zip(QUANTITIES, rows.unbind(1), strict=True)),
    }


def descent(settings: Descent) -> dict[str, Tensor]:
    """Loss, norm of the gradient and index every few epochs."""
    epochs = tuple(range(0, settings.epochs + 1, settings.every))
    run = _trained(settings, epochs)
    counts = [count_negative(_hessian(settings, run.weights_at(epoch)[0])) for epoch in epochs]
    return {
        "epoch": torch.tensor(epochs),
        "loss": run.loss_history[:, 0],
        "gradient_norm": run.gradient_norm_history[:, 0],
        "index": torch.tensor(counts, dtype=torch.float64) / run.weights[0].numel(),
    }


def at_loss(
    losses: Float[Tensor, " epochs"], wanted: float, quantities: Callable[[int], Float[Tensor, " quantities"]]
) -> Float[Tensor, " quantities"]:
    """The quantities where the loss first falls to `wanted`, between the two epochs; NaN if it never does.

    Args:
        losses: After 0, 1, 2, … updates.
        wanted: The loss.
        quantities: Those of an epoch.
    """
    reached = (losses <= wanted).nonzero().flatten()
    if not len(reached) or int(reached[0]) == 0:
        return torch.full_like(quantities(0), torch.nan)
    after = int(reached[0])
    share = (losses[after - 1] - wanted) / (losses[after - 1] - losses[after])
    return torch.lerp(quantities(after - 1), quantities(after), share)


def _trained(settings: Training, epochs: tuple[int, ...]) -> ManyRuns:
    family = FAMILIES[settings.family]
    starts = family.start(settings.depth, settings.stream())[None]
    return train_linear_networks(
        starts,
        torch.tensor([settings.learning_rate], dtype=torch.float64),
        digit_moments(settings.source),
        Plan(settings.epochs, record_at=epochs, snapshots_at=epochs),
        Units(family.branch_depth, family.shortcut),
    )


def _hessian(settings: Training, weights: Tensor) -> Tensor:
    return linear_hessian(FAMILIES[settings.family].units(weights), digit_moments(settings.source))


def _spectrum(settings: Training, weights: Tensor) -> Tensor:
    """The numbers of `QUANTITIES`."""
    spectrum = spectrum_of(_hessian(settings, weights))
    numbers = (spectrum.largest_absolute, spectrum.absolute_quantile(0.1), spectrum.condition_number, spectrum.index)
    return torch.tensor(numbers, dtype=torch.float64)
