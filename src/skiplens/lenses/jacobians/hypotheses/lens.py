"""The convergence lens: the hypotheses of the theorems as one more reading of an inspection."""

from dataclasses import dataclass, replace
from typing import ClassVar

from skiplens.core.progress import Progress, silent
from skiplens.core.randomness import Randomness
from skiplens.lenses.jacobians.hypotheses.check import check_hypotheses
from skiplens.lenses.lens import Lens, Subject
from skiplens.readings import HypothesesReading, Provenance

LABEL = "checking hypotheses"


@dataclass(frozen=True)
class ConvergenceLens(Lens):
    """Which hypotheses of the convergence theorems the network meets on these samples."""

    name: ClassVar[str] = "convergence"
    question: ClassVar[str] = "Is gradient descent guaranteed to reach the optimum, and if not, which hypothesis fails?"

    def __call__(self, subject: Subject, randomness: Randomness, progress: Progress = silent) -> HypothesesReading:
        """Check with the mean square where targets are numbers and with cross-entropy where they are classes."""
        loss = "mse" if subject.batch.targets.is_floating_point() else "cross_entropy"
        settings = {"lens": self.name, "model": subject.name, "loss": loss, "samples": subject.batch.samples}
        clock = Provenance.begin(settings, randomness.seed, subject.device)
        progress(LABEL, 0, 1)
        reading = check_hypotheses(subject.model, subject.batch, loss, seed=randomness.seed)
        progress(LABEL, 1, 1)
        return replace(reading, model=subject.name, provenance=clock.end())
