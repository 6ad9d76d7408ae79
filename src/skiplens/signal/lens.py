"""The signal lens: one forward pass, one backward pass, and a look at the parameters."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from skiplens.base.arguments import type_name
from skiplens.base.axes import Float
from skiplens.base.errors import InvalidInputError, NotExportableError
from skiplens.base.memory import budget_bytes, require_least
from skiplens.base.preserve_state import preserve_state
from skiplens.base.progress import Progress, silent
from skiplens.base.randomness import Randomness
from skiplens.graph.dissect import dissect
from skiplens.graph.lens import Lens, Subject
from skiplens.graph.network import ResidualNetwork, node_bytes
from skiplens.readings.reading import Provenance
from skiplens.signal.branches import branch_states
from skiplens.signal.gradients import Gradients, JoinSizes, gradients, sample_norms
from skiplens.signal.hooked import hooked_signal
from skiplens.signal.reading import Names, SignalReading
from skiplens.signal.units import (
    UnitStates,
    Watcher,
    broken_tensors,
    dropout_modules,
    fresh_norms,
    repeat_difference,
    watching_call,
)

LABEL, STEPS = "following signal and gradient", 4
NO_JOIN = "The model has no residual join, so there is no depth at which to follow signal and gradient."


@dataclass(frozen=True)
class SignalLens(Lens):
    """Signal and gradient at each join, and the state of each branch."""

    name: ClassVar[str] = "signal"
    question: ClassVar[str] = "Do signal and gradient keep their size, and is every branch alive?"

    memory: int | None = None
    """Bytes for the activations of one pass; what is free and at most 1 GiB if not given."""

    def __call__(self, subject: Subject, randomness: Randomness, progress: Progress = silent) -> SignalReading:
        """Follow signal and gradient once; only the direction of the gradient is drawn at random."""
        clock = Provenance.begin({"lens": self.name, "model": subject.name}, randomness.seed, subject.device)
        with preserve_state(subject.model):
            try:
                network, samples = network_that_fits(subject, self.memory)
                values = _measured(network, samples, randomness, progress)
            except NotExportableError as error:
                values = hooked_signal(subject, error, randomness)
        return SignalReading(**values, provenance=clock.end())


def _measured(network: ResidualNetwork, samples: int, randomness: Randomness, progress: Progress) -> dict[str, Any]:
    """The fields of the reading."""
    outermost = [block for block in network.blocks if block.parent is None]
    # A depth is the input of the first block or the join of an outermost one.
    depths = [outermost[0].input, *(block.join for block in outermost)] if outermost else []
    progress(LABEL, 0, STEPS)
    forward, broken = _forward(network, depths, samples)
    progress(LABEL, 1, STEPS)
    of_branches = _branches(network)
    progress(LABEL, 2, STEPS)
    weights = [(*names, *scales) for names, scales in zip(of_branches["matrices"], of_branches["scales"], strict=True)]
    backward = _backward(network, depths, weights, samples, randomness.torch())
    progress(LABEL, 3, STEPS)
    model = network.model
    health = {
        "dropout": dropout_modules(network),
        "fresh_norms": fresh_norms(model),
        "repeat_difference": repeat_difference(model, network.inputs),
        "training": model.training,
        "broken": broken_tensors(model, network.inputs) + broken,
        "notes": () if network.blocks else (NO_JOIN,),
    }
    progress(LABEL, 4, STEPS)
    by_gradient = {"gradient": backward.by_depth, "branch_gradients": backward.by_branch}
    return {"samples": samples, **by_gradient, **forward, **of_branches, **health}


def _forward(network: ResidualNetwork, depths: list[str], samples: int) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What one forward pass shows, and where it was first seen to be not finite."""
    joins, units, rows = JoinSizes(), UnitStates(), dict[str, Tensor]()

    def record(name: str, value: Any, arguments: tuple[Any, ...]) -> None:
        rows[name] = _root_mean_square(value, samples)

    recorders: dict[str, Watcher] = {name: partial(record, name) for name in depths}
    watchers = _together(units.watchers(network), joins.watchers(network), recorders)
    with torch.no_grad():
        values = network.run([*depths[:1], network.output], call=watching_call(watchers))
    for name in depths[:1]:  # the first one may be an input of the model, which no operation makes
        rows.setdefault(name, _root_mean_square(values[name], samples))
    output, names = values[network.output], [block.name for block in network.blocks]

    def by_block(found: Mapping[str, float]) -> Float[Tensor, " blocks"]:
        return torch.tensor([found.get(name, float("nan")) for name in names], dtype=torch.float64)

    widths = [units.dead[name].units if name in units.dead else 0 for name in names]
    fields = {
        "precision": type_name(output.dtype),
        "signal": torch.stack([rows[name] for name in depths]) if depths else torch.zeros(0, samples),
        "branch_norms": by_block(joins.branch),
        "shortcut_norms": by_block(joins.shortcut),
        "alignments": by_block(joins.alignment),
        "dead_units": by_block({name: found.share for name, found in units.dead.items()}),
        "dead_widths": torch.tensor(widths, dtype=torch.int64),
        "saturated_units": by_block({name: found.share for name, found in units.saturated.items()}),
    }
    after = {block.join: f"signal after {block.name}" for block in network.blocks}
    broken = [after.get(name, "signal before the first block") for name in depths if not rows[name].isfinite().all()]
    if not broken and not bool(output.isfinite().all()):
        broken = ["output"]
    return fields, tuple(broken[:1])


def _together(*groups: dict[str, Watcher]) -> dict[str, Watcher]:
    """One watcher for each node, that calls all of its watchers."""

    def watch(name: str, value: Any, arguments: tuple[Any, ...]) -> None:
        for group in groups:
            if name in group:
                group[name](value, arguments)

    return {name: partial(watch, name) for group in groups for name in group}


def _root_mean_square(value: Tensor, samples: int) -> Float[Tensor, " samples"]:
    return sample_norms(value, samples) * (samples / value.numel()) ** 0.5


def _backward(
    network: ResidualNetwork, depths: list[str], weights: list[Names], samples: int, generator: torch.Generator
) -> Gradients:
    if not depths:
        return Gradients(torch.zeros(0, samples, dtype=torch.float64), torch.zeros(0, dtype=torch.float64))
    kind = network.node(network.output).meta["val"].dtype
    if not kind.is_floating_point:
        raise InvalidInputError(
            f"The model returns {type_name(kind)} numbers, which have no gradient. Hand in a model that returns its "
            "scores, not the classes it chooses."
        )
    return gradients(network, depths, weights, samples, generator)


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


MOST_BYTES = 2**30  # more activations than this would also take more seconds than the first look at a network should


def network_that_fits(subject: Subject, memory: int | None = None) -> tuple[ResidualNetwork, int]:
    """The network taken apart with all samples of the subject, or with the first few whose activations fit.

    Also returned: how many samples these are. `memory` is in bytes; the least of 1 GiB and of what is free if None.
    """
    samples = subject.batch.samples
    few = subject.batch.first(2 if memory is not None else samples)  # the budget may not hold a pass of all
    network = subject.network if few.samples == samples else dissect(subject.model, few.inputs)
    budget = min(budget_bytes(subject.device), MOST_BYTES) if memory is None else memory
    needed = sum(node_bytes(node) for node in network.graph.nodes if node.op == "call_function") / few.samples
    require_least(memory, needed, "the signal of one sample")
    fitting = max(1, min(samples, int(budget // needed))) if needed else samples
    if fitting == few.samples:
        return network, fitting
    return dissect(subject.model, subject.batch.first(fitting).inputs), fitting
