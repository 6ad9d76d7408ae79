"""The Jacobian spectrum of any model: singular values of each block, with and without its shortcut, and end to end."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any, Literal

import torch
from torch import Tensor, fx, nn

from skiplens.base import InvalidInputError, Randomness, Settings, budget_bytes, refuse_if, require_least
from skiplens.base.arguments import Arguments, accept_old_order
from skiplens.base.preserve_state import preserve_state
from skiplens.base.progress import Progress, silent, track
from skiplens.graph import ResidualBlock, dissect
from skiplens.graph.functional import PureModel, is_batch_coupled, transformable
from skiplens.graph.inputs import Samples, require_device, require_finite, require_module, samples_of
from skiplens.graph.network import (
    ResidualNetwork,
    node_bytes,
    part_function,
    plain_call,
    plan,
    sources_of,
    span_function,
)
from skiplens.jacobians import part_spectrum
from skiplens.jacobians.part_spectrum import ROOM, TEMPORARIES, Part, Spectrum, SpectrumEffort, matrix_bytes
from skiplens.jacobians.reading import JacobianSpectrum
from skiplens.readings.finding import listed
from skiplens.readings.reading import Provenance

PartName = Literal["block", "branch", "shortcut"]

BlockChoice = Iterable[str | tuple[str, str]] | None
"""Names of blocks, and pairs (first, last) for the span from the input of one to the join of another; None for all.

The last of a pair may be ``"output"``, the end of the network.
"""


@accept_old_order("model", "inputs", "blocks", "coupling", "method")
def jacobian_spectrum(  # noqa: PLR0913 - options by keyword
    model: nn.Module,
    inputs: Any,
    *,
    blocks: BlockChoice = None,
    coupling: str = "auto",
    method: str = "auto",
    parts: tuple[PartName, ...] = ("block", "branch"),
    network: bool = True,
    steps: int = 80,
    probes: int = 4,
    work: float = 1e12,
    seed: int = 0,
    memory: int | None = None,
    progress: Progress = silent,
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
        parts: What to look at of each block: itself, its branch (without the shortcut), its shortcut.
        network: Also the whole network, from its input to its output.
        steps: Lanczos steps, where not all singular values are computed.
        probes: Random vectors of Lanczos.
        work: Floating operations that one exact spectrum may take with ``method="auto"``.
        seed: Names the random vectors.
        memory: Bytes that may be used; half of what is free if not given.
        progress: Called as the work goes on.

    Examples:
        >>> layer = torch.nn.Linear(2, 2, bias=False)
        >>> _ = layer.weight.data.copy_(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
        >>> jacobian_spectrum(layer, torch.ones(1, 2)).singular_values["network"].tolist()
        [4.0, 3.0]
    """
    options = JacobianOptions(seed, parts, network, steps, probes, work, memory)
    return spectrum_of_model(model, inputs, blocks, options, options.effort(coupling, method), progress)


class JacobianOptions(Settings):
    """Options of `jacobian_spectrum`; see there."""

    seed: int = 0
    parts: tuple[PartName, ...] = ("block", "branch")
    network: bool = True
    steps: int = 80
    probes: int = 4
    work: float = 1e12
    memory: int | None = None

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        super().__post_init__()
        if self.steps < 1 or self.probes < 1:
            raise InvalidInputError(f"steps={self.steps}, probes={self.probes}; ask for at least 1 of each.")
        refuse_if("block" not in self.parts, f"parts={self.parts}; 'block' is always measured, so name it too.")

    def effort(self, coupling: str, method: str) -> SpectrumEffort:
        """These options for one part of a network."""
        known = {"coupling": ("auto", "sample", "batch"), "method": ("auto", "exact", "lanczos")}
        for name, value in (("coupling", coupling), ("method", method)):
            if value not in known[name]:
                raise InvalidInputError(f"{name}={value!r}; ask for one of {', '.join(map(repr, known[name]))}.")
        return SpectrumEffort(coupling, method, self.steps, self.probes, self.work, self.memory)  # type: ignore[arg-type]  # just checked


def spectrum_of_model(
    model: nn.Module,
    inputs: Any,
    blocks: BlockChoice,
    options: JacobianOptions,
    effort: SpectrumEffort,
    progress: Progress = silent,
) -> JacobianSpectrum:
    """`jacobian_spectrum` with its options in two objects."""
    with preserve_state(require_module(model)):
        if effort.memory is None:
            return measure(dissect(model, inputs), blocks, options, effort, progress)
        samples = samples_of(inputs)  # of which the budget may hold only some at once, so the plan is made with two
        few = samples.take(slice(0, 2))
        return measure(dissect(model, few.kwargs or few.args), blocks, options, effort, progress, samples)


