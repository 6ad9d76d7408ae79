"""The signal lens: one pass forwards and one back, and a look at the parameters; by hooks where there is no graph."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from skiplens.base import Float, InvalidInputError, NotExportableError, Progress, Randomness, silent
from skiplens.base.arguments import type_name
from skiplens.base.memory import budget_bytes, require_least
from skiplens.base.preserve_state import preserve_state
from skiplens.graph.dissect import CHOSEN_BLOCKS
from skiplens.graph.functional import main_output
from skiplens.graph.inputs import samples_of
from skiplens.graph.lens import ENOUGH, Lens, Subject
from skiplens.graph.modules import ASSUMED, ModuleCall, module_blocks
from skiplens.graph.network import ResidualNetwork, node_bytes
from skiplens.graph.pieces import cut, is_cut
from skiplens.readings.reading import Provenance
from skiplens.signal.branches import branch_states
from skiplens.signal.gradients import (
    Gradients,
    Piece,
    Watch,
    gradients,
    join_sizes,
    join_sums,
    root_mean_square,
    sample_norms,
)
from skiplens.signal.reading import Names, SignalReading
from skiplens.signal.units import broken_tensors, dropout_modules, fresh_norms, most_surprising, repeat_difference

LABEL, STEPS = "following signal and gradient", 4
NO_JOIN = "The model has no residual join, so there is no depth at which to follow signal and gradient."
MOST_BYTES = 2**30  # more activations than this would also take more seconds than the first look at a network should
_NUMBERS = ("branch_norms", "shortcut_norms", "alignments", "branch_gradients", "weight_norms")
_UNKNOWN = ("norm_scales", "dead_units", "saturated_units")
_NOT_COUNTED = ("dead_widths", "zero_factors", "branch_depths")  # what a graph would tell


@dataclass(frozen=True)
class SignalLens(Lens):
    """Signal and gradient at each join, and the state of each branch."""

    name: ClassVar[str] = "signal"
    vectors: ClassVar[int] = 1
    question: ClassVar[str] = "Do signal and gradient keep their size, and is every branch alive?"

    memory: int | None = None
    """Bytes for the activations of one pass; samples that do not fit go through in pieces.

    If not given it is what is free and at most 1 GiB, and the first samples that fit are looked at.
    """

    def __call__(self, subject: Subject, randomness: Randomness, progress: Progress = silent) -> SignalReading:
        """Follow signal and gradient once; only the direction of the gradient is drawn at random."""
        clock = Provenance.begin({"lens": self.name, "model": subject.name}, randomness.seed, subject.device)
        with preserve_state(subject.model):
            try:
                values = _measured(pieces_that_fit(subject, self.memory), randomness, progress)
            except NotExportableError as error:
                values = hooked_signal(subject, error, randomness)
        return SignalReading(**values, provenance=clock.end())


def _measured(pieces: list[Piece], randomness: Randomness, progress: Progress) -> dict[str, Any]:
    """The fields of the reading."""
    network, samples = pieces[0].network, sum(piece.samples for piece in pieces)
    progress(LABEL, 0, STEPS)
    of_branches = _branches(network)
    progress(LABEL, 1, STEPS)
    weights = [(*names, *scales) for names, scales in zip(of_branches["matrices"], of_branches["scales"], strict=True)]
    watch = Watch()
    backward = _backward(pieces, weights, randomness.torch(), watch)
    progress(LABEL, 2, STEPS)
    forward, broken = _forward(pieces, watch)
    progress(LABEL, 3, STEPS)
    model = network.model
    inputs = [piece.network.inputs for piece in pieces]
    health = {
        "dropout": dropout_modules(network),
        "fresh_norms": fresh_norms(model),
        "training": model.training,
        "repeat_difference": repeat_difference(model, inputs[0]),
        "broken": (*broken_tensors(model, inputs), *broken),
        "notes": () if network.blocks else (NO_JOIN,),
    }
    progress(LABEL, 4, STEPS)
    chains = pieces[0].chains
    by_gradient: dict[str, Any] = {"gradient": backward.by_depth, "branch_gradients": backward.by_branch}
    by_gradient |= {"start_gradient": backward.at_starts, "starts": chains.first, "in_series": chains.in_series}
    by_gradient["cut"] = backward.cut
    return {"samples": samples, **by_gradient, **forward, **of_branches, **health}


def _forward(pieces: list[Piece], watch: Watch) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What the forward passes showed, and where they were first seen to be not finite."""
    network, signal, chains = pieces[0].network, watch.signal(pieces), pieces[0].chains
    sizes = {name: join_sizes(sums) for name, sums in watch.joins.sums.items()}
    signal, entering = signal[: len(chains.depths)], signal[len(chains.depths) :]
    names = [block.name for block in network.blocks]

    def by_block(found: Mapping[str, float]) -> Float[Tensor, " blocks"]:
        return torch.tensor([found.get(name, float("nan")) for name in names], dtype=torch.float64)

    dead, saturated = most_surprising(watch.units.shut), most_surprising(watch.units.flat)
    fields = {
        "precision": type_name(network.node(network.output).meta["val"].dtype),
        "signal": signal,
        "start_signal": entering,
        "branch_norms": by_block({name: branch for name, (branch, _, _) in sizes.items()}),
        "shortcut_norms": by_block({name: shortcut for name, (_, shortcut, _) in sizes.items()}),
        "alignments": by_block({name: cosine for name, (_, _, cosine) in sizes.items()}),
        "dead_units": by_block({name: found.share for name, found in dead.items()}),
        "dead_widths": torch.tensor([dead[name].units if name in dead else 0 for name in names], dtype=torch.int64),
        "saturated_units": by_block({name: found.share for name, found in saturated.items()}),
    }
    after = {block.join: f"signal after {block.name}" for block in network.blocks}
    depths = zip(chains.depths, signal, strict=True)
    broken = [after.get(name, "signal before the first block") for name, row in depths if not row.isfinite().all()]
    if not broken and not watch.finite:
        broken = ["output"]
    return fields, tuple(broken[:1])


