"""The path spectrum of any model."""

import dataclasses
from collections.abc import Iterator
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn

from skiplens.base.errors import InvalidInputError, NoFrozenFormError
from skiplens.base.memory import budget_bytes, require_fits
from skiplens.base.preserve_state import preserve_state
from skiplens.base.progress import Progress, silent, track
from skiplens.base.randomness import Randomness
from skiplens.graph.dissect import dissect
from skiplens.graph.functional import is_batch_coupled, pure_model
from skiplens.graph.inputs import Samples, require_device, require_finite, require_module, samples_of
from skiplens.graph.network import ResidualNetwork, sources_of
from skiplens.paths.expanders import (
    Chunk,
    Expander,
    Gradient,
    Jacobian,
    Of,
    PathOptions,
    Signal,
    Tally,
    require_of,
    tally,
    weight_energies,
)
from skiplens.paths.laws import fit_law
from skiplens.paths.plan import all_bytes, peak_bytes, tangent_plan
from skiplens.paths.reading import PathSpectrum
from skiplens.readings.reading import Provenance


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
    with preserve_state(require_module(model)):
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


def signal_or_derivative(network: ResidualNetwork, inputs: Any, request: Request) -> tuple[PathSpectrum, str]:
    """The spectrum of the signal and '', or that of the derivative along a direction and why there is no other."""
    try:
        return measure(network, inputs, "signal", request), ""
    except NoFrozenFormError as error:
        return measure(network, inputs, "jacobian", request), str(error).partition(" Ask for")[0]


def chunks_of(network: ResidualNetwork, inputs: Any, of: Of, options: PathOptions) -> list[Chunk]:
    """The batch in one piece, or in pieces that fit in memory if its samples do not depend on each other."""
    samples = samples_of(inputs)
    needed, budget = _needed(network, of, options), budget_bytes(_device(network.model), options.memory)
    if needed <= budget:
        return [Chunk(_fed(network, samples), slice(0, samples.count))]
    pieces = -(-needed // max(1, budget))
    alone = samples.count == 1 or _coupled(network.model, samples)
    require_fits(
        needed if alone else needed // samples.count,
        f"The path spectrum of {samples.count if alone else 1} sample(s) through {len(network.blocks)} blocks",
        "Look at fewer samples, or follow shorter paths with max_order=….",
        budget,
    )
    if options.centre_samples:
        raise InvalidInputError(
            f"centre_samples=True removes the mean over all samples, but memory holds them only in {pieces} pieces. "
            "Look at fewer samples."
        )
    size = max(1, samples.count // pieces)
    networks: dict[int, ResidualNetwork] = {}
    found = []
    for where, part in samples.chunks(size):
        if part.count not in networks:
            networks[part.count] = dissect(network.model, part.kwargs or part.args)
        found.append(Chunk(_fed(networks[part.count], part), where))
    return found


def _fed(network: ResidualNetwork, part: Samples) -> ResidualNetwork:
    """The network with other inputs of the same shapes."""
    arguments = type(network.inputs)(part.args, part.kwargs)
    return ResidualNetwork(network.model, arguments, network.exported, network.blocks, network.dense)


def _needed(network: ResidualNetwork, of: Of, options: PathOptions) -> int:
    plan = tangent_plan(network, network.node(network.output))
    kept = all_bytes(plan) if of == "gradient" else 0
    return kept + peak_bytes(plan, options.max_order)


def _coupled(model: nn.Module, samples: Samples) -> bool:
    with preserve_state(model):
        return is_batch_coupled(pure_model(model, lambda _: True), samples)


def _device(model: nn.Module) -> Any:
    return next((parameter.device for parameter in model.parameters()), "cpu")


def notes_of(network: ResidualNetwork, of: Of, options: PathOptions, chunks: int) -> tuple[str, ...]:
    """Sentences about what was done differently from the plain case."""
    return tuple(_notes(network, of, options, chunks))


def left_out_note(parameters: tuple[str, ...]) -> tuple[str, ...]:
    """A sentence about weights whose gradient could not be told by whole paths; none if there are none."""
    if not parameters:
        return ()
    shown = ", ".join(parameters[:3]) + (f" and {len(parameters) - 3} more" if len(parameters) > 3 else "")
    return (
        f"The gradient by whole paths leaves out {shown}: what they read has no frozen form, or they are computed "
        "with before they are used.",
    )


def _notes(network: ResidualNetwork, of: Of, options: PathOptions, chunks: int) -> Iterator[str]:
    if not network.blocks:
        yield (
            "The model has no residual join (no sum of a shortcut and a branch), so there is one path only: "
            "a single bar at zero branches."
        )
    if network.dense:
        yield (
            f"{len(network.dense)} join(s) concatenate instead of adding, as dense networks do: what is concatenated "
            "stays on its path, and only added branches are counted."
        )
    embedded = [node.name for node in sources_of(network, network.node(network.output)) if node.op != "placeholder"]
    if embedded:
        yield f"The inputs are integers; the paths start at their embedding ({', '.join(embedded)})."
    if options.max_order is not None and options.max_order < len(network.blocks):
        yield (
            f"Paths through more than {options.max_order} branches were left out; mean and peak depth are those of the "
            "paths that were kept, and the remainder is the energy of the sum of all others."
        )
    if chunks > 1:
        yield f"The samples were followed in {chunks} pieces to fit in memory."
