"""The empirical tangent kernel of a model on the first samples of its data."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from skiplens.core.progress import Progress, silent
from skiplens.core.randomness import Randomness
from skiplens.core.untouched import untouched
from skiplens.data.batch import Batch
from skiplens.derivatives import empirical_ntk, is_batch_coupled, pure_model
from skiplens.derivatives.samples import samples_of
from skiplens.lenses.lens import Lens, Subject
from skiplens.readings import Provenance, TangentReading


@dataclass(frozen=True)
class TangentLens(Lens):
    """The tangent kernel of `samples` samples, summed over outputs."""

    name: ClassVar[str] = "tangent"
    question: ClassVar[str] = "What kernel is this network, to first order in its parameters?"

    samples: int = 32
    coupled_samples: int = 12
    """Where samples depend on each other every derivative is one of the whole batch, so fewer are looked at."""

    def __call__(self, subject: Subject, randomness: Randomness, progress: Progress = silent) -> TangentReading:
        """Compute the kernel exactly; nothing here is sampled, so the randomness is not used."""
        pure = pure_model(subject.model)
        with untouched(subject.model):
            coupled = is_batch_coupled(pure, samples_of(subject.batch.inputs))
        batch = subject.batch.first(self.coupled_samples if coupled else self.samples)
        settings = {"lens": self.name, "model": subject.name, "samples": batch.samples}
        clock = Provenance.begin(settings, randomness.seed, subject.device)
        kernel = empirical_ntk(subject.model, batch.inputs, progress=progress)
        return TangentReading(
            kernel=kernel,
            targets=_classes(batch),
            angles=_angles(batch.inputs, kernel),
            parameters=pure.parameter_count,
            batch_coupled=coupled,
            provenance=clock.end(),
        )


def _classes(batch: Batch) -> Tensor:
    """The targets where they are classes; nothing where they are numbers or sequences."""
    is_class = batch.targets.ndim == 1 and not batch.targets.is_floating_point()
    return batch.targets.long() if is_class else torch.zeros(0, dtype=torch.int64)


def _angles(inputs: object, kernel: Tensor) -> Tensor:
    """Angles between the flattened inputs, where the inputs are one floating tensor."""
    if not isinstance(inputs, Tensor) or not inputs.is_floating_point():
        return kernel.new_zeros(0, 0)
    units = torch.nn.functional.normalize(inputs.detach().double().flatten(1))
    # 2 asin(|u − v| / 2) is accurate for nearly equal vectors, where acos(u · v) is not.
    return (2 * torch.asin((torch.cdist(units, units) / 2).clamp(max=1))).to(kernel.dtype)
