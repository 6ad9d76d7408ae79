"""Final losses of all learning rates and starts of one family and depth, trained as one program."""

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.studies.li2016_shortcuts.digits import WIDTH, digit_moments, whitened_digits
from skiplens.studies.li2016_shortcuts.families import FAMILIES, Family
from skiplens.studies.li2016_shortcuts.learning_rates.settings import LinearGrid, RateGrid, RectifiedGrid
from skiplens.sweeps import unfinished_work
from skiplens.training.batched import (
    Plan,
    Units,
    drawn_starts,
    network_maps,
    train_linear_networks,
    train_rectified_networks,
)


def linear_grid(settings: LinearGrid) -> dict[str, Tensor]:
    """Losses above the lowest one a linear network can have, (rates, networks), and the losses at the start."""
    moments, units = digit_moments(settings.source, settings.samples), _units(FAMILIES[settings.family])
    runs = train_linear_networks(*_starts(settings), moments, _plan(settings), units)
    excess = torch.stack([moments.excess_loss(network) for network in network_maps(runs.weights, units)])
    return {
        "excess": _square(excess.nan_to_num(torch.inf), settings),
        "losses": _square(runs.losses, settings),
        "first_losses": _square(runs.loss_history[0], settings)[0],
    }


def rectified_grid(settings: RectifiedGrid) -> dict[str, Tensor]:
    """Losses in float32, (rates, networks)."""
    starts, rates = _starts(settings)
    data = whitened_digits(settings.source, settings.samples)
    shortcut = FAMILIES[settings.family].shortcut
    starts = starts.to("cuda" if settings.gpu else "cpu", torch.float32)
    runs = train_rectified_networks(starts, rates, (data.inputs, data.targets), _plan(settings), shortcut)
    return {"losses": _square(runs.losses.double().cpu(), settings)}


def _starts(settings: RateGrid) -> tuple[Float[Tensor, "nets matrices width width"], Float[Tensor, " nets"]]:
    """Every start with every learning rate, the starts of one rate side by side."""
    starts = drawn_starts(FAMILIES[settings.family].law, settings.depth, WIDTH, settings.streams())
    rates = 10 ** torch.tensor(settings.exponents, dtype=torch.float64)
    return starts.repeat(len(rates), 1, 1, 1), rates.repeat_interleave(len(starts))


def _plan(settings: RateGrid) -> Plan:
    return Plan(settings.epochs, record_at=(0,), checkpoint=unfinished_work())


def _units(family: Family) -> Units:
    """Plain networks in pairs too: that changes rounding only, and is faster."""
    return Units(family.branch_depth) if family.shortcut else Units(2, shortcut=False)


def _square(by_network: Float[Tensor, " nets"], settings: RateGrid) -> Float[Tensor, "rates networks"]:
    return by_network.reshape(len(settings.exponents), settings.networks)
