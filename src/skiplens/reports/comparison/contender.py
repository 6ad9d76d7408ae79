"""One of the models that are compared: a report for each draw of its weights."""

from dataclasses import dataclass

import torch
from torch import Tensor

from skiplens.readings import Reading
from skiplens.reports.comparison.key_numbers import KeyNumber, key_numbers
from skiplens.reports.report import Report


@dataclass(frozen=True)
class Contender:
    """A name and the reports of all draws; `note` says why there is only one where there is only one."""

    name: str
    reports: tuple[Report, ...]
    note: str = ""

    def readings(self, kind: type[Reading]) -> tuple[Reading, ...]:
        """The readings of that kind, one of each draw where it could be taken."""
        taken = (report.reading(kind) for report in self.reports)
        return tuple(reading for reading in taken if reading is not None)

    def values(self, kind: type[Reading], number: KeyNumber) -> Tensor:
        """One number over all draws."""
        found = [entry for reading in self.readings(kind) for entry in key_numbers(reading)]
        return torch.tensor([entry.value for entry in found if entry.label == number.label], dtype=torch.float64)
