"""What the kernel of a network is compared with: other seeds, the theory of its depth and width, infinite width."""

from typing import Any

from torch import Tensor

from skiplens.core.progress import Progress, silent
from skiplens.core.randomness import Randomness
from skiplens.data.batch import Batch
from skiplens.derivatives import empirical_ntk
from skiplens.lenses.effort import OPERATIONS
from skiplens.lenses.lens import Subject
from skiplens.lenses.signal.branches import branch_states
from skiplens.lenses.signal.equivalent import equivalent_network
from skiplens.lenses.signal.lens import SignalLens
from skiplens.lenses.tangent.limit import is_vectors, limit_correlations, limit_of
from skiplens.lenses.tangent.redraws import diagonals_over_seeds
from skiplens.readings import SignalReading
from skiplens.theory.finite_width import kernel_moments

SEEDS = 8
SAMPLES = 4


def compared(
    subject: Subject, batch: Batch, angles: Tensor, randomness: Randomness, progress: Progress
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Fields of the reading, and what to tell of those that are missing."""
    names = branch_parameters(subject)
    if not names:
        return {}, ("Without branches that are trained there is no theory to compare the kernel with.",)
    few = batch.first(SAMPLES)
    if subject.operations * 4 * SEEDS * few.samples**2 > OPERATIONS:
        return {}, (f"The kernel was not compared over seeds: {SEEDS} redraws of this model would take too long.",)
    seeds = [randomness.child("seed", number) for number in range(SEEDS)]
    fields: dict[str, Any] = {"seed_diagonals": diagonals_over_seeds(subject.model, few.inputs, names, seeds, progress)}
    signal = _signal(subject, randomness)
    if signal is not None:
        fields |= _theory(subject, batch, angles, signal, names)
    return fields, ()


def branch_parameters(subject: Subject) -> list[str]:
    """The trained parameters of the branches, those that the theory of tangent kernels differentiates by."""
    trained = {name for name, parameter in subject.model.named_parameters() if parameter.requires_grad}
    names = (name for block in subject.network.blocks for name in block.branch.parameters)
    return [name for name in dict.fromkeys(names) if name in trained]


def _signal(subject: Subject, randomness: Randomness) -> SignalReading | None:
    """The sizes of the branches, where theory knows the network: none of them normalises."""
    if any(state.normalised for state in branch_states(subject.network)):
        return None
    return SignalLens()(subject, randomness, silent)


def _theory(subject: Subject, batch: Batch, angles: Tensor, signal: SignalReading, names: list[str]) -> dict[str, Any]:
    """The variance that theory expects, and the kernel of infinite width beside that of the branches."""
    network = equivalent_network(signal)
    if network is None:
        return {}
    fields: dict[str, Any] = {}
    if _has_outer_layers(subject):
        fields["predicted_variance"] = float(kernel_moments(network).relative_variance)
    limit = limit_of(subject.network, signal) if is_vectors(batch.inputs) else None
    if limit is not None:
        kernel = empirical_ntk(subject.model, batch.inputs, parameters=names)
        scale = kernel.diagonal().sqrt()
        fields["branch_correlations"] = kernel / scale[:, None] / scale[None, :]
        fields["limit_correlations"] = limit_correlations(limit, angles)
    return fields


def _has_outer_layers(subject: Subject) -> bool:
    """Whether matrices are drawn before and after the blocks too, which the theory's variance includes."""
    inside = {name for block in subject.network.blocks for name in block.branch.parameters}
    drawn = [name for name, parameter in subject.model.named_parameters() if parameter.ndim > 1 and name not in inside]
    return len(drawn) >= 2
