"""The curvature lens: the spectrum of the loss's Hessian on a few samples, sampled cheaply."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from skiplens.core.errors import NotExportableError
from skiplens.core.progress import Progress, silent, track
from skiplens.core.randomness import Randomness
from skiplens.core.untouched import untouched
from skiplens.data.batch import Batch
from skiplens.derivatives.functional import pure_model
from skiplens.derivatives.outputs import main_output
from skiplens.lenses.curvature.blocks import parameters_by_block
from skiplens.lenses.curvature.fitting_loss import fitted
from skiplens.lenses.curvature.spectrum import hessian_spectrum
from skiplens.lenses.lens import Lens, Subject
from skiplens.readings import HessianSpectrum, Provenance
from skiplens.residual.trial import try_call

MOST_EXACT = 100
"""Parameters up to which all eigenvalues are computed: one product each."""

PASSES_OF_A_PRODUCT = 6
"""A product with the Hessian in forward passes: two forward, and backward through both."""


@dataclass(frozen=True)
class Effort:
    """How many samples and products a model is looked at with."""

    samples: int
    probes: int
    steps: int

    def options(self, size: int, seed: int) -> dict[str, Any]:
        """In the words of `hessian_spectrum`: exact where that takes hardly more products than the density.

        The extremes are those that the density shows.
        """
        method = "exact" if size <= MOST_EXACT else "lanczos"
        return {"method": method, "probes": self.probes, "steps": self.steps, "extremes": 0, "seed": seed}


@dataclass(frozen=True)
class CurvatureLens(Lens):
    """The Hessian's extremes, density, condition number and index, and the extremes of each block."""

    name: ClassVar[str] = "curvature"
    question: ClassVar[str] = "How well conditioned is the loss here, and how many directions lead down?"

    effort: Effort = Effort(samples=20, probes=3, steps=16)
    large_effort: Effort = Effort(samples=8, probes=2, steps=12)
    block_effort: Effort = Effort(samples=8, probes=2, steps=5)
    large_from: int = 2_000_000
    """Models with more parameters than this get the large effort, and their blocks are not looked at one by one."""
    most_blocks: int = 16
    """With more residual blocks than this they are not looked at one by one."""

    def __call__(self, subject: Subject, randomness: Randomness, progress: Progress = silent) -> HessianSpectrum:
        """Measure with cross-entropy where targets are classes and the mean square where they are numbers."""
        pure = pure_model(subject.model)
        effort = self.large_effort if pure.parameter_count > self.large_from else self.effort
        batch, cut = subject.few(effort.samples, passes=PASSES_OF_A_PRODUCT * effort.probes * effort.steps)
        loss, batch = _fitted(subject, batch)
        settings = {"lens": self.name, "model": subject.name, "loss": loss, "samples": batch.samples}
        clock = Provenance.begin(settings, randomness.seed, subject.device)
        asked = effort.options(pure.parameter_count, randomness.seed)
        whole = hessian_spectrum(subject.model, loss, batch, progress=progress, **asked)
        groups, notes = self._groups(subject, pure.parameters) if effort == self.effort else ({}, ())
        few, blocks = batch.first(self.block_effort.samples), {}
        for name, names in track(groups.items(), "curvature of the blocks", len(groups), progress):
            size = sum(pure.parameters[parameter].numel() for parameter in names)
            asked = self.block_effort.options(size, randomness.seed) | {"moment_products": 0}
            blocks[name] = hessian_spectrum(subject.model, loss, few, parameters=names, **asked).values()
        sampled = _sampling_note(whole, few.samples if blocks else 0, subject.batch)
        return replace(whole, block_values=blocks, notes=(sampled, *cut, *whole.notes, *notes), provenance=clock.end())

    def _groups(
        self, subject: Subject, chosen: Mapping[str, Any]
    ) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
        """The parameters of each block, and why there are none where there are none."""
        try:
            groups = parameters_by_block(subject.network.blocks, chosen)
        except NotExportableError:
            return {}, ("The residual blocks of this model cannot be found, so they were not looked at one by one.",)
        if len(groups) > self.most_blocks:
            return {}, (f"The {len(groups)} residual blocks were not looked at one by one.",)
        return groups, ()


def _fitted(subject: Subject, batch: Batch) -> tuple[str, Batch]:
    with untouched(subject.model):
        outputs = main_output(try_call(subject.model, batch.arguments()))
    return fitted(outputs, batch)


def _sampling_note(whole: HessianSpectrum, block_samples: int, batch: Batch) -> str:
    """What was measured, in a sentence."""
    how = (
        "all eigenvalues were computed"
        if whole.method == "exact"
        else f"the density was sampled with {whole.probes} random vectors and {whole.steps} products each"
    )
    blocks = f"; single blocks were looked at with {block_samples} samples" if block_samples else ""
    return f"The loss was taken over {whole.samples} of {batch.samples} samples; {how}{blocks}."
