"""The rows of a monitor: gathered look by look, taken up from a file, turned into a reading."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from skiplens.core.errors import InvalidInputError
from skiplens.readings.file import read_file
from skiplens.readings.monitor import MonitorReading


@dataclass
class Look:
    """One look: after how many updates, at which loss, what was measured and what it took."""

    step: int
    loss: float
    numbers: dict[str, Tensor] = field(default_factory=dict)
    costs: dict[str, float] = field(default_factory=dict)


@dataclass
class Record:
    """All looks of a run, what was skipped and what cannot be measured."""

    looks: list[Look] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _missed: set[str] = field(default_factory=set)

    @classmethod
    def before(cls, reading: MonitorReading, step: int) -> "Record":
        """The looks of a reading that were taken before `step`."""
        looks = [_look(reading, row) for row in range(reading.looks) if int(reading.steps[row]) < step]
        return cls(looks, dict(reading.skipped), {}, list(reading.notes))

    def add(self, look: Look) -> None:
        """Keep a look; its numbers must have the shapes that they had before."""
        for name, rows in self.measured().items():
            if name in look.numbers and look.numbers[name].shape != rows[0].shape:
                raise InvalidInputError(
                    f"The file belongs to another model: {name} has shape {tuple(rows[0].shape)} there and "
                    f"{tuple(look.numbers[name].shape)} here. Choose another path, or start at step 0."
                )
        self.looks.append(look)

    def has(self, quantity: str) -> bool:
        """Whether a quantity was measured at any look."""
        return any(quantity in look.costs for look in self.looks)

    def skip(self, quantity: str) -> None:
        """Count that a quantity was due and not measured."""
        self.skipped[quantity] = self.skipped.get(quantity, 0) + 1

    def note(self, sentence: str) -> None:
        """Keep a sentence, once."""
        if sentence not in self.notes:
            self.notes.append(sentence)

    def miss(self, quantity: str, sentence: str) -> None:
        """Keep the first sentence about a quantity that was measured before and could not be later."""
        if quantity not in self._missed:
            self._missed.add(quantity)
            self.note(sentence)

    def measured(self) -> dict[str, Tensor]:
        """All numbers by name, one row a look, NaN where one was not measured."""
        return _columns([look.numbers for look in self.looks])

    def costs(self) -> dict[str, Tensor]:
        """Seconds by quantity, one entry a look, NaN where it was not measured."""
        return _columns([{name: torch.tensor(cost) for name, cost in look.costs.items()} for look in self.looks])

    def steps(self) -> Tensor:
        """Updates made before each look."""
        return torch.tensor([look.step for look in self.looks], dtype=torch.int64)

    def losses(self) -> Tensor:
        """The loss handed over at each look."""
        return torch.tensor([look.loss for look in self.looks], dtype=torch.float64)


def earlier_reading(path: Path) -> MonitorReading | None:
    """The reading of a monitor in `path`; none without a file, and an error for a file that is something else."""
    if not path.exists():
        return None
    reading = read_file(path)
    if not isinstance(reading, MonitorReading):
        raise InvalidInputError(
            f"{path} holds a {reading.kind!r} reading, which a monitor would overwrite. Choose another path."
        )
    return reading


def _look(reading: MonitorReading, row: int) -> Look:
    numbers = {name: rows[row] for name, rows in reading.measured.items() if not bool(rows[row].isnan().all())}
    costs = {name: float(seconds[row]) for name, seconds in reading.costs.items() if not math.isnan(seconds[row])}
    return Look(int(reading.steps[row]), float(reading.losses[row]), numbers, costs)


def _columns(rows: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    rows = [{name: torch.as_tensor(value).detach().cpu().double() for name, value in row.items()} for row in rows]
    shapes = {name: value.shape for row in rows for name, value in row.items()}
    missing = {name: torch.full(shape, math.nan, dtype=torch.float64) for name, shape in shapes.items()}
    return {name: torch.stack([row.get(name, missing[name]) for row in rows]) for name in shapes}
