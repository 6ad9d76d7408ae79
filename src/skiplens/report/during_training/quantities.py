"""The quantities that a monitor follows: each a function of what it sees, returning numbers by name."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from skiplens.base.errors import InvalidInputError
from skiplens.base.memory import budget_bytes, require_fits
from skiplens.base.randomness import Randomness
from skiplens.curvature.operator import loss_operator
from skiplens.graph.functional import main_output
from skiplens.jacobians.spectrum import JacobianOptions, measure
from skiplens.linalg.lanczos import LanczosOptions, extreme_eigenpairs
from skiplens.paths.expanders import PathOptions
from skiplens.paths.forces import block_scales, weight_scale
from skiplens.paths.spectrum import Request, signal_or_derivative
from skiplens.report.during_training.probed_model import ProbedModel
from skiplens.report.during_training.record import Quantity
from skiplens.tangent.empirical import empirical_ntk

Numbers = dict[str, Tensor]

_WORK = 1e9  # operations of an exact spectrum of singular values; larger Jacobians are seen through Lanczos

_LANCZOS_STEPS = 20

_FEWEST_VECTORS = 6  # two wanted, two to go on from, two of room: fewer cannot be restarted

_TOLERANCE = 1e-3


def depth(sight: ProbedModel) -> Numbers:
    """How many branches the signal passes: mean, coherent and peak depth, and the energy by order."""
    network, several = sight.network(), sight.probe.samples > 1
    options = PathOptions(seed=sight.options.seed, centre=True, centre_samples=several)
    spectrum, reason = signal_or_derivative(network, sight.probe.inputs, Request(options))
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
    search = LanczosOptions(_TOLERANCE, products, min(products + 2, budget // vector))
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
    options = JacobianOptions(seed=asked.seed, parts=("block",), steps=_LANCZOS_STEPS, probes=1, work=_WORK)
    found = measure(sight.dissected(), (), options, options.effort("sample", "auto"))
    return {"jacobian_quantiles": found.quantiles("network", torch.tensor(asked.levels))}


def kernel(sight: ProbedModel) -> Numbers:
    """How far the tangent kernel is from that of the first look, and whether it still points the same way."""
    now = _kernel(sight).detach().cpu().double()
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
"""The quantities by the names under which they are asked for."""

TAKEN_APART: frozenset[str] = frozenset({"depth", "scales", "jacobians"})
"""Those that need the graph of the model."""


def _kernel(sight: ProbedModel) -> Tensor:
    """The kernel summed over the outputs, or over those drawn where there are many."""
    outputs = main_output(sight.outputs())
    total = outputs[0].numel()
    if total <= sight.options.outputs:
        return empirical_ntk(sight.model, sight.probe.inputs)
    generator = Randomness(sight.options.seed).child("monitor", "outputs").numpy()
    sight.remark(f"The tangent kernel is that of {sight.options.outputs} of {total:,} outputs, drawn once.")
    drawn = np.sort(generator.choice(total, sight.options.outputs, replace=False))
    return empirical_ntk(_SomeOutputs(sight.model, torch.from_numpy(drawn).to(outputs.device)), sight.probe.inputs)


class _SomeOutputs(nn.Module):
    """A model of which only some outputs are seen."""

    def __init__(self, model: nn.Module, index: Tensor) -> None:
        super().__init__()
        self.model, self.index = model, index

    def forward(self, *positional: Any, **named: Any) -> Tensor:
        """The entries at `index` of the main output."""
        return main_output(self.model(*positional, **named)).flatten(1)[:, self.index]


def _number(value: float) -> Tensor:
    return torch.tensor(float(value), dtype=torch.float64)


Clock = Callable[[], float]


class TimeBudget:
    """Accounts of seconds: one for each quantity, and one for what they share.

    `share` times the seconds of the run is divided fairly: a quantity that needs less than an equal part takes what it
    needs, and those that need more divide the rest equally. So an expensive one is seen less often and takes nothing
    from the cheap ones. The first measurement of a quantity is always made; later ones wait until the run has lasted
    long enough to pay for it and for themselves.

    Attributes:
        share: The share of the run's time that may be spent.
        spent: Seconds spent on each quantity.
        last: What the last measurement of a quantity took; none before the first.
        shared: Seconds spent on what no single quantity needed.
        in_vain: Seconds spent on what could not be measured.
    """

    def __init__(self, share: float, names: Iterable[str], clock: Clock = time.perf_counter) -> None:
        self.share, self.shared, self.in_vain = share, 0.0, 0.0
        self.spent = dict.fromkeys(names, 0.0)
        self.last: dict[str, float] = {}
        self._open = list(self.spent)
        self._clock = clock
        self._run_before = 0.0
        self._own_before = 0.0
        self._began: float | None = None
        self._ended: float | None = None

    @property
    def open(self) -> tuple[str, ...]:
        """The quantities that are measured."""
        return tuple(self._open)

    def begin(self, run_seconds: float = 0.0) -> None:
        """Start the clock of the run, which has lasted `run_seconds` already."""
        self._run_before, self._own_before = run_seconds, self.own_seconds
        self._began, self._ended = self._clock(), None

    def end(self) -> None:
        """Stop the clock of the run."""
        self._ended = self._clock()

    @property
    def own_seconds(self) -> float:
        """Seconds spent in all."""
        return self.shared + self.in_vain + sum(self.spent.values())

    @property
    def run_seconds(self) -> float:
        """Seconds of the run without those spent on looking."""
        if self._began is None:
            return self._run_before
        now = self._clock() if self._ended is None else self._ended
        return self._run_before + now - self._began - (self.own_seconds - self._own_before)

    def affordable(self) -> list[str]:
        """The quantities that may be measured now, if each takes as long as it did last time."""
        needs = {name: self.spent[name] + self.last.get(name, 0.0) for name in self._open}
        left = self.share * self.run_seconds - self.shared - self.in_vain
        found = {name for name in self._open if name not in self.last}
        for number, name in enumerate(sorted(needs, key=needs.__getitem__)):
            if name not in found and needs[name] > left / (len(needs) - number):
                break  # all that follow need more
            found.add(name)
            left -= needs[name]
        return [name for name in self._open if name in found]

    def close(self, name: str) -> None:
        """Give the part of a quantity that is measured no more to the others."""
        self._open.remove(name)

    def write_off(self, name: str, seconds: float) -> None:
        """Take seconds that a quantity took in vain from its account; they stay spent."""
        self.spent[name] -= seconds
        self.in_vain += seconds

    def take_up(self, shared: float, looks: Iterable[Mapping[str, float]]) -> None:
        """Go on with the seconds that earlier looks took."""
        self.shared = shared
        for costs in looks:
            for name in self.spent.keys() & costs.keys():
                self._charge(name, costs[name])

    def divide(self, seconds: float, names: Sequence[str], again: bool = True) -> None:
        """Move seconds from what all share to some quantities in equal parts; `again`: as they will next time."""
        self.shared -= seconds
        for name in names:
            self.spent[name] += seconds / len(names)
            if again:
                self.last[name] += seconds / len(names)

    @contextmanager
    def charged(self, name: str | None, device: torch.device) -> Iterator[None]:
        """Charge the time of a block to `name`, or to what all share, without what is charged inside the block.

        A GPU is waited for on both ends: what it still had to do before is the run's.
        """
        _wait_for(device)
        start, before = self._clock(), self.own_seconds
        try:
            yield
            _wait_for(device)
        finally:
            self._charge(name, self._clock() - start - (self.own_seconds - before))

    def _charge(self, name: str | None, seconds: float) -> None:
        if name is None:
            self.shared += seconds
        else:
            self.spent[name] += seconds
            self.last[name] = seconds


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
