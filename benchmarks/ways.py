"""One way to compute something, measured in a process of its own, so that its peak memory is its own.

Run as a program it measures one way and prints what it found: `python ways.py '{"module": …}'`. Peers run it too, in
environments that have neither torch nor Skiplens, so only the standard library and NumPy are imported at the top.
"""

import gc
import importlib
import inspect
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
from measuring import Clock, added_bytes, resident_bytes

HERE = Path(__file__).parent
PEERS = HERE / ".peers"


@dataclass(frozen=True)
class Way:
    """A function of a benchmark that prepares an action; the action is what is measured.

    Attributes:
        module: The benchmark.
        function: Its name there; called with the arguments it returns the action.
        arguments: All but the size.
        warm: Arguments of a small first call, which loads what is loaded once; none if empty.
        untimed: Whole calls before those that count, for what compiles for a shape.
        repeats: Calls whose median counts.
        environment: "main", "torch" (with the peers on its path) or "neural_tangents".
        keep: A function of the module from the action's result to the numbers that are compared.
        same: Whether the numbers shall be those of Skiplens.
        size: Measured at this size if the row's own is too large for it,
        grows: and then its time multiplied by (row's size / this size) to this power.
        share: Which part of the row's work it does; its time is divided by it.
    """

    module: str
    function: str
    arguments: dict = field(default_factory=dict)
    warm: dict = field(default_factory=dict)
    untimed: int = 0
    repeats: int = 3
    environment: str = "main"
    keep: str | None = None
    same: bool = True
    size: int | None = None
    grows: float = 1.0
    share: float = 1.0

    def at(self, axis, size):
        """The same way with a size among its arguments."""
        return replace(self, arguments={**self.arguments, axis: size})

    def on(self, device):
        """The same way on a device, or None where it does not go there."""
        if device == "cpu":
            return self
        if self.environment == "neural_tangents":
            return None
        takes = inspect.signature(getattr(importlib.import_module(self.module), self.function)).parameters
        return replace(self, arguments={**self.arguments, "device": device}) if "device" in takes else None

    def quick(self):
        """One call, with nothing before it."""
        return replace(self, repeats=1, untimed=0, warm={}, size=None)


def runs_here(environment):
    """Whether the packages of an environment can be used in this process."""
    if environment == "torch" and (PEERS / "torch").exists():
        sys.path.append(str(PEERS / "torch"))
        return True
    return environment == "main"


def measured(way, values=None):
    """Median times and the memory that the first timed call adds; the numbers to compare go to the file `values`."""
    module = importlib.import_module(way.module)
    prepare, on_gpu = getattr(module, way.function), way.arguments.get("device", "cpu") != "cpu"
    if way.warm:
        prepare(**{**way.arguments, **way.warm})()
    action = prepare(**way.arguments)
    for _ in range(way.untimed):
        action()
    gc.collect()
    clock = Clock(_synchronise if on_gpu else None)
    result, added = (_on_gpu if on_gpu else added_bytes)(lambda: clock.timed(action))
    if values is not None:
        np.save(values, np.asarray(result if way.keep is None else getattr(module, way.keep)(result)))
    del result
    for _ in range(way.repeats - 1):
        clock.timed(action)
    return {**clock.medians(), "added_bytes": added, "process_bytes": resident_bytes("VmHWM")}


def measured_apart(way, values=None):
    """The same in a process of its own, with one thread."""
    python = PEERS / "neural_tangents" / "bin" / "python" if way.environment == "neural_tangents" else sys.executable
    paths = [str(PEERS / "torch")] * (way.environment == "torch") + [os.environ.get("PYTHONPATH", "")]
    one = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    apart = {**os.environ, **one, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "TF_CPP_MIN_LOG_LEVEL": "3"}
    request = json.dumps({"way": asdict(way), "values": None if values is None else str(values)})
    command = [str(python), "-W", "ignore", str(HERE / "ways.py"), request]
    done = subprocess.run(command, env=apart, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{way.module}.{way.function}({way.arguments}) failed:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def _on_gpu(action):
    import torch

    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    result = action()
    torch.cuda.synchronize()
    return result, torch.cuda.max_memory_allocated() - before


def _synchronise():
    import torch

    torch.cuda.synchronize()


def main():
    request = json.loads(sys.argv[1])
    way = Way(**request["way"])
    if way.environment != "neural_tangents":
        import torch

        torch.set_num_threads(1)
    print(json.dumps(measured(way, request["values"])))


if __name__ == "__main__":
    main()
