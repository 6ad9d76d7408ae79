"""The paths lens: the spectrum of the signal and what follows from it."""

from dataclasses import dataclass, replace
from typing import ClassVar

from skiplens.core.progress import Progress, silent
from skiplens.core.randomness import Randomness
from skiplens.core.untouched import untouched
from skiplens.data.batch import Inputs
from skiplens.lenses.lens import Lens, Subject
from skiplens.lenses.paths.fallback import signal_or_derivative
from skiplens.lenses.paths.options import PathOptions
from skiplens.lenses.paths.spectrum import Request
from skiplens.readings import PathSpectrum, Provenance
from skiplens.residual import ResidualNetwork, dissect


@dataclass(frozen=True)
class PathsLens(Lens):
    """The path spectrum of the signal, with the contribution of each block and the incoherent energies."""

    name: ClassVar[str] = "paths"
    question: ClassVar[str] = "How deep is this network really, and which path lengths carry its signal?"

    samples: int = 16
    signs: int = 4

    def __call__(self, subject: Subject, randomness: Randomness, progress: Progress = silent) -> PathSpectrum:
        """Decompose the output, or its derivative along a random direction where the output has no frozen form."""
        inputs = subject.batch.first(self.samples).inputs
        settings = {"lens": self.name, "model": subject.name, "samples": min(self.samples, subject.batch.samples)}
        clock = Provenance.begin(settings, randomness.seed, subject.device)
        request = Request(PathOptions(seed=randomness.seed, blocks=True, signs=self.signs), None, progress)
        with untouched(subject.model):
            network = dissect(subject.model, inputs)
            reading = self._measured(network, inputs, request)
        return replace(reading, provenance=clock.end())

    def _measured(self, network: ResidualNetwork, inputs: Inputs, request: Request) -> PathSpectrum:
        reading, reason = signal_or_derivative(network, inputs, request)
        if not reason:
            return reading
        note = f"{reason} So this is the spectrum of the output's derivative along a random direction."
        return replace(reading, notes=(*reading.notes, note))
