"""Quantities of several runs at the same places: at given losses, interpolated along each run, or after given steps."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from skiplens.core.errors import InvalidInputError
from skiplens.readings.along import QuantityAlong
from skiplens.training.along import AlongTraining

Quantity = str | Callable[[Any], float]
"""The name of an entry or attribute of what was measured, or a function of it."""


def at_losses(runs: Sequence[AlongTraining], quantity: Quantity, name: str = "") -> QuantityAlong:
    """The quantity of every run at each loss that was asked for, as figures 5 and 6 of 'Demystifying ResNet' have it.

    Where a run's loss falls from a to b past the wanted loss, the quantity is interpolated linearly in the loss
    between the measurements at a and at b.

    Args:
        runs: Runs measured at losses; a loss that a run never came to from above is NaN for that run.
        quantity: What to take from each measurement; ``"value"`` takes a measurement that is a number as it is.
        name: How to call the quantity; the words of `quantity` if not given.
    """
    losses = sorted({loss for run in runs for loss in run.crossings}, reverse=True)
    return _gathered(runs, losses, quantity, name, along="loss")


def at_steps(runs: Sequence[AlongTraining], quantity: Quantity, name: str = "") -> QuantityAlong:
    """The quantity of every run after each number of steps at which any of them was measured.

    Args:
        runs: Runs measured at steps; a step at which a run was not measured is NaN for that run.
        quantity: What to take from each measurement; ``"value"`` takes a measurement that is a number as it is.
        name: How to call the quantity; the words of `quantity` if not given.
    """
    steps = sorted({step for run in runs for step in run.taken})
    return _gathered(runs, steps, quantity, name, along="step")


def _gathered(
    runs: Sequence[AlongTraining], places: Sequence[float], quantity: Quantity, name: str, along: str
) -> QuantityAlong:
    if not runs:
        raise InvalidInputError("There are no runs to take a quantity from; hand over at least one.")
    if not places:
        raise InvalidInputError(
            f"None of the runs was measured at any {along}: ask for steps that the runs make, or for losses between "
            "their first and their last loss."
        )
    value = _interpolated if along == "loss" else _at_step
    return QuantityAlong(
        name=name or (quantity if isinstance(quantity, str) else getattr(quantity, "__name__", "quantity")),
        along=along,
        places=torch.tensor(places, dtype=torch.float64),
        by_run=torch.tensor([[value(run, place, quantity) for place in places] for run in runs], dtype=torch.float64),
    )


def _at_step(run: AlongTraining, step: float, quantity: Quantity) -> float:
    return _number(run.taken[int(step)].value, quantity) if step in run.taken else math.nan


def _interpolated(run: AlongTraining, loss: float, quantity: Quantity) -> float:
    if loss not in run.crossings:
        return math.nan
    before, after = (run.taken[step] for step in run.crossings[loss])
    share = 1.0 if before.step == after.step else (before.loss - loss) / (before.loss - after.loss)
    first, last = _number(before.value, quantity), _number(after.value, quantity)
    return last if share == 1 else first + share * (last - first)


def _number(value: Any, quantity: Quantity) -> float:
    if callable(quantity):
        return float(quantity(value))
    if isinstance(value, Mapping):
        found = value.get(quantity)
    else:
        found = value if quantity == "value" and _is_number(value) else getattr(value, quantity, None)
    if found is None or not _is_number(found):
        raise InvalidInputError(
            f"{quantity!r} is no number of a measurement of type {type(value).__name__}; "
            "name one of its numbers, or give a function that takes one from it."
        )
    return float(found)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) or (isinstance(value, torch.Tensor) and value.numel() == 1)
