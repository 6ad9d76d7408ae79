"""The jacobians lens: singular values of every block with and without its shortcut, and end to end."""

from dataclasses import dataclass, replace
from typing import ClassVar

from skiplens.core.progress import Progress, silent
from skiplens.core.randomness import Randomness
from skiplens.core.untouched import untouched
from skiplens.lenses.effort import affordable
from skiplens.lenses.jacobians.options import JacobianOptions
from skiplens.lenses.jacobians.spectrum import measure
from skiplens.lenses.lens import Lens, Subject
from skiplens.readings import JacobianSpectrum, Provenance
from skiplens.residual import dissect

PASSES_OF_A_STEP = 6
"""Of a Lanczos step: forward and back through the blocks with their shortcuts, without, and end to end."""

FEWEST_STEPS = 12
"""The largest singular value is found with so many, and the density in its coarse form."""


@dataclass(frozen=True)
class JacobiansLens(Lens):
    """The Jacobian spectrum of a few samples, batch statistics frozen, cheap enough for every report."""

    name: ClassVar[str] = "jacobians"
    question: ClassVar[str] = "Do the layers keep the gradient alive?"

    samples: int = 4
    steps: int = 40
    probes: int = 1
    work: float = 5e9
    """Operations of one exact spectrum; larger blocks are seen through Lanczos."""

    def __call__(self, subject: Subject, randomness: Randomness, progress: Progress = silent) -> JacobianSpectrum:
        """Measure each block with and without its shortcut, and the whole network."""
        batch, cut = subject.few(self.samples, passes=PASSES_OF_A_STEP * self.steps * self.probes)
        settings = {"lens": self.name, "model": subject.name, "samples": batch.samples}
        clock = Provenance.begin(settings, randomness.seed, subject.device)
        steps = affordable(subject.operations, PASSES_OF_A_STEP * self.probes * batch.samples, self.steps, FEWEST_STEPS)
        options = JacobianOptions(seed=randomness.seed, steps=steps, probes=self.probes, work=self.work)
        with untouched(subject.model):
            network = dissect(subject.model, batch.inputs)
            reading = measure(network, None, options, options.effort("sample", "auto"), progress)
        return replace(reading, notes=(*cut, *reading.notes), provenance=clock.end())