def _backward(pieces: list[Piece], weights: list[Names], generator: torch.Generator, watch: Watch) -> Gradients:
    network = pieces[0].network
    if not network.blocks:
        with torch.no_grad():
            for piece in pieces:
                watch.ended(piece.network.run([network.output])[network.output])
        nothing = torch.zeros(0, sum(piece.samples for piece in pieces), dtype=torch.float64)
        return Gradients(nothing, torch.zeros(0, dtype=torch.float64), nothing)
    kind = network.node(network.output).meta["val"].dtype
    if not kind.is_floating_point:
        raise InvalidInputError(
            f"The model returns {type_name(kind)} numbers, which have no gradient. Hand in a model that returns its "
            "scores, not the classes it chooses."
        )
    return gradients(pieces, weights, generator, watch)


def _branches(network: ResidualNetwork) -> dict[str, Any]:
    """What the parameters of the branches show."""
    blocks = network.blocks
    with torch.no_grad():
        states = branch_states(network)
    numbers = {"norm_scales": torch.float64, "weight_norms": torch.float64}
    numbers |= {"zero_factors": torch.int64, "widths": torch.int64}
    words = ("normalised", "matrices", "scales", "shifts", "output_parameters")
    return {
        "block_names": tuple(block.name for block in blocks),
        "outermost": tuple(block.parent is None for block in blocks),
        "branch_depths": torch.tensor([block.branch_depth for block in blocks], dtype=torch.int64),
        **{name: torch.tensor([state[name] for state in states], dtype=dtype) for name, dtype in numbers.items()},
        **{name: tuple(state[name] for state in states) for name in words},
    }


