"""The Jacobian spectrum of any model: singular values of each block, with and without its shortcut, and end to end."""

from typing import Any

import torch
from torch import nn

from skiplens.core.errors import InvalidInputError
from skiplens.core.progress import Progress, silent, track
from skiplens.core.randomness import Randomness
from skiplens.core.untouched import untouched
from skiplens.derivatives.functional import transformable
from skiplens.derivatives.jacobian import Effort, Spectrum, part_spectrum
from skiplens.derivatives.samples import require_device, require_finite, samples_of
from skiplens.lenses.jacobians.notes import notes_of
from skiplens.lenses.jacobians.options import JacobianOptions, PartName
from skiplens.lenses.jacobians.spans import BlockChoice, Span, spans_of
from skiplens.readings import JacobianSpectrum, Provenance
from skiplens.residual import ResidualNetwork, dissect
from skiplens.residual.trial import require_module


def jacobian_spectrum(
    model: nn.Module,
    inputs: Any,
    blocks: BlockChoice = None,
    coupling: str = "auto",
    method: str = "auto",
    *,
    progress: Progress = silent,
    **options: Any,
) -> JacobianSpectrum:
    """The singular values of the input Jacobian of each block, of its branch alone, and of the whole network.

    Args:
        model: Any module that `torch.export` accepts; it is left as it was.
        inputs: A tensor, a tuple of positional arguments or a dict of keyword arguments of the model.
        blocks: Names of blocks; a pair of names is the span from the input of the first to the join of the last (or to
            ``"output"``). All blocks if not given.
        coupling: ``"sample"``: Jacobians of single samples, their singular values put together; batch norm in training
            mode then has its statistics frozen. ``"batch"``: the Jacobian of the whole batch, whose samples batch norm
            couples. ``"auto"``: of the batch where its samples are coupled. Without coupling all three are the same.
        method: ``"exact"``: all singular values. ``"lanczos"``: nodes and weights of their density, and the largest.
            ``"auto"``: all of them where that takes no more than `work` operations and fits in `memory`.
        progress: Called as the work goes on.
        options: Fields of `JacobianOptions`: seed, parts, network, steps, probes, work, memory.

    Examples:
        >>> layer = torch.nn.Linear(2, 2, bias=False)
        >>> _ = layer.weight.data.copy_(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
        >>> jacobian_spectrum(layer, torch.ones(1, 2)).singular_values["network"].tolist()
        [4.0, 3.0]
    """
    asked = JacobianOptions.from_json(options)
    effort = asked.effort(coupling, method)
    with untouched(require_module(model)):
        network = dissect(model, inputs)
        return measure(network, blocks, asked, effort, progress)


def measure(
    network: ResidualNetwork,
    blocks: BlockChoice = None,
    options: JacobianOptions | None = None,
    effort: Effort | None = None,
    progress: Progress = silent,
) -> JacobianSpectrum:
    """The Jacobian spectrum of a network that is taken apart already; see `jacobian_spectrum`."""
    options = options or JacobianOptions()
    effort = effort or options.effort("auto", "auto")
    samples = samples_of(network.inputs.named or network.inputs.positional)
    device = next((parameter.device for parameter in network.model.parameters()), torch.device("cpu"))
    require_finite(samples)
    require_device(samples, device)
    settings = {"coupling": effort.coupling, "method": effort.method, **options.difference()}
    clock = Provenance.begin(settings, options.seed, device)
    spans = spans_of(network, blocks, options.network)
    found = _Found(network, samples.count, effort, Randomness(options.seed).child("jacobian_spectrum"), progress)
    jobs = [(span, part) for span in spans for part in options.parts if part == "block" or span.block is not None]
    spectra: dict[PartName, dict[str, Spectrum]] = {"block": {}, "branch": {}, "shortcut": {}}
    for span, part in track(jobs, "measuring Jacobians", len(jobs), progress):
        spectra[part][span.name] = found.spectrum(span, part)
    return _reading(spectra, spans, samples.count, notes_of(network, effort, spectra["block"]), clock.end())


class _Found:
    """The spectrum of one span after the other, each with random vectors of its own."""

    def __init__(
        self, network: ResidualNetwork, samples: int, effort: Effort, randomness: Randomness, progress: Progress
    ) -> None:
        self.network, self.samples, self.effort = network, samples, effort
        self.randomness, self.progress = randomness, progress

    def spectrum(self, span: Span, part: PartName) -> Spectrum:
        with torch.no_grad(), transformable():
            looked_at = span.part(self.network, self.samples, part)
            generator = self.randomness.child(span.name, part).torch()
            if not bool(looked_at.function(looked_at.point).isfinite().all()):
                raise _not_finite(looked_at.name)  # before Lanczos, which takes a NaN for the end of its search
            try:
                return part_spectrum(looked_at, self.effort, generator, self.progress)
            except torch.linalg.LinAlgError as error:
                raise _not_finite(looked_at.name) from error


def _not_finite(name: str) -> InvalidInputError:
    return InvalidInputError(
        f"The values or the Jacobian of {name!r} are NaN or infinite: look for parameters that are not finite, for "
        "numbers that overflow, or for a derivative that does not exist at these inputs."
    )


def _reading(
    spectra: dict[PartName, dict[str, Spectrum]],
    spans: list[Span],
    samples: int,
    notes: tuple[str, ...],
    provenance: Provenance,
) -> JacobianSpectrum:
    whole, branch, shortcut = spectra["block"], spectra["branch"], spectra["shortcut"]
    return JacobianSpectrum(
        singular_values={name: found.values for name, found in whole.items()},
        weights={name: found.weights for name, found in whole.items()},
        without_shortcut={name: found.values for name, found in branch.items()},
        without_shortcut_weights={name: found.weights for name, found in branch.items()},
        of_shortcut={name: found.values for name, found in shortcut.items()},
        of_shortcut_weights={name: found.weights for name, found in shortcut.items()},
        counts=tuple(found.count for found in whole.values()),
        methods=tuple(found.method for found in whole.values()),
        shortcuts=tuple(span.block.shortcut.kind for span in spans if span.block is not None and branch),
        samples=samples,
        coupled=any(found.coupled for found in whole.values()),
        notes=notes,
        provenance=provenance,
    )
