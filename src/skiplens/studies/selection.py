"""Readings of a sweep by the settings of their runs."""

from collections.abc import Sequence
from typing import Any

import torch

from skiplens.core.axes import Tensor
from skiplens.core.errors import InvalidInputError
from skiplens.readings import Measurement


def chosen(readings: Sequence[Measurement], measure: str = "", **settings: Any) -> list[Measurement]:
    """The readings of the function called `measure` whose settings have the given values, in the order of the runs."""
    found = [reading for reading in readings if _fits(reading, measure, settings)]
    if not found:
        raise InvalidInputError(f"No run of {measure or 'any measure'} has {settings}; the item's runs lack it.")
    return found


def stacked(readings: Sequence[Measurement], array: str, measure: str = "", **settings: Any) -> Tensor:
    """An array of the chosen readings, one row a run."""
    return torch.stack([reading[array] for reading in chosen(readings, measure, **settings)])


def values(readings: Sequence[Measurement], name: str, measure: str = "", **settings: Any) -> list[Any]:
    """The different values of a setting among the chosen readings, in order."""
    return sorted({reading.setting(name) for reading in chosen(readings, measure, **settings)})


def against(
    readings: Sequence[Measurement], array: str, axis: str, measure: str = "", **settings: Any
) -> tuple[list[Any], Tensor]:
    """The values of the setting called `axis`, and an array against them: (runs of one value, values, …)."""
    places = values(readings, axis, measure, **settings)
    columns = [stacked(readings, array, measure, **settings, **{axis: place}) for place in places]
    return places, torch.stack(columns, dim=1)


def _fits(reading: Measurement, measure: str, settings: dict[str, Any]) -> bool:
    own = reading.provenance.settings
    named = not measure or reading.name.rpartition(":")[2] == measure
    return named and all(name in own and own[name] == value for name, value in settings.items())