def pieces_that_fit(subject: Subject, memory: int | None = None) -> list[Piece]:
    """The network taken apart with all samples of the subject, at once or piece by piece as their activations fit.

    `memory` is in bytes. If None it is the least of 1 GiB and of what is free, and the first samples that fit are all,
    or eight in pieces where fewer fit.
    """
    batch = subject.batch
    # the budget may not hold a pass of all
    network = subject.network if memory is None else subject.network_of(batch.first(2))
    count = samples_of(network.inputs.named or network.inputs.positional).count
    sizes = [node_bytes(node) / count for node in network.graph.nodes if node.op == "call_function"]
    if memory is None:
        budget, needed, fixed = min(budget_bytes(subject.device), MOST_BYTES), sum(sizes), 0
    else:  # beside the values the derivatives of a layer, and the rows of the reading
        budget, needed = memory, sum(sizes) + 2 * max(sizes, default=0.0)
        fixed = 4 * 8 * len(Piece(network, count).chains.depths) * batch.samples
    alone = memory is not None and not is_cut(subject.model, batch)
    require_least(memory, fixed + needed * (batch.samples if alone else 1), "the signal in one pass")
    fitting = batch.samples if alone or not needed else max(1, min(batch.samples, int((budget - fixed) // needed)))
    if memory is None:
        batch = batch.first(max(fitting, 1 if subject.coupled else min(ENOUGH, batch.samples)))
    pieces = cut(batch, fitting)
    return [Piece(replace(subject.network_of(piece), inputs=piece.arguments()), piece.samples) for piece in pieces]


def hooked_signal(subject: Subject, reason: NotExportableError, randomness: Randomness) -> dict[str, Any]:
    """The fields of a `SignalReading`: one pass forwards and one back, as along the joins of a graph."""
    model, samples, arguments = subject.model, subject.batch.samples, subject.batch.arguments()
    with preserve_state(model), torch.enable_grad():
        for parameter in model.parameters():
            parameter.requires_grad_(parameter.is_floating_point())
        calls, returned = module_blocks(model, arguments, CHOSEN_BLOCKS.get())
        output = main_output(returned)
        depths = [calls[0].entered, *(call.left for call in calls)] if calls else []
        behind = [calls[0].entered, *(call.returned for call in calls)] if calls else []
        direction = torch.randn(output.shape, generator=randomness.torch(), dtype=torch.float64).to(output)
        scalar = (output * direction).sum() * (samples / output.numel()) ** 0.5
        named = {name: p for name, p in model.named_parameters() if p.requires_grad}
        flowing = [value for value in behind if value.requires_grad]
        found = torch.autograd.grad(scalar, [*flowing, *named.values()], allow_unused=True)
        by_depth = dict(zip(map(id, flowing), found, strict=False))
        by_name = dict(zip(named, found[len(flowing) :], strict=True))
    blocks = [_branch(call, model, by_name) for call in calls]
    per_block: dict[str, Any] = {key: torch.tensor([b[key] for b in blocks], dtype=torch.float64) for key in _NUMBERS}
    per_block |= {key: torch.full((len(calls),), torch.nan, dtype=torch.float64) for key in _UNKNOWN}
    per_block |= {key: torch.zeros(len(calls), dtype=torch.int64) for key in _NOT_COUNTED}
    per_block |= {key: tuple(b[key] for b in blocks) for key in ("matrices", "shifts", "normalised")}
    rows = [root_mean_square(v, samples) for v in depths]
    back = [sample_norms(by_depth.get(id(v)), samples) for v in behind]
    nothing = torch.zeros(0, samples, dtype=torch.float64)
    return {
        **per_block,
        "samples": samples,
        "precision": type_name(output.dtype),
        "block_names": tuple(call.name for call in calls),
        "outermost": (True,) * len(calls),
        "signal": torch.stack(rows) if rows else nothing,
        "gradient": torch.stack(back) if back else nothing,
        "widths": torch.tensor([c.left.shape[1 if c.left.ndim == 4 else -1] for c in calls], dtype=torch.int64),
        "scales": ((),) * len(calls),
        "output_parameters": ((),) * len(calls),
        "dropout": tuple(n for n, m in model.named_modules() if isinstance(m, _DropoutNd) and m.training and m.p > 0),
        "fresh_norms": fresh_norms(model),
        "repeat_difference": repeat_difference(model, arguments),
        "training": model.training,
        "cut": next((place for place, value in enumerate(behind) if value.requires_grad), 0),
        "broken": broken_tensors(model, [arguments]),
        "notes": (f"{reason} {ASSUMED}",),
    }


def _branch(call: ModuleCall, model: nn.Module, gradients: Mapping[str, Tensor | None]) -> dict[str, Any]:
    """What one block adds to its input, on the assumption that it adds something, and what its parameters show."""
    brought, shortcut, cosine = join_sizes(join_sums(call.left.detach() - call.entered.detach(), call.entered))
    own = {id(parameter) for parameter in call.module.parameters()}
    named = {name: p for name, p in model.named_parameters() if id(p) in own}
    matrices = tuple(name for name, p in named.items() if p.ndim > 1)
    squares = [float(named[name].detach().double().square().sum()) for name in matrices]
    found = [float(g.double().square().sum()) for name in named if (g := gradients.get(name)) is not None]
    return {
        "branch_norms": brought,
        "shortcut_norms": shortcut,
        "alignments": cosine,
        "branch_gradients": sum(found) ** 0.5 if call.returned.requires_grad else torch.nan,
        "weight_norms": (sum(squares) / len(squares)) ** 0.5 if squares else torch.nan,
        "matrices": matrices,
        "shifts": tuple(name for name in named if name not in matrices),
        "normalised": any("Norm" in type(module).__name__ for module in call.module.modules()),
    }
