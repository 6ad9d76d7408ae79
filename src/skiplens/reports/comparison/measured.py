"""The table of a comparison: every key number of every model, and how each model differs from the first."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from skiplens.readings import Reading
from skiplens.reports.comparison.contender import Contender
from skiplens.reports.comparison.difference import LEVEL, adjusted, is_certain, p_value
from skiplens.reports.comparison.key_numbers import KeyNumber, key_numbers
from skiplens.reports.section import number_in_words


@dataclass(frozen=True)
class Measured:
    """A number of all models.

    Attributes:
        kind: Kind of the reading it comes from.
        label: What it is.
        values: For each model one value a draw.
        exact: Whether it does not depend on how weights are drawn.
        p_values: Of each model but the first against the first; NaN where nothing was tested.
        adjusted: The same after Holm's correction for all numbers of the comparison.
    """

    kind: str
    label: str
    values: tuple[Tensor, ...]
    exact: bool
    p_values: tuple[float, ...]
    adjusted: tuple[float, ...] = ()

    def verdict(self, index: int) -> str:
        """How model `index` differs from the first: higher, lower, same, seed noise or not tested."""
        first, other, p = self.values[0], self.values[index], self.adjusted[index - 1]
        if is_certain(first, other) or (self.exact and len(first) and len(other)):
            return "same" if first[0] == other[0] else _direction(first, other)
        if math.isnan(p):
            return "not tested"
        return "seed noise" if p >= LEVEL else _direction(first, other)

    @property
    def tested(self) -> bool:
        """Whether any model could be compared with the first."""
        return any(self.verdict(index) != "not tested" for index in range(1, len(self.values)))

    @property
    def differs(self) -> bool:
        """Whether any model differs from the first by more than noise."""
        return any(self.verdict(index) in ("higher", "lower") for index in range(1, len(self.values)))

    def row(self, names: Sequence[str]) -> Mapping[str, Any]:
        """The row of a table."""
        cells = {name: in_words(values) for name, values in zip(names, self.values, strict=True)}
        for index, name in enumerate(names[1:], start=1):
            p = self.p_values[index - 1]
            column = "difference" if len(names) == 2 else f"difference, {name}"
            cells[column] = f"{self.verdict(index)}{'' if math.isnan(p) else f', p = {p:.2g}'}"
        return {"number": self.label, **cells}

    def to_json(self, names: Sequence[str]) -> dict[str, Any]:
        """In words that JSON has."""
        against = [
            {"model": name, "verdict": self.verdict(index), "p": _plain(p), "p_holm": _plain(holm)}
            for index, (name, p, holm) in enumerate(zip(names[1:], self.p_values, self.adjusted, strict=True), start=1)
        ]
        values = {name: [_plain(v) for v in entry.tolist()] for name, entry in zip(names, self.values, strict=True)}
        return {"kind": self.kind, "number": self.label, "values": values, "against_first": against}


def measure(contenders: Sequence[Contender], kinds: Sequence[type[Reading]]) -> tuple[Measured, ...]:
    """Every key number of these kinds of readings, tested, in order."""
    rows = [row for kind in kinds for row in _of_kind(contenders, kind)]
    corrected = iter(adjusted([p for row in rows for p in row.p_values]))
    return tuple(replace(row, adjusted=tuple(next(corrected) for _ in row.p_values)) for row in rows)


def in_words(values: Tensor) -> str:
    """Mean ± standard deviation over draws; the number alone where there is one draw or no spread."""
    if not len(values):
        return "–"
    mean, spread = float(values.mean()), float(values.std()) if len(values) > 1 else 0.0
    return number_in_words(mean) + (f" ± {number_in_words(spread)}" if spread > 0 else "")


def _of_kind(contenders: Sequence[Contender], kind: type[Reading]) -> list[Measured]:
    entries = [entry for one in contenders for reading in one.readings(kind)[:1] for entry in key_numbers(reading)]
    numbers = {entry.label: entry for entry in entries}
    return [_measured(contenders, kind, number) for number in numbers.values()]


def _measured(contenders: Sequence[Contender], kind: type[Reading], number: KeyNumber) -> Measured:
    values = tuple(contender.values(kind, number) for contender in contenders)
    first, *others = (_scaled(entry, number) for entry in values)
    p_values = tuple(p_value(first, other) for other in others)
    return Measured(kind.kind, number.label, values, number.exact, p_values)


def _direction(first: Tensor, other: Tensor) -> str:
    return "higher" if other.mean() > first.mean() else "lower"


def _scaled(values: Tensor, number: KeyNumber) -> Tensor:
    if not number.logarithmic:
        return values
    return torch.where(values > 0, values, math.nan).log()


def _plain(value: float) -> float | str | None:
    if math.isnan(value):
        return None
    return value if math.isfinite(value) else str(value)
