"""The signal lens: one forward pass, one backward pass, and a look at the parameters."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from skiplens.base.arguments import type_name
from skiplens.base.axes import Float, Int
from skiplens.base.errors import InvalidInputError
from skiplens.base.memory import budget_bytes
from skiplens.base.preserve_state import preserve_state
from skiplens.base.progress import Progress, silent
from skiplens.base.randomness import Randomness
from skiplens.graph.dissect import dissect
from skiplens.graph.lens import Lens, Subject
from skiplens.graph.network import ResidualNetwork
from skiplens.readings.reading import Provenance
from skiplens.signal.branches import branch_states, column, counts
from skiplens.signal.gradients import Gradients, JoinSizes, gradients, sample_norms
from skiplens.signal.reading import SignalReading
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
            network, samples = network_that_fits(subject, self.memory)
            values = _measured(network, samples, randomness, progress)
        return SignalReading(**values, provenance=clock.end())


def _measured(network: ResidualNetwork, samples: int, randomness: Randomness, progress: Progress) -> dict[str, Any]:
    """The fields of the reading."""
    depths = depth_nodes(network)
    progress(LABEL, 0, STEPS)
    forward = _forward(network, depths, samples)
    progress(LABEL, 1, STEPS)
    of_branches = _branches(network)
    progress(LABEL, 2, STEPS)
    weights = [(*names, *scales) for names, scales in zip(of_branches["matrices"], of_branches["scales"], strict=True)]
    backward = _backward(network, depths, weights, samples, randomness.torch())
    progress(LABEL, 3, STEPS)
    health = _health(network)
    progress(LABEL, 4, STEPS)
    health["broken"] += tuple(forward.pop("broken"))
    return {
        "samples": samples,
        "gradient": backward.by_depth,
        "branch_gradients": backward.by_branch,
        **forward,
        **of_branches,
        **health,
    }


def depth_nodes(network: ResidualNetwork) -> list[str]:
    """The input of the first block and the joins of the outermost blocks; nothing without blocks."""
    outermost = [block for block in network.blocks if block.parent is None]
    return [outermost[0].input, *(block.join for block in outermost)] if outermost else []


def _forward(network: ResidualNetwork, depths: list[str], samples: int) -> dict[str, Any]:
    """What one forward pass shows."""
    joins, units, rows = JoinSizes(), UnitStates(), dict[str, Tensor]()
    watchers = _together(units.watchers(network), joins.watchers(network), _recorders(depths, samples, rows))
    with torch.no_grad():
        values = network.run([*depths[:1], network.output], call=watching_call(watchers))
    for name in depths[:1]:  # the first one may be an input of the model, which no operation makes
        rows.setdefault(name, _root_mean_square(values[name], samples))
    names = [block.name for block in network.blocks]
    return {
        "precision": type_name(values[network.output].dtype),
        "signal": torch.stack([rows[name] for name in depths]) if depths else torch.zeros(0, samples),
        "branch_norms": _by_name(names, joins.branch),
        "shortcut_norms": _by_name(names, joins.shortcut),
        "alignments": _by_name(names, joins.alignment),
        "dead_units": _by_name(names, {name: found.share for name, found in units.dead.items()}),
        "dead_widths": _widths(names, units),
        "saturated_units": _by_name(names, {name: found.share for name, found in units.saturated.items()}),
        "broken": _broken_on_the_way(network, depths, rows, values[network.output]),
    }


def _recorders(depths: list[str], samples: int, rows: dict[str, Tensor]) -> dict[str, Watcher]:
    def recorder(name: str) -> Watcher:
        def record(value: Any, arguments: tuple[Any, ...]) -> None:
            rows[name] = _root_mean_square(value, samples)

        return record

    return {name: recorder(name) for name in depths}


def _together(*groups: dict[str, Watcher]) -> dict[str, Watcher]:
    """One watcher for each node, that calls all of its watchers."""
    names = dict.fromkeys(name for group in groups for name in group)

    def all_of(watchers: list[Watcher]) -> Watcher:
        def watch(value: Any, arguments: tuple[Any, ...]) -> None:
            for watcher in watchers:
                watcher(value, arguments)

        return watch

    return {name: all_of([group[name] for group in groups if name in group]) for name in names}


def _root_mean_square(value: Tensor, samples: int) -> Float[Tensor, " samples"]:
    return sample_norms(value, samples) * (samples / value.numel()) ** 0.5


def _broken_on_the_way(
    network: ResidualNetwork, depths: list[str], rows: dict[str, Tensor], output: Tensor
) -> list[str]:
    """The first depth at which the signal is not finite, or the output."""
    names = {block.join: f"signal after {block.name}" for block in network.blocks}
    broken = [names.get(name, "signal before the first block") for name in depths if not rows[name].isfinite().all()]
    return broken[:1] or ([] if bool(output.isfinite().all()) else ["output"])


def _backward(
    network: ResidualNetwork,
    depths: list[str],
    weights: list[tuple[str, ...]],
    samples: int,
    generator: torch.Generator,
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
    with torch.no_grad():
        states = branch_states(network)
    return {
        "block_names": tuple(block.name for block in network.blocks),
        "outermost": tuple(block.parent is None for block in network.blocks),
        "branch_depths": torch.tensor([block.branch_depth for block in network.blocks], dtype=torch.int64),
        "norm_scales": column(states, "norm_scale"),
        "weight_norms": column(states, "weight_norm"),
        "zero_factors": counts(states, "zero_factors"),
        "widths": counts(states, "width"),
        "normalised": tuple(state.normalised for state in states),
        "matrices": tuple(state.matrices for state in states),
        "scales": tuple(state.scales for state in states),
        "shifts": tuple(state.shifts for state in states),
        "output_parameters": tuple(state.output_parameters for state in states),
    }


def _health(network: ResidualNetwork) -> dict[str, Any]:
    model = network.model
    return {
        "dropout": dropout_modules(network),
        "fresh_norms": fresh_norms(model),
        "repeat_difference": repeat_difference(model, network.inputs),
        "broken": broken_tensors(model, network.inputs),
        "notes": _notes(network),
    }


def _notes(network: ResidualNetwork) -> tuple[str, ...]:
    if network.blocks:
        return ()
    return ("The model has no residual join, so there is no depth at which to follow signal and gradient.",)


def _widths(names: list[str], units: UnitStates) -> Int[Tensor, " blocks"]:
    return torch.tensor([units.dead[name].units if name in units.dead else 0 for name in names], dtype=torch.int64)


def _by_name(names: list[str], values: dict[str, float]) -> Float[Tensor, " blocks"]:
    return torch.tensor([values.get(name, float("nan")) for name in names], dtype=torch.float64)


MOST_BYTES = 2**30
"""More activations than this would also take more seconds than the first look at a network should."""


def network_that_fits(subject: Subject, memory: int | None = None) -> tuple[ResidualNetwork, int]:
    """The network taken apart with all samples of the subject, or with the first few that fit, and how many these are.

    Args:
        subject: What is looked at.
        memory: Bytes for the activations of one pass; the least of 1 GiB and of what is free if not given.
    """
    network, samples = subject.network, subject.batch.samples
    budget = min(budget_bytes(subject.device), MOST_BYTES) if memory is None else memory
    needed = activation_bytes(network)
    if needed <= budget or samples == 1:
        return network, samples
    fewer = max(1, samples * budget // needed)
    return dissect(subject.model, subject.batch.first(fewer).inputs), fewer


def activation_bytes(network: ResidualNetwork) -> int:
    """Bytes of the values of all operations."""
    values = (node.meta.get("val") for node in network.graph.nodes if node.op == "call_function")
    tensors = (entry for value in values for entry in (value if isinstance(value, list | tuple) else (value,)))
    return sum(entry.numel() * entry.element_size() for entry in tensors if isinstance(entry, torch.Tensor))
