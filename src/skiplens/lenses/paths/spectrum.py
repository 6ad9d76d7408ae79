"""The path spectrum of any model."""

import dataclasses
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn

from skiplens.core.errors import InvalidInputError
from skiplens.core.progress import Progress, silent, track
from skiplens.core.randomness import Randomness
from skiplens.core.untouched import untouched
from skiplens.derivatives.samples import require_device, require_finite, samples_of
from skiplens.lenses.paths.chunks import chunks_of
from skiplens.lenses.paths.expanders import Chunk, Expander, Gradient, Jacobian, Signal
from skiplens.lenses.paths.notes import left_out_note, notes_of
from skiplens.lenses.paths.options import Of, PathOptions, require_of
from skiplens.lenses.paths.tally import Tally, tally
from skiplens.lenses.paths.weights import weight_energies
from skiplens.readings import PathSpectrum, Provenance
from skiplens.residual import ResidualNetwork, dissect
from skiplens.residual.trial import require_module
from skiplens.theory.path_laws import fit_law


def path_spectrum(
    model: nn.Module,
    inputs: Any,
    of: Of = "signal",
    *,
    direction: Tensor | None = None,
    progress: Progress = silent,
    **options: Any,
) -> PathSpectrum:
    """The contribution of all paths through exactly r branches of a network, for each r.

    Multiply each branch by t: with the operating point frozen the output is a polynomial in t, and its coefficient r is
    the sum over all paths through exactly r branches. All coefficients are computed in one pass, without interpolation,
    for about half the price of one forward pass for each block; they add up to the output (or derivative) exactly.

    Args:
        model: Any module that `torch.export` accepts; it is left as it was.
        inputs: A tensor, a tuple of positional arguments or a dict of keyword arguments of the model.
        of: What to decompose. ``"signal"`` is the output itself: ReLUs are masks, smooth activations gates φ(u)/u,
            attention weights and the scales of normalisations constants, biases belong to no branch.
            ``"jacobian"`` is the derivative of the output along a direction of the inputs, through any operation.
            ``"gradient"`` is the gradient by the inputs. Integer inputs stand for what their embedding gives.
        direction: The direction (jacobian, shape of the input), or the gradient of a loss by the output (gradient,
            shape of the output); drawn from a standard normal distribution if not given.
        progress: Called as the work goes on.
        options: Fields of `PathOptions`: seed, directions, signs, blocks, pairs, weights, max_order, centre,
            centre_samples, memory.

    Examples:
        >>> import torch
        >>> class Doubling(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.branch = torch.nn.Linear(1, 1, bias=False)
        ...     def forward(self, x):
        ...         x = x + self.branch(x)
        ...         return x + self.branch(x)
        >>> model = Doubling()
        >>> _ = torch.nn.init.ones_(model.branch.weight)
        >>> path_spectrum(model, torch.ones(1, 1)).energy.tolist()
        [1.0, 4.0, 1.0]
    """
    require_of(of)
    asked = PathOptions.from_json(options)
    with untouched(require_module(model)):
        network = dissect(model, inputs)
        return measure(network, inputs, of, Request(asked, direction, progress))


@dataclasses.dataclass(frozen=True, eq=False)
class Request:
    """What is asked of a spectrum beside what it is of."""

    options: PathOptions = dataclasses.field(default_factory=PathOptions)
    direction: Tensor | None = None
    progress: Progress = silent


def measure(network: ResidualNetwork, inputs: Any, of: Of = "signal", request: Request | None = None) -> PathSpectrum:
    """The path spectrum of a network that is taken apart already; see `path_spectrum`."""
    request = request or Request()
    samples, options = samples_of(inputs), request.options
    require_finite(samples)
    parameter = next(network.model.parameters(), None)
    device = torch.device("cpu") if parameter is None else parameter.device
    require_device(samples, device)
    clock = Provenance.begin({"of": of, **options.difference()}, options.seed, device)
    chunks = chunks_of(network, inputs, of, options)
    randomness = Randomness(options.seed).child("path_spectrum")
    runs = [(chunk, number) for number in range(_directions(of, request)) for chunk in chunks]
    found: dict[int, Tally] = {}
    for chunk, number in track(runs, "following the paths", len(runs), request.progress):
        drawn = randomness.child("direction", number)
        expander = _expander(of, chunk, request, drawn)
        own = tally(expander, len(network.blocks), options, randomness.child("signs", number))
        found[number] = found[number].beside(own) if number in found else own
    sums = reduce(lambda left, right: left + right, found.values())
    reading = _reading(of, network, sums, len(found), notes_of(network, of, options, len(chunks)))
    if of == "gradient" and options.weights:
        behind, whole, left_out = weight_energies(chunks, request.direction, randomness)
        notes = (*reading.notes, *left_out_note(left_out))
        reading = dataclasses.replace(reading, weight_energy=behind, weight_path_energy=whole, notes=notes)
    return dataclasses.replace(reading, provenance=clock.end())


def _directions(of: Of, request: Request) -> int:
    return 1 if of == "signal" or request.direction is not None else request.options.directions


def _expander(of: Of, chunk: Chunk, request: Request, randomness: Randomness) -> Expander:
    if of == "signal":
        if request.direction is not None:
            raise InvalidInputError("direction means nothing for of='signal'; ask for of='jacobian' or of='gradient'.")
        return Signal.of(chunk, request.options)
    if of == "jacobian":
        return Jacobian.of(chunk, request.options, request.direction, randomness)
    return Gradient.of(chunk, request.direction, randomness)


def _reading(of: Of, network: ResidualNetwork, sums: Tally, runs: int, notes: tuple[str, ...]) -> PathSpectrum:
    energy = sums.energies.sum(0) / runs
    signed = sums.signed / runs
    total = sums.total or float("nan")  # a network whose output is zero has no depth
    return PathSpectrum(
        of=of,
        energy=energy,
        shares=sums.products / total,
        total_energy=sums.total / runs,
        sample_energy=sums.energies / runs,
        coherent_depth=sums.slope / total,
        block_names=tuple(block.name for block in network.blocks),
        block_energy=sums.block_energy / runs,
        block_shares=sums.block_products / total,
        pair_energy=sums.pair_energy / runs,
        incoherent=signed.mean(0) if len(signed) else signed.flatten(),
        incoherent_error=signed.std(0) / len(signed) ** 0.5 if len(signed) else signed.flatten(),
        remainder=sums.remainder / runs,
        notes=notes,
        **_law(energy, whole=len(energy) > len(network.blocks)),
    )


def _law(energy: Tensor, whole: bool) -> dict[str, Any]:
    """The law that describes a whole spectrum; nothing where no law can be told."""
    try:
        fit = fit_law(energy) if whole else None
    except InvalidInputError:
        fit = None
    if fit is None:
        return {}
    return {
        "law": fit.name,
        "depth_ratio": fit.depth_ratio,
        "law_distance": fit.distance,
        "law_energy": fit.energies,
    }
