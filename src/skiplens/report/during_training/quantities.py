"""The quantities that a monitor follows: each a function of what it sees, returning numbers by name."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from skiplens.base import InvalidInputError, Randomness
from skiplens.base.memory import budget_bytes, require_fits
from skiplens.curvature.operator import loss_operator
from skiplens.graph.functional import main_output
from skiplens.jacobians.spectrum import JacobianOptions, measure
from skiplens.linalg.lanczos import LanczosOptions, extreme_eigenpairs
from skiplens.paths.expanders import PathOptions
from skiplens.paths.forces import block_scales, weight_scale
from skiplens.paths.spectrum import signal_or_derivative
from skiplens.report.during_training.probed_model import ProbedModel
from skiplens.report.during_training.record import Quantity
from skiplens.tangent.empirical import empirical_ntk

Numbers = dict[str, Tensor]

_WORK = 1e9  # operations of an exact spectrum of singular values; larger Jacobians are seen through Lanczos
_FEWEST_VECTORS = 6  # two wanted, two to go on from, two of room: fewer cannot be restarted


def depth(sight: ProbedModel) -> Numbers:
    """How many branches the signal passes: mean, coherent and peak depth, and the energy by order."""
    network, several = sight.network(), sight.probe.samples > 1
    options = PathOptions(seed=sight.options.seed, centre=True, centre_samples=several)
    spectrum, reason = signal_or_derivative(network, sight.probe.inputs, options)
    if reason:
        sight.remark(f"{reason} So depth is that of the output's derivative along a random direction.")
    return {
        "mean_depth": _number(spectrum.mean_depth),
        "coherent_depth": _number(spectrum.coherent_depth),
        "peak_depth": _number(spectrum.peak_depth),
        "energy": spectrum.energy,
    }


def scales(sight: ProbedModel) -> Numbers:
    """λ of each block, NaN without a learned scale, and the root mean square of the branches' weights."""
    network = sight.network()
    return {"scales": block_scales(network), "weight_scale": _number(weight_scale(network))}


def weight_norm(sight: ProbedModel) -> Numbers:
    """The length of all trained parameters as one vector."""
    trained = [parameter.detach() for parameter in sight.model.parameters() if parameter.requires_grad]
    if not trained:
        raise InvalidInputError("No parameter of the model requires a gradient, so there is nothing that trains.")
    return {"weight_norm": torch.stack([parameter.double().norm() for parameter in trained]).norm()}


def curvature(sight: ProbedModel) -> Numbers:
    """The largest and the smallest eigenvalue of the Hessian, within which distance they are known, and the loss."""
    loss, data = sight.probe.loss_and_data(sight.outputs())
    operator = loss_operator(sight.model, data, loss=loss)
    products, vector = sight.options.products, operator.size * operator.dtype.itemsize
    budget = budget_bytes(operator.device)
    instead = "Leave 'curvature' out of quantities."
    require_fits(_FEWEST_VECTORS * vector, "The search for extreme eigenvalues", instead, budget)
    search = LanczosOptions(1e-3, products, min(products + 2, budget // vector))
    generator = Randomness(sight.options.seed).child("monitor", "curvature").torch()
    pairs = extreme_eigenpairs(operator, generator, largest=1, smallest=min(1, operator.size - 1), options=search)
    return {
        "largest_eigenvalue": pairs.values[-1],
        "smallest_eigenvalue": pairs.values[0],
        "eigenvalue_error": pairs.residuals.max(),
        "probe_loss": _number(operator.loss),
    }


def jacobians(sight: ProbedModel) -> Numbers:
    """Quantiles of the singular values of each sample's Jacobian from input to output."""
    asked = sight.options
    options = JacobianOptions(seed=asked.seed, parts=("block",), steps=20, probes=1, work=_WORK)
    found = measure(sight.dissected(), (), options, options.effort("sample", "auto"))
    return {"jacobian_quantiles": found.quantiles("network", torch.tensor(asked.levels))}


def kernel(sight: ProbedModel) -> Numbers:
    """How far the tangent kernel is from that of the first look, and whether it still points the same way.

    The kernel is summed over the outputs, or over those drawn where there are many.
    """
    outputs = main_output(sight.outputs())
    total, most, model = outputs[0].numel(), sight.options.outputs, sight.model
    if total > most:
        sight.remark(f"The tangent kernel is that of {most} of {total:,} outputs, drawn once.")
        generator = Randomness(sight.options.seed).child("monitor", "outputs").numpy()
        drawn = np.sort(generator.choice(total, most, replace=False))
        model = _SomeOutputs(model, torch.from_numpy(drawn).to(outputs.device))
    now = empirical_ntk(model, sight.probe.inputs).detach().cpu().double()
    if not sight.first_kernel.numel():
        sight.first_kernel = now
    first = sight.first_kernel
    if now.shape != first.shape:
        raise InvalidInputError(
            f"The kernel of the first look has {len(first)} samples and this one {len(now)}. Look at the same probe."
        )
    return {
        "kernel_drift": (now - first).norm() / first.norm(),
        "kernel_alignment": (now * first).sum() / (now.norm() * first.norm()),
        "kernel_norm": now.norm(),
    }


MEASURES: Mapping[Quantity, Callable[[ProbedModel], Numbers]] = {
    "depth": depth,
    "scales": scales,
    "weight_norm": weight_norm,
    "curvature": curvature,
    "jacobians": jacobians,
    "kernel": kernel,
}
TAKEN_APART: frozenset[str] = frozenset({"depth", "scales", "jacobians"})  # those that need the graph of the model


class _SomeOutputs(nn.Module):
    """A model of which only some outputs are seen."""

    def __init__(self, model: nn.Module, index: Tensor) -> None:
        super().__init__()
        self.model, self.index = model, index

    def forward(self, *positional: Any, **named: Any) -> Tensor:
        return main_output(self.model(*positional, **named)).flatten(1)[:, self.index]


def _number(value: float) -> Tensor:
    return torch.tensor(float(value), dtype=torch.float64)
