"""Every call that takes `memory=`, on samples of which a budget holds only some; run as a program it measures them."""

import gc
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from skiplens.base.errors import TooLargeError
from skiplens.base.randomness import Randomness
from skiplens.curvature.landscape import loss_landscape
from skiplens.curvature.operator import loss_operator
from skiplens.curvature.spectrum import hessian_spectrum
from skiplens.graph.batch import Batch
from skiplens.graph.lens import Lens, Subject
from skiplens.jacobians.spectrum import jacobian_spectrum
from skiplens.kernels import DenseNetKernel, gram
from skiplens.kernels.finite_width import ResNet, Simulation, sample_kernels
from skiplens.paths.spectrum import path_spectrum
from skiplens.signal.layers import LayersLens
from skiplens.signal.lens import SignalLens
from skiplens.tangent import NTKOperator, empirical_ntk, ntk_condition, ntk_diagonal
from skiplens.task.report import TaskLens
from skiplens.trainability.forecast import forecast

Call = Callable[[int, int | None], Any]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(16, 96), nn.Linear(96, 16)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.relu(self.up(x)))


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(Block(), Block(), nn.Linear(16, 4))


def samples(count: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, 16, generator=generator), torch.randint(0, 4, (count,), generator=generator)


def _product(operator: Any) -> Tensor:
    return operator.apply(torch.ones(operator.size, 1))


def _hessian(count: int, memory: int | None) -> Any:
    few: dict[str, Any] = {"steps": 3, "probes": 2, "max_products": 6, "moment_products": 0, "method": "lanczos"}
    return hessian_spectrum(network(), samples(count), loss="cross_entropy", memory=memory, **few)


def _landscape(directions: str) -> Call:
    few: dict[str, Any] = {"dimensions": 1, "points": 3, "max_products": 6, "directions": directions, "workers": 1}
    return lambda count, memory: loss_landscape(network(), samples(count), loss="cross_entropy", memory=memory, **few)


def _paths(of: Any) -> Call:
    return lambda count, memory: path_spectrum(network(), samples(count)[0], of=of, memory=memory)


def _lens(lens: Callable[[int | None], Lens]) -> Call:
    return lambda count, memory: lens(memory)(Subject(network(), Batch(*samples(count)), "network"), Randomness(0))


def _forecast(count: int, memory: int | None) -> Any:
    return forecast(network(), [samples(count)], loss="cross_entropy", cost=14, memory=memory)


def _drawn(count: int, memory: int | None) -> Any:
    generator = torch.Generator().manual_seed(0)
    return sample_kernels(ResNet(depth=4, width=64), torch.eye(8), count, generator, memory=memory)


def _simulated(count: int, memory: int | None) -> Any:
    simulation = Simulation(ResNet(depth=4, width=32), memory=memory)
    return simulation.kernels(torch.eye(8), max(1, count // 50), torch.Generator().manual_seed(0))


CALLS: dict[str, Call] = {
    "hessian_spectrum": _hessian,
    "landscape along eigenvectors": _landscape("eigenvectors"),
    "landscape along random directions": _landscape("random"),
    "paths of the signal": _paths("signal"),
    "paths of the gradient": _paths("gradient"),
    "paths of the jacobian": _paths("jacobian"),
    "loss_operator": lambda n, m: _product(loss_operator(network(), samples(n), loss="cross_entropy", memory=m)),
    "NTKOperator": lambda n, m: _product(NTKOperator(network(), samples(n)[0], memory=m)),
    "ntk_diagonal": lambda n, m: ntk_diagonal(network(), samples(n)[0], memory=m),
    "empirical_ntk": lambda n, m: empirical_ntk(network(), samples(max(8, n // 10))[0], memory=m),
    "ntk_condition": lambda n, m: ntk_condition(network(), samples(max(8, n // 100))[0], memory=m),
    "jacobian_spectrum": lambda n, m: jacobian_spectrum(network(), samples(n)[0], steps=10, memory=m),
    "gram": lambda n, m: gram(DenseNetKernel(depth=2).ntk, samples(max(8, n // 10))[0], memory=m),
    "sample_kernels": _drawn,
    "Simulation": _simulated,
    "signal": _lens(SignalLens),
    "layers": _lens(LayersLens),
    "task": _lens(TaskLens),
    "forecast": _forecast,
}
"""What is called with a number of samples and a budget."""


def least_memory(call: Callable[[int], Any]) -> int:
    """The least budget that does, as the refusal of one that does not names it."""
    try:
        call(0)
    except TooLargeError as refusal:
        found = re.search(r"the least that does is (\d+)", str(refusal))
        assert found is not None, refusal
        return int(found[1])
    raise AssertionError("a budget of nothing was not refused")


def _status(name: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


def measure(name: str, count: int, memory: int | None) -> int:
    """Bytes that the resident set grew by at its largest, beside the base that the first small call leaves."""
    CALLS[name](8, None)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # forgets the largest size so far
    base = _status("VmRSS")
    CALLS[name](count, memory)
    return _status("VmHWM") - base


if __name__ == "__main__":
    torch.set_num_threads(1)
    count, memory, *names = sys.argv[1:]
    sys.stdout.write(json.dumps({name: measure(name, int(count), int(memory) or None) for name in names}))
