"""A lens: options in, and a reading of a subject out; looking changes nothing."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import nn

from skiplens.core.memory import REDUCTION
from skiplens.core.progress import Progress
from skiplens.core.randomness import Randomness
from skiplens.data.batch import Batch
from skiplens.lenses.effort import affordable, cut_note, operations_of
from skiplens.readings import Reading
from skiplens.residual import ResidualNetwork, dissect


@dataclass(frozen=True)
class Subject:
    """What is looked at: a model and the samples it is looked at with."""

    model: nn.Module
    batch: Batch
    name: str
    notes: tuple[str, ...] = ()
    """What was done to the model before it was looked at."""

    @cached_property
    def network(self) -> ResidualNetwork:
        """The model with its residual blocks; found once, when a lens first asks."""
        return dissect(self.model, self.batch.inputs)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next((tensor.device for tensor in self.model.parameters()), torch.device("cpu"))

    @cached_property
    def operations(self) -> float:
        """Floating operations of one forward pass of one sample; counted once, when a lens first asks."""
        return operations_of(self.model, self.batch)

    def few(self, most: int, passes: float) -> tuple[Batch, tuple[str, ...]]:
        """The first samples, up to `most`, of which a lens can afford so many forward passes; what to tell if fewer."""
        wanted = min(most, self.batch.samples)
        least = min(wanted, 2 if self.model.training else 1)  # batch norm in training mode refuses a single sample
        count = max(least, int(affordable(self.operations, passes, wanted, least) * REDUCTION.get()))
        return self.batch.first(count), cut_note(count, wanted)


class Lens(ABC):
    """A way to look; a subclass is a frozen dataclass of its options."""

    name: ClassVar[str]
    question: ClassVar[str]

    @abstractmethod
    def __call__(self, subject: Subject, randomness: Randomness, progress: Progress) -> Reading:
        """Take the reading; the model is as before afterwards, also after an error."""
