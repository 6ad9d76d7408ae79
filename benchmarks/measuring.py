"""How every benchmark measures: median times, peak memory, the machine, and how a cost grows.

Only the standard library is imported at the top: peers run this file in environments that have no torch.
"""

import datetime
import math
import os
import platform
import statistics
import sys
import time
from pathlib import Path


class Clock:
    """Wall and CPU seconds of calls, over all threads of this process."""

    def __init__(self, synchronise=None):
        self.walls, self.cpus, self.synchronise = [], [], synchronise

    def timed(self, action):
        """What `action` returns."""
        wall, cpu = time.perf_counter(), time.process_time()
        result = action()
        if self.synchronise is not None:
            self.synchronise()
        self.walls.append(time.perf_counter() - wall)
        self.cpus.append(time.process_time() - cpu)
        return result

    def medians(self):
        """Of all calls so far."""
        return {"wall_s": statistics.median(self.walls), "cpu_s": statistics.median(self.cpus), "runs": len(self.cpus)}


def median_seconds(action, repeats, synchronise=None):
    """CPU seconds, or wall seconds where there is something to wait for, of an action after its first call."""
    action()
    clock = Clock(synchronise)
    for _ in range(repeats):
        clock.timed(action)
    return clock.medians()["cpu_s" if synchronise is None else "wall_s"]


def added_bytes(action):
    """What `action` returns, and how far the resident memory grew at its peak while it ran (Linux)."""
    forget = Path("/proc/self/clear_refs")
    if not forget.exists():
        return action(), math.nan
    forget.write_text("5")  # forget the peak so far
    before = resident_bytes("VmRSS")
    result = action()
    return result, resident_bytes("VmHWM") - before


def resident_bytes(field):
    """A field of this process's status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024


def exponent(sizes, costs):
    """The slope of log cost over log size, by least squares; None where it means nothing."""
    pairs = [(math.log(size), math.log(cost)) for size, cost in zip(sizes, costs, strict=True) if cost and cost > 0]
    if len(pairs) < 2 or len(pairs) < len(sizes):
        return None
    return statistics.linear_regression(*zip(*pairs, strict=True)).slope


def environment(device="cpu"):
    """What the numbers depend on: versions, processor, cores, threads, load, GPU."""
    import torch

    gpu = {} if device == "cpu" else {"device": torch.cuda.get_device_name(), "cuda": torch.version.cuda}
    return {
        **gpu,
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "machine": platform.machine(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 1),
    }


def processor():
    """The model of the processor where Linux tells it."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def machine_limits(side=1536, mebibytes=256, device="cpu"):
    """What one thread, or a GPU, can do: operations a second in matrix products, bytes a second in a copy."""
    import torch

    synchronise = None if device == "cpu" else torch.cuda.synchronize
    limits = {}
    for name, dtype in (("float32", torch.float32), ("float64", torch.float64)):
        A = torch.randn(side, side, dtype=dtype, device=device)
        seconds = median_seconds(lambda A=A: A @ A, 5, synchronise)
        limits[f"{name}_operations_per_s"] = 2 * side**3 / seconds
    source = torch.ones(mebibytes * 2**18, device=device)
    target = torch.empty_like(source)
    limits["bytes_per_s"] = 2 * mebibytes * 2**20 / median_seconds(lambda: target.copy_(source), 5, synchronise)
    return limits


def show(rows):
    """Print rows of a table, one line each."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    print("  ".join(f"{column:>24}" for column in columns))
    for row in rows:
        cells = (row.get(column, "") for column in columns)
        print("  ".join(f"{cell:>24.4g}" if isinstance(cell, float) else f"{cell!s:>24}" for cell in cells))
    sys.stdout.flush()
