"""The residual structure itself: what every other lens stands on."""

from dataclasses import dataclass
from typing import ClassVar

from skiplens.core.progress import Progress, silent
from skiplens.core.randomness import Randomness
from skiplens.lenses.lens import Lens, Subject
from skiplens.readings import Provenance, StructureReading
from skiplens.residual import ResidualNetwork


@dataclass(frozen=True)
class StructureLens(Lens):
    """Which residual blocks a network has, and how large it is."""

    name: ClassVar[str] = "structure"
    question: ClassVar[str] = "What is this network made of?"

    def __call__(self, subject: Subject, randomness: Randomness, progress: Progress = silent) -> StructureReading:
        """Find the blocks and count what they hold."""
        clock = Provenance.begin({"lens": self.name, "model": subject.name}, randomness.seed, subject.device)
        progress("finding the residual blocks", 0, 1)
        network = subject.network
        progress("finding the residual blocks", 1, 1)
        return _reading(subject, network, clock.end())


def _reading(subject: Subject, network: ResidualNetwork, provenance: Provenance) -> StructureReading:
    raise NotImplementedError