def measure(
    network: ResidualNetwork,
    blocks: BlockChoice,
    options: JacobianOptions,
    effort: SpectrumEffort,
    progress: Progress = silent,
    samples: Samples | None = None,
) -> JacobianSpectrum:
    """The Jacobian spectrum of a network that is taken apart already; see `jacobian_spectrum`.

    The samples are those of the network, or others of the same kind.
    """
    samples = samples_of(network.inputs.named or network.inputs.positional) if samples is None else samples
    device = next((parameter.device for parameter in network.model.parameters()), torch.device("cpu"))
    require_finite(samples)
    require_device(samples, device)
    settings = {"coupling": effort.coupling, "method": effort.method, **options.difference()}
    clock = Provenance.begin(settings, options.seed, device)
    spans = spans_of(network, blocks, options.network)
    randomness = Randomness(options.seed).child("jacobian_spectrum")
    jobs = [(span, part) for span in spans for part in options.parts if part == "block" or span.block is not None]
    pieces, effort = _pieces(network, samples, effort, lambda one: spans_of(one, blocks, options.network))
    found: dict[tuple[str, PartName], list[Spectrum]] = {(span.name, part): [] for span, part in jobs}
    generators = {(span.name, part): randomness.child(span.name, part).torch() for span, part in jobs}
    for piece, (span, part) in track(
        [*product(pieces, jobs)], "measuring Jacobians", len(pieces) * len(jobs), progress
    ):
        with torch.no_grad(), transformable():
            spectrum = _spectrum(piece.part(span, part), effort, generators[span.name, part], progress)
        found[span.name, part].append(spectrum)
    spectra: dict[PartName, dict[str, Spectrum]] = {"block": {}, "branch": {}, "shortcut": {}}
    for (name, part), parts in found.items():
        spectra[part][name] = Spectrum.together(parts)
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
        samples=samples.count,
        coupled=any(found.coupled for found in whole.values()),
        notes=tuple(_notes(network, effort, whole, len(pieces))),
        provenance=clock.end(),
    )


def _spectrum(part: Part, effort: SpectrumEffort, generator: torch.Generator, progress: Progress) -> Spectrum:
    try:
        # before Lanczos, which takes a NaN for the end of its search
        if bool(part.function(part.point).isfinite().all()):
            return part_spectrum.part_spectrum(part, effort, generator, progress)
    except torch.linalg.LinAlgError:
        pass
    raise InvalidInputError(
        f"The values or the Jacobian of {part.name!r} are NaN or infinite: look for parameters that are not finite, "
        "for numbers that overflow, or for a derivative that does not exist at these inputs."
    )


@dataclass(frozen=True)
class Piece:
    """The network taken apart for some samples, its spans, and the bytes that one product with a Jacobian may take."""

    network: ResidualNetwork
    samples: int
    spans: "list[Span]"
    room: int = ROOM

    def part(self, span: "Span", part: PartName) -> Part:
        """A part of a span, by its name: the graph of another number of samples may have other names."""
        span = next(own for own in self.spans if own.name == span.name)
        widest = max(map(node_bytes, span.nodes(self.network)), default=0)
        point = self.points[span.start]
        return replace(span.part(self.network, self.samples, point, part), room=self.room, widest=widest)

    @cached_property
    def points(self) -> dict[str, Tensor]:
        """The values that the spans start from, all of one pass."""
        return self.network.run(dict.fromkeys(span.start for span in self.spans))


HELD = 3  # times the values of a forward pass: their graph, and that of the transposed product


