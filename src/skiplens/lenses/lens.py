"""A lens: options in, and a reading of a subject out; looking changes nothing."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import nn

from skiplens.core.progress import Progress
from skiplens.core.randomness import Randomness
from skiplens.data.batch import Batch
from skiplens.readings import Reading
from skiplens.residual import ResidualNetwork, dissect


@dataclass(frozen=True)
class Subject:
    """What is looked at: a model and the samples it is looked at with."""

    model: nn.Module
    batch: Batch
    name: str

    @cached_property
    def network(self) -> ResidualNetwork:
        """The model with its residual blocks; found once, when a lens first asks."""
        return dissect(self.model, self.batch.inputs)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next((tensor.device for tensor in self.model.parameters()), torch.device("cpu"))


class Lens(ABC):
    """A way to look; a subclass is a frozen dataclass of its options."""

    name: ClassVar[str]
    question: ClassVar[str]

    @abstractmethod
    def __call__(self, subject: Subject, randomness: Randomness, progress: Progress) -> Reading:
        """Take the reading; the model is as before afterwards, also after an error."""
