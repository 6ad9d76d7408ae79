"""The path spectrum of any model: `path_spectrum` for a user, `measure` for a network that is taken apart already."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any, get_args

import torch
from torch import Tensor, nn

from skiplens.base import InvalidInputError, NoFrozenFormError, Randomness, budget_bytes, require_fits
from skiplens.base.arguments import Arguments, accept_old_order
from skiplens.base.preserve_state import preserve_state
from skiplens.base.progress import Progress, silent, track
from skiplens.graph.blocks import common_calls
from skiplens.graph.dissect import dissect
from skiplens.graph.functional import PureModel, is_batch_coupled
from skiplens.graph.inputs import Inputs, Samples, require_device, require_finite, require_module, samples_of
from skiplens.graph.network import ResidualNetwork, sources_of
from skiplens.paths.expanders import Chunk, Of, PathOptions, Tally, expander, tally, weight_energies
from skiplens.paths.laws import fit_law
from skiplens.paths.plan import StackPlan, all_bytes, frozen_plan, peak_bytes, tangent_plan
from skiplens.paths.reading import HELD, PathSpectrum
from skiplens.readings.finding import listed
from skiplens.readings.reading import Provenance


@accept_old_order("model", "inputs", "of")
def path_spectrum(  # noqa: PLR0913 - options by keyword
    model: nn.Module,
    inputs: Inputs,
    *,
    of: Of = "signal",
    direction: Tensor | None = None,
    directions: int = 1,
    signs: int = 0,
    blocks: bool = False,
    pairs: bool = False,
    weights: bool = False,
    max_order: int | None = None,
    centre: bool = False,
    centre_samples: bool = False,
    memory: int | None = None,
    seed: int = 0,
    progress: Progress = silent,
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
            ``"gradient"`` is the gradient with respect to the inputs. Integer inputs stand for what their embedding
            gives.
        direction: The direction (jacobian, shape of the input), or the gradient of a loss with respect to the output
            (gradient, shape of the output); drawn from a standard normal distribution if not given.
        directions: Random directions to average over (jacobian and gradient).
        signs: Draws of random signs for the incoherent energies; at least 2, or 0 for none.
        blocks: Also the contribution of each block, at the price of another spectrum.
        pairs: Also the contribution of each pair of blocks, at the price of a spectrum for each block.
        weights: Also the gradient of each block's weights, by the branches behind them and by whole paths (gradient).
        max_order: Longest paths to follow, in branches; all if not given.
        centre: Remove the mean over the last axis of the output, which a softmax does not see.
        centre_samples: Remove the mean over the samples, which tells none from another.
        memory: Bytes that may be used; half of what is free if not given.
        seed: Names the random directions and signs.
        progress: Called as the work goes on.

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
    if of not in get_args(Of):
        raise InvalidInputError(f"of={of!r}; ask for one of {', '.join(map(repr, get_args(Of)))}.")
    options = PathOptions(seed, directions, signs, blocks, pairs, weights, max_order, centre, centre_samples, memory)
    with preserve_state(require_module(model)):
        few = inputs
        if memory is not None:  # it may hold only some samples at once, so that the plan is made with two
            some = samples_of(inputs).take(slice(0, 2))
            few = some.kwargs or some.args
        return measure(dissect(model, few), inputs, of, options, direction=direction, progress=progress)


def measure(
    network: ResidualNetwork,
    inputs: Inputs,
    of: Of = "signal",
    options: PathOptions = PathOptions(),  # noqa: B008 - frozen
    *,
    direction: Tensor | None = None,
    progress: Progress = silent,
) -> PathSpectrum:
    """The path spectrum of a network that is taken apart already; see `path_spectrum`."""
    samples = samples_of(inputs)
    require_finite(samples)
    device = _device(network.model)
    require_device(samples, device)
    clock = Provenance.begin({"of": of, **options.difference()}, options.seed, device)
    chunks = _chunks(network, samples, of, options)
    randomness = Randomness(options.seed).child("path_spectrum")
    directions = 1 if of == "signal" or direction is not None else options.directions
    runs = [(chunk, number) for number in range(directions) for chunk in chunks]
    found: dict[int, Tally] = {}
    frozen = frozen_plan(network, network.node(network.output)) if of == "signal" else None
    towers = frozen.towers if frozen else ()
    for chunk, number in track(runs, "following the paths", len(runs), progress):
        expand = expander(of, chunk, options, direction, randomness.child("direction", number))
        own = tally(expand, len(network.blocks), options, randomness.child("signs", number), towers)
        found[number] = found[number].beside(own) if number in found else own
    sums = reduce(add, found.values())
    notes, more = tuple(_notes(network, frozen, options, len(chunks))), dict[str, Any]()
    if of == "gradient" and options.weights:
        more["weight_energy"], more["weight_path_energy"], note = weight_energies(chunks, direction, randomness)
        notes += note
    if frozen:
        more |= _products(frozen, sums)
    return replace(_reading(of, network, sums, len(found), notes), **more, provenance=clock.end())


def signal_or_derivative(
    network: ResidualNetwork, inputs: Inputs, options: PathOptions, progress: Progress = silent
) -> tuple[PathSpectrum, str]:
    """The spectrum of the signal and '', or that of the derivative along a direction and why there is no other."""
    try:
        return measure(network, inputs, "signal", options, progress=progress), ""
    except NoFrozenFormError as error:
        reason = str(error).partition(" Ask for")[0]
        return measure(network, inputs, "jacobian", options, progress=progress), reason


def _reading(of: Of, network: ResidualNetwork, sums: Tally, runs: int, notes: tuple[str, ...]) -> PathSpectrum:
    energy, signed = sums.energies.sum(0) / runs, sums.signed / runs
    total = sums.total or float("nan")  # a network whose output is zero has no depth
    law: dict[str, Any] = {}
    if len(energy) > len(network.blocks):  # all orders were kept
        with suppress(InvalidInputError):  # too few blocks, or one order alone: no law can be told
            fit = fit_law(energy)
            law = {"law": fit.name, "depth_ratio": fit.depth_ratio}
            law |= {"law_distance": fit.distance, "law_energy": fit.energies}
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
        **law,
    )


def _products(frozen: StackPlan, sums: Tally) -> dict[str, Any]:
    """The towers that the output multiplies; no number for blocks that no path leads through."""
    names, held = [block.name for block in frozen.network.blocks], sorted(frozen.held)
    within = [[names[index] for index in sorted(tower)] for tower in frozen.towers]
    for numbers in (sums.block_energy, sums.block_products, sums.pair_energy, sums.pair_energy.T):
        if numbers.numel():
            numbers[held] = torch.nan
    return {
        # the module that all blocks are in, or else the first of them
        "tower_names": tuple(".".join(common_calls(name.split(".") for name in own)) or own[0] for own in within),
        "tower_blocks": tuple(map(len, within)),
        "tower_energy": sums.towers,
    }


def _chunks(network: ResidualNetwork, samples: Samples, of: Of, options: PathOptions) -> list[Chunk]:
    """The batch in one piece, or in pieces that fit in memory if its samples do not depend on each other."""
    own = samples_of(network.inputs.named or network.inputs.positional).count  # it may be taken apart with fewer
    plan = tangent_plan(network, network.node(network.output))
    needed = peak_bytes(plan, options.max_order) + (all_bytes(plan) if of == "gradient" else 0)
    needed, budget = needed * samples.count // own, budget_bytes(_device(network.model), options.memory)
    pieces = max(1, -(-needed // max(1, budget)))
    if pieces > 1:
        with preserve_state(network.model):
            alone = samples.count == 1 or is_batch_coupled(PureModel(network.model, {}, {}), samples)
        require_fits(
            needed if alone else needed // samples.count,
            f"The path spectrum of {samples.count if alone else 1} sample(s) through {len(network.blocks)} blocks",
            "Look at fewer samples, or follow shorter paths with max_order=….",
            budget,
        )
        if options.centre_samples:
            raise InvalidInputError(
                "centre_samples=True removes the mean over all samples, but memory holds them only in "
                f"{pieces} pieces. Look at fewer samples."
            )
    networks, found = {own: network}, []
    for where, part in samples.chunks(max(1, samples.count // pieces)):
        if part.count not in networks:
            networks[part.count] = dissect(network.model, part.kwargs or part.args)
        found.append(Chunk(replace(networks[part.count], inputs=Arguments(part.args, part.kwargs)), where))
    return found


def _device(model: nn.Module) -> torch.device:
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


def _notes(network: ResidualNetwork, frozen: StackPlan | None, options: PathOptions, chunks: int) -> Iterator[str]:
    """Sentences about what was done differently from the plain case; `frozen` is the plan of a signal."""
    if not network.blocks:
        yield (
            "The model has no residual join (no sum of a shortcut and a branch), so there is one path only: "
            "a single bar at zero branches."
        )
    if network.dense:
        yield (
            f"Joins that concatenate instead of adding, as in dense networks: {len(network.dense)}. What is "
            "concatenated stays on its path, and only added branches are counted."
        )
    embedded = [node.name for node in sources_of(network, network.node(network.output)) if node.op != "placeholder"]
    if embedded:
        yield f"Where inputs are integers, the paths start at their embedding ({', '.join(embedded)})."
    if options.max_order is not None and options.max_order < len(network.blocks):
        yield (
            f"Paths through more than {options.max_order} branches were left out; mean and peak depth are those of the "
            "paths that were kept, and the remainder is the energy of the sum of all others."
        )
    if chunks > 1:
        yield f"The samples were followed in {chunks} pieces to fit in memory."
    if frozen and frozen.products:
        yield (
            "What different blocks make is multiplied, as where two towers meet: a path here is one path through each, "
            "and the branches of all of them count."
        )
    if frozen and frozen.held:  # they only gate
        names = tuple(network.blocks[index].name for index in sorted(frozen.held))
        yield f"There is no share for {listed(names)}: {HELD}."
