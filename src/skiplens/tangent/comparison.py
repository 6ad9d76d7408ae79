"""What the kernel of a network is compared with: other seeds, the theory of its depth and width, infinite width."""

import math
from contextvars import copy_context
from typing import Any

import torch
from torch import Tensor, nn

from skiplens.base import Float, Progress, Randomness, SkiplensError, budget_bytes, silent, track
from skiplens.base.preserve_state import preserve_state
from skiplens.graph import ResidualNetwork, Subject
from skiplens.graph.batch import Batch, Inputs
from skiplens.graph.functional import OutputSelection, main_output, pure_model
from skiplens.graph.inputs import copy_of, require_finite, samples_of
from skiplens.graph.operations import REARRANGING, SCALING, operation
from skiplens.kernels.arc_cosine import correlation_of_angle
from skiplens.kernels.finite_width import ResNet, kernel_moments
from skiplens.kernels.infinite_network import InfiniteNetwork, infinite_resnet
from skiplens.kernels.limit.draws import MOST_DRAWN
from skiplens.kernels.limit.kernel import ModuleKernel
from skiplens.signal import SignalLens, SignalReading
from skiplens.signal.branches import branch_states
from skiplens.tangent.empirical import empirical_ntk, kernel_of, ntk_diagonal
from skiplens.tangent.problem import Problem

SEEDS, SAMPLES = 8, 4
LIMIT_ENTRIES, DRAWN_ENTRIES = 2**27, 2**31  # entries of blocks of a limit, and numbers drawn for it: some seconds


