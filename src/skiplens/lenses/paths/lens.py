"""The paths lens: the spectra of the signal and of the gradient, and what follows from them."""

from dataclasses import dataclass, replace
from typing import ClassVar

from skiplens.core.errors import SkiplensError
from skiplens.core.progress import Progress, silent
from skiplens.core.randomness import Randomness
from skiplens.core.untouched import untouched
from skiplens.data.batch import Batch, Inputs
from skiplens.lenses.effort import OPERATIONS
from skiplens.lenses.lens import Lens, Subject
from skiplens.lenses.paths.fallback import signal_or_derivative
from skiplens.lenses.paths.options import PathOptions
from skiplens.lenses.paths.spectrum import Request, measure
from skiplens.readings import PathSpectrum, Provenance
from skiplens.residual import ResidualNetwork, dissect


@dataclass(frozen=True)
class PathsLens(Lens):
    """The path spectrum of the signal, with the contribution of each block, incoherent energies, and the gradient."""

    name: ClassVar[str] = "paths"
    question: ClassVar[str] = "How deep is this network really, and which path lengths carry its signal?"

    samples: int = 16
    signs: int = 4

    def __call__(self, subject: Subject, randomness: Randomness, progress: Progress = silent) -> PathSpectrum:
        """Decompose the output, or its derivative along a random direction where the output has no frozen form."""
        batch, signs, cut = self._affordable(subject)
        inputs = batch.inputs
        settings = {"lens": self.name, "model": subject.name, "samples": batch.samples}
        clock = Provenance.begin(settings, randomness.seed, subject.device)
        request = Request(PathOptions(seed=randomness.seed, blocks=True, signs=signs), None, progress)
        with untouched(subject.model):
            network = dissect(subject.model, inputs)
            reading = self._measured(network, inputs, request)
            reading = _with_gradient(reading, network, inputs, request)
        return replace(reading, notes=(*cut, *reading.notes), provenance=clock.end())

    def _affordable(self, subject: Subject) -> tuple[Batch, int, tuple[str, ...]]:
        """Samples, random signs and what to tell: signs are left out where even one sample would cost too much."""
        spectrum = max(1, len(subject.network.blocks))  # a spectrum takes about one forward pass for each block
        signs = self.signs if subject.operations * (2 + self.signs) * spectrum <= OPERATIONS else 0
        batch, cut = subject.few(self.samples, passes=(2 + signs) * spectrum)
        left_out = ("The incoherent energies were left out: they would take too long.",) * (signs < self.signs)
        return batch, signs, (*cut, *left_out)

    def _measured(self, network: ResidualNetwork, inputs: Inputs, request: Request) -> PathSpectrum:
        reading, reason = signal_or_derivative(network, inputs, request)
        if not reason:
            return reading
        note = f"{reason} So this is the spectrum of the output's derivative along a random direction."
        return replace(reading, notes=(*reading.notes, note))


def _with_gradient(reading: PathSpectrum, network: ResidualNetwork, inputs: Inputs, request: Request) -> PathSpectrum:
    """The reading with the spectrum of the gradient beside it, or with the reason why there is none."""
    plain = replace(request, options=PathOptions(seed=request.options.seed))
    try:
        energy = measure(network, inputs, "gradient", plain).sample_energy
    except SkiplensError as error:
        return replace(reading, notes=(*reading.notes, f"The gradient has no spectrum here: {error}"))
    return replace(reading, gradient_energy=energy)