def _pieces(
    network: ResidualNetwork, samples: Samples, effort: SpectrumEffort, spans: Callable[[ResidualNetwork], list["Span"]]
) -> tuple[list[Piece], SpectrumEffort]:
    """The batch in one piece, or in pieces that fit in memory if its samples do not depend on each other.

    A quarter of the budget is for the graph of a piece, a quarter for one product with vectors, half for the matrices
    or the Lanczos basis; beside the pieces comes the effort for one of them.
    """
    device = next((parameter.device for parameter in network.model.parameters()), torch.device("cpu"))
    budget, size, every = budget_bytes(device, effort.memory), samples.count, spans(network)

    def least(count: int, joint: bool = False) -> int:
        """Of the methods that may be taken, the bytes of the one that needs fewest."""
        methods: tuple[Any, ...] = ("exact", "lanczos") if effort.method == "auto" else (effort.method,)
        efforts = [replace(effort, method=method) for method in methods]
        return min(max(span.budget(network, count, one, joint) for span in every) for one in efforts)

    each = max(span.budget(network, 1, effort, False, size) for span in every)
    each = each if each <= budget else least(1)
    if effort.memory is not None or each * size > budget:
        alone = size == 1 or is_batch_coupled(PureModel(network.model, {}, {}), samples)
        told = size if alone else 1
        needed = least(told, told > 1 and effort.coupling != "sample")
        require_least(effort.memory, needed, f"the Jacobians of {told} sample(s)")
        size = size if alone else max(1, min(size, budget // each))
    if size == samples.count and effort.memory is None:
        return [Piece(network, size, spans(network))], effort
    room = min(ROOM, budget // 4)
    made: dict[int, Piece] = {}
    pieces = []
    for _, some in samples.chunks(size):
        if some.count not in made:
            fresh = dissect(network.model, some.kwargs or some.args)
            made[some.count] = Piece(fresh, some.count, spans(fresh), room)
        fed = replace(made[some.count].network, inputs=Arguments(some.args, some.kwargs))
        pieces.append(replace(made[some.count], network=fed))
    return pieces, replace(effort, memory=budget // 2, work=effort.work * size / samples.count)


@dataclass(frozen=True)
class Span:
    """From one node to another; the block, if these are a block's input and join."""

    name: str
    start: str
    end: str
    block: ResidualBlock | None = None

    def part(self, network: ResidualNetwork, samples: int, point: Tensor, part: PartName = "block") -> Part:
        """The function between the nodes at a point, with and without coupling of samples."""
        norms = part_spectrum.coupling_norms(network, self.start, self.end, samples)
        calls = plain_call, part_spectrum.frozen_call(norms)
        if self.block is None:
            function, frozen = (span_function(network, self.start, self.end, call) for call in calls)
        else:
            function, frozen = (part_function(network, self.block, part, call) for call in calls)
        channels = sum(mean.numel() for mean, _ in norms.values())
        label = self.name if part == "block" else f"{self.name} ({part})"
        return Part(label, function, frozen if norms else None, point, samples, channels)

    def nodes(self, network: ResidualNetwork) -> list[fx.Node]:
        """What is computed between the nodes."""
        return [
            node for node in plan([network.node(self.end)], [network.node(self.start)]) if node.op == "call_function"
        ]

    def budget(
        self, network: ResidualNetwork, count: int, effort: SpectrumEffort, joint: bool, of: int | None = None
    ) -> int:
        """The budget that so many samples need, coupled or not, each one `of` so many that share the work."""
        first, last = (network.node(name).meta["val"] for name in (self.start, self.end))
        shown = samples_of(network.inputs.named or network.inputs.positional).count
        rows, columns = last.numel() // shown, first.numel() // shown
        sizes = [node_bytes(node) * count / shown for node in self.nodes(network)]
        few = part_spectrum.operations_of(of or count, rows, columns) <= effort.work
        result = part_spectrum.density_bytes(effort, count * rows, count * columns, first.dtype)
        if effort.method == "exact" or (effort.method == "auto" and few):
            result = matrix_bytes(1, count * rows, count * columns) if joint else matrix_bytes(count, rows, columns)
        return math.ceil(max(4 * HELD * sum(sizes), 4 * TEMPORARIES * max(sizes, default=0), 2 * result))


def spans_of(network: ResidualNetwork, blocks: BlockChoice, with_network: bool) -> list[Span]:
    """The chosen spans in order, the whole network last."""
    if isinstance(blocks, str):
        blocks = [blocks]
    chosen = [block.name for block in network.blocks] if blocks is None else list(blocks)
    spans = [_span(network, choice) for choice in chosen]
    if with_network:
        source = sources_of(network, network.node(network.output))[0]
        spans.append(Span("network", source.name, network.output))
    refuse_if(not spans, "Nothing was chosen to look at; name blocks or ask for network=True.")
    return spans


def _span(network: ResidualNetwork, choice: str | tuple[str, str]) -> Span:
    if isinstance(choice, str):
        block = network.block(choice)
        return Span(block.name, block.input, block.join, block)
    refuse_if(len(choice) != 2, f"blocks holds {choice!r}; a span is a pair (first block, last block or 'output').")
    first = network.block(choice[0])
    end = network.output if choice[1] == "output" else network.block(choice[1]).join
    if network.node(end) < network.node(first.input) or end == first.input:
        raise InvalidInputError(f"The span from {choice[0]!r} to {choice[1]!r} runs backwards; name the earlier first.")
    return Span(f"{choice[0]} -> {choice[1]}", first.input, end)


def _notes(
    network: ResidualNetwork, effort: SpectrumEffort, spectra: Mapping[str, Spectrum], pieces: int
) -> Iterator[str]:
    sources = sources_of(network, network.node(network.output))
    samples = network.node(sources[0].name).meta["val"].shape[0]
    if not network.blocks:
        yield "The model has no residual join, so only the whole network was measured."
    if sources[0].op != "placeholder":
        yield f"Integers have no derivative; the network's Jacobian starts at their embedding ({sources[0].name})."
    if len(sources) > 1:
        yield f"The network has {len(sources)} inputs; its Jacobian is by the first of them ({sources[0].name})."
    if effort.coupling == "sample" and part_spectrum.coupling_norms(network, sources[0].name, network.output, samples):
        yield (
            "Batch norm is in training mode; its statistics were frozen, so that each sample has its own Jacobian. "
            "Each channel of a batch norm can shift the sorted singular values of the whole batch by two places."
        )
    if pieces > 1:
        yield f"The samples were measured in {pieces} pieces to fit in memory."
    estimated = [name for name, spectrum in spectra.items() if spectrum.method == "lanczos"]
    if estimated:
        yield (
            f"Densities of {listed(tuple(estimated))} come from up to {effort.steps} Lanczos steps with "
            f"{effort.probes} random vector{'s' * (effort.probes > 1)}: the largest singular value is exact, sharp "
            "peaks (at 0 and 1) are smeared out."
        )
