"""The empirical tangent kernel of a model on the first samples of its data, over seeds and beside its limit."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from skiplens.core.errors import SkiplensError
from skiplens.core.progress import Progress, silent
from skiplens.core.randomness import Randomness
from skiplens.core.untouched import untouched
from skiplens.data.batch import Batch
from skiplens.derivatives import empirical_ntk, is_batch_coupled, pure_model
from skiplens.derivatives.functional import PureModel, output_shape
from skiplens.derivatives.samples import samples_of
from skiplens.lenses.lens import Lens, Subject
from skiplens.lenses.tangent.comparison import compared
from skiplens.lenses.tangent.sampled_outputs import draw_outputs, kernel_of_some_outputs
from skiplens.readings import Provenance, TangentReading


@dataclass(frozen=True)
class TangentLens(Lens):
    """The tangent kernel of `samples` samples, summed over outputs; how it varies over seeds; its infinite width."""

    name: ClassVar[str] = "tangent"
    question: ClassVar[str] = "What kernel is this network, to first order in its parameters?"

    samples: int = 32
    coupled_samples: int = 12
    """Where samples depend on each other every derivative is one of the whole batch, so fewer are looked at."""
    most_outputs: int = 64
    """With more outputs than this the kernel is estimated from `sampled_outputs` of them."""
    sampled_outputs: int = 8

    def __call__(self, subject: Subject, randomness: Randomness, progress: Progress = silent) -> TangentReading:
        """Compute the kernel, exactly where outputs are few; only outputs and the seeds of redraws are random."""
        pure, model = pure_model(subject.model), subject.model
        with untouched(model):
            coupled = is_batch_coupled(pure, samples_of(subject.batch.inputs))
            outputs = math.prod(output_shape(pure, samples_of(subject.batch.inputs)))
        looked_at = outputs if outputs <= self.most_outputs else self.sampled_outputs
        batch, cut = subject.few(self.coupled_samples if coupled else self.samples, passes=3 * looked_at)
        settings = {"lens": self.name, "model": subject.name, "samples": batch.samples}
        clock = Provenance.begin(settings, randomness.seed, subject.device)
        fields = self._kernel(pure, batch, outputs, randomness, progress)
        angles = _angles(batch.inputs, fields["kernel"])
        more, notes = _beside(subject, batch, angles, randomness, progress)
        return TangentReading(
            **fields,
            **more,
            targets=_classes(batch),
            angles=angles,
            parameters=pure.parameter_count,
            batch_coupled=coupled,
            outputs=outputs,
            notes=(*cut, *_outputs_note(fields, outputs), *notes),
            provenance=clock.end(),
        )

    def _kernel(
        self, pure: PureModel, batch: Batch, outputs: int, randomness: Randomness, progress: Progress
    ) -> dict[str, Any]:
        """The kernel summed over all outputs, or estimated from some."""
        if outputs <= self.most_outputs:
            return {"kernel": empirical_ntk(pure.model, batch.inputs, progress=progress)}
        chosen = draw_outputs(outputs, self.sampled_outputs, randomness.child("outputs").torch()).to(pure.device)
        kernel, error = kernel_of_some_outputs(pure.model, batch.inputs, chosen, outputs, progress)
        return {"kernel": kernel, "kernel_error": error, "sampled_outputs": len(chosen)}


def _outputs_note(fields: dict[str, Any], outputs: int) -> tuple[str, ...]:
    if "sampled_outputs" not in fields:
        return ()
    return (f"The kernel was estimated from {fields['sampled_outputs']} of {outputs:,} outputs, drawn at random.",)


def _beside(
    subject: Subject, batch: Batch, angles: Tensor, randomness: Randomness, progress: Progress
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What the kernel is compared with; where that cannot be measured the kernel alone is told."""
    try:
        return compared(subject, batch, angles, randomness, progress)
    except SkiplensError as error:
        return {}, (f"The kernel was not compared over seeds: {error}",)


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