def compared(
    subject: Subject, batch: Batch, angles: Tensor, randomness: Randomness, progress: Progress
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Fields of the reading, and what to tell of those that are missing."""
    names = branch_parameters(subject)
    if not names:
        return {}, ("Without branches that are trained there is no theory to compare the kernel with.",)
    few = batch.first(SAMPLES)
    if subject.operations * 4 * SEEDS * few.samples**2 > subject.allowed:
        return {}, (f"The kernel was not compared over seeds: {SEEDS} redraws of this model would take too long.",)
    seeds = [randomness.child("seed", number) for number in range(SEEDS)]
    fields: dict[str, Any] = {"seed_diagonals": diagonals_over_seeds(subject.model, few.inputs, names, seeds, progress)}
    # Theory knows the network where none of its branches normalises.
    if not any(state["normalised"] for state in branch_states(subject.network)):
        fields |= _theory(subject, batch, angles, SignalLens()(subject, randomness, silent), names)
    return fields, ()


def limit_of_module(subject: Subject, batch: Batch, outputs: int) -> dict[str, Any]:
    """Fields of the reading: the limit of this module, where it has one that is quickly computed, or why not."""
    inputs = batch.inputs
    try:
        network = subject.network  # the kernel needs no graph, its limit does
        if not isinstance(inputs, Tensor) or len(network.inputs.leaves()) != 1:
            return {"no_limit": "the model reads something else than one tensor."}
        limit = ModuleKernel(network, "measured", "standard")
        steps = sum(node.op == "call_function" for node in network.graph.nodes)
        together = math.isqrt(LIMIT_ENTRIES // (limit.pair_entries * max(1, steps)))
        batch_of_norm = len(network.inputs.leaves()[0]) if limit.coupled else 0  # is carried with the samples
        samples = min(len(inputs), together - batch_of_norm)
        if samples < 2:
            return {"no_limit": f"it would take too long: {limit.pair_entries:,} numbers for each pair of samples."}
        (context := copy_context()).run(MOST_DRAWN.set, DRAWN_ENTRIES)
        context.run(limit.check)
        if limit.drawn:  # takes thousands of times as long
            samples = min(samples, 16 if limit.pair_entries == 1 else 2)
        kernel = outputs * limit.ntk(inputs[:samples]).double()
        scales, maps = limit.depth_scales(), limit.by_depth()
    except SkiplensError as error:
        return {"no_limit": str(error)}
    if not bool(kernel.isfinite().all()) or not bool(kernel.any()):
        return {"no_limit": "its kernel is zero, or beyond the largest number."}
    steps = ((f"{s.nonlinearity} → {s.matrix}", (s.slope, s.variance, s.correlation, s.scale)) for s in scales)
    rows = sorted(set(steps))
    return {
        "module_limit": kernel,
        "limit_operations": tuple(f"{row.operation} {row.module}".strip() for row in maps),
        "limit_maps": torch.tensor([(row.variance, row.correlation) for row in maps], dtype=torch.float64),
        "depth_steps": tuple(name for name, _ in rows),
        "depth_scales": torch.tensor([row for _, row in rows], dtype=torch.float64).view(-1, 4),
    }


def branch_parameters(subject: Subject) -> list[str]:
    """The trained parameters of the branches, those that the theory of tangent kernels differentiates by."""
    trained = {name for name, parameter in subject.model.named_parameters() if parameter.requires_grad}
    names = (name for block in subject.network.blocks for name in block.branch.parameters)
    return [name for name in dict.fromkeys(names) if name in trained]


def _theory(subject: Subject, batch: Batch, angles: Tensor, signal: SignalReading, names: list[str]) -> dict[str, Any]:
    """The variance that theory expects, and the kernel of infinite width beside that of the branches."""
    network = equivalent_network(signal)
    if network is None:
        return {}
    fields: dict[str, Any] = {}
    inside = {name for block in subject.network.blocks for name in block.branch.parameters}
    outer = [name for name, p in subject.model.named_parameters() if p.ndim > 1 and name not in inside]
    if len(outer) >= 2:  # the theory's variance includes matrices drawn before and after the blocks
        fields["predicted_variance"] = float(kernel_moments(network).relative_variance)
    inputs = batch.inputs
    are_vectors = isinstance(inputs, Tensor) and inputs.ndim == 2 and inputs.is_floating_point()
    limit = limit_of(subject.network, signal) if are_vectors else None
    if limit is not None:
        kernel = empirical_ntk(subject.model, inputs, parameters=names)
        scale = kernel.diagonal().sqrt()
        fields["branch_correlations"] = kernel / scale[:, None] / scale[None, :]
        fields["limit_correlations"] = limit_correlations(limit, angles)
    return fields


KNOWN = {"aten.linear", "aten.mm", "aten.matmul", "aten.addmm", "aten.add", "aten.relu", *SCALING, *REARRANGING}
"""Operations of the networks of 'Residual Tangent Kernels'."""


def limit_of(network: ResidualNetwork, reading: SignalReading) -> InfiniteNetwork | None:
    """The limit with the measured size of each branch; None for any other architecture."""
    depths = {block.branch_depth for block in network.blocks}
    kinds = {block.shortcut.kind for block in network.blocks}
    nested = any(block.parent is not None for block in network.blocks)
    if len(depths) != 1 or kinds != {"identity"} or nested or not _is_known(network, *depths):
        return None
    scales = reading.branch_ratios.square()
    if not bool((scales.isfinite() & (scales > 0)).all()):
        return None
    return infinite_resnet(scales, depths.pop())


def limit_correlations(limit: InfiniteNetwork, angles: Tensor) -> Float[Tensor, "samples samples"]:
    """The tangent kernel of the limit over its value at equal inputs, for inputs at these angles."""
    return limit.recursion(correlation_of_angle(angles.double())).ntk / limit.at_equal_inputs().ntk


def _is_known(network: ResidualNetwork, branch_depth: int) -> bool:
    """Whether blocks have a ReLU between each two matrices and nothing else is there, without biases."""
    calls = [node for node in network.graph.nodes if node.op == "call_function"]
    rectified = [node for node in calls if operation(node) == "aten.relu"]
    inputs = {block.input for block in network.blocks}
    inside = {name for block in network.blocks for name in block.branch.nodes}
    between = all(node.name in inside and node.args[0].name not in inputs for node in rectified)
    counted = len(rectified) == len(network.blocks) * (branch_depth - 1)
    unbiased = not any(bool(p.detach().any()) for p in network.model.parameters() if p.ndim < 2)
    return between and counted and unbiased and all(operation(node) in KNOWN for node in calls)


def redrawn(model: nn.Module, generator: torch.Generator) -> nn.Module:
    """A copy whose matrices and filters are drawn from normal distributions with the mean and spread they have.

    Biases and scales stay: at initialisation they are constants.
    """
    fresh = copy_of(model, "its redraws are copies")
    with torch.no_grad():
        for parameter in fresh.parameters():
            if parameter.ndim > 1 and parameter.is_floating_point():
                # drawn on the CPU, so that the numbers do not depend on the device
                noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float32).to(parameter)
                parameter.copy_(parameter.mean() + parameter.std() * noise)
    return fresh


def diagonals_over_seeds(
    model: nn.Module, inputs: Inputs, names: list[str], seeds: list[Randomness], progress: Progress
) -> Float[Tensor, "seeds samples"]:
    """The kernel of the first output with itself, by the named parameters, for each seed and sample."""
    tracked = track(seeds, "kernel over seeds", len(seeds), progress)
    fresh = (redrawn(model, seed.torch()) for seed in tracked)
    return torch.stack([ntk_diagonal(other, inputs, outputs=0, parameters=names) for other in fresh])


def kernel_of_some_outputs(
    model: nn.Module, inputs: Inputs, chosen: Tensor, total: int, coupled: bool, progress: Progress
) -> tuple[Float[Tensor, "samples samples"], Float[Tensor, "samples samples"]]:
    """An unbiased estimate of the kernel summed over all `total` outputs, and its standard error, entry by entry.

    That the model repeats itself, and whether its samples are `coupled`, has been asked of it before.
    """
    pure, samples = pure_model(_Chosen(model, chosen)), samples_of(inputs)
    require_finite(samples)
    outputs, budget = OutputSelection(tuple(range(len(chosen))), separate=True), budget_bytes(pure.device)
    with preserve_state(model):
        full = kernel_of(Problem(pure, samples, None, outputs, len(chosen), coupled, "auto", budget, progress))
    each = total * full.diagonal(dim1=1, dim2=3)  # samples × samples × outputs
    return each.mean(-1), each.std(-1) / each.shape[-1] ** 0.5


class _Chosen(nn.Module):
    """The model with the chosen entries of its flat output alone."""

    def __init__(self, model: nn.Module, chosen: Tensor) -> None:
        super().__init__()
        self.model, self.chosen = model, chosen
        self.training = model.training

    def forward(self, *positional: Any, **named: Any) -> Tensor:
        """The chosen entries of each sample's output."""
        return main_output(self.model(*positional, **named)).flatten(1)[:, self.chosen]


def equivalent_network(reading: SignalReading) -> ResNet | None:
    """The random network that theory knows, with this depth, width and branch size; None where branches normalise."""
    outer = [index for index, outermost in enumerate(reading.outermost) if outermost]
    if not outer or reading.broken or any(reading.normalised[index] for index in outer):
        return None
    matrices = int(reading.branch_depths[outer].double().median())
    width, gain = int(reading.widths[outer].min()), float(reading.branch_ratios[outer].square().median())
    if matrices < 1 or width < 1 or not 0 < gain < math.inf:
        return None
    return ResNet(reading.depth, width, matrices, gain ** (1 / matrices))
