"""What does a Gram matrix cost that does not fit into memory, over Dask workers into a chunked store?

    python benchmarks/gram_store.py [--samples 15000 30000 60000] [--workers 1 2 4] [--folder FOLDER] [--json FILE]

Tangent kernel of MNIST (float32, 784 features, 10 residual blocks) in symmetric tiles, each computed once and written
with its mirror image into a zarr store by one of some Dask workers with one thread each. Every call is interrupted
after a third of its tiles and given again: the second one goes on. Some rows and columns of the store are compared
with the kernel itself. CPU seconds and memory are those of all processes together: workers, scheduler, and who asks.
The efficiency of n workers is the time of one worker over n times theirs, where one worker was asked for too; beyond
the cores of the machine it falls by itself.
"""

import argparse
import contextlib
import json
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path

import torch
from measuring import environment, exponent, show

from skiplens import data
from skiplens.kernels.architectures import ResNetKernel
from skiplens.sweeps.dask_executor import DaskCluster
from skiplens.sweeps.executor import ThisProcess
from skiplens.sweeps.gram_tiles import spread_gram

KERNEL = ResNetKernel(10, 2, 10**-0.5, trained="all")
LIMIT, TILE_BUDGET, CHECKED = 4 * 2**30, 2**29, 16
TICKS = os.sysconf("SC_CLK_TCK")


class InterruptedError(Exception):
    """What stands for a kill."""


def family(root=None):
    """This process and all its descendants."""
    found = [root or os.getpid()]
    for process in found:
        for thread in Path(f"/proc/{process}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                found += map(int, thread.read_text().split())
    return found


def resident_bytes(processes):
    """Memory of their own of all of them, and the files that they have mapped, which they share, once (Linux)."""
    own, mapped = 0, [0]
    for process in processes:
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{process}/status").read_text().splitlines()
            fields = {line.partition(":")[0]: line.split()[1] for line in lines if line.startswith("Rss")}
            own += int(fields.get("RssAnon", 0)) * 1024
            mapped.append(int(fields.get("RssFile", 0)) * 1024)
    return own + max(mapped)


def cpu_seconds(processes):
    """User and system time of all of them."""
    total = 0
    for process in processes:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total / TICKS


class Watch(threading.Thread):
    """Looks at the memory of all processes five times a second."""

    def __init__(self):
        super().__init__(daemon=True)
        self.peak, self.over = 0, threading.Event()

    def run(self):
        while not self.over.wait(0.2):
            self.peak = max(self.peak, resident_bytes(family()))


@contextlib.contextmanager
def dask_workers(count):
    """An executor with so many workers of one thread."""
    from distributed import LocalCluster

    os.environ["OMP_NUM_THREADS"] = "1"
    with LocalCluster(n_workers=count, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        yield DaskCluster(cluster.scheduler_address)


def interrupted_and_resumed(executor, X, out):
    """The store, and how many tiles each of two calls computed: the first is stopped after a third of them."""
    steps = []

    def stop(label, done, total):
        steps.append(done)
        if done >= max(1, total // 3):
            raise InterruptedError

    with contextlib.suppress(InterruptedError):
        spread_gram(executor, KERNEL, X, out, memory=TILE_BUDGET, progress=stop)
    later = []

    def note(label, done, total):
        later.append(done)

    store = spread_gram(executor, KERNEL, X, out, memory=TILE_BUDGET, progress=note)
    return store, len(steps) - 1, later[-1]


def error(store, X):
    """Largest deviation of some rows and columns from the kernel, relative to the largest entry."""
    first, middle, last = (slice(start, start + CHECKED) for start in (0, len(X) // 2, len(X) - CHECKED))
    strips = [(store[first], first), (store[last], last), (store[:, middle].T, middle)]
    deviations = []
    for found, chosen in strips:  # whole chunks are read for a row, so few rows of few chunks
        expected = KERNEL.ntk(X[chosen].double(), X.double())
        deviations.append(float((torch.from_numpy(found.copy()) - expected).abs().max() / expected.abs().max()))
    return max(deviations)


def measured(executor, X, folder):
    out, watch = folder / f"gram-{len(X)}.zarr", Watch()
    before, began = cpu_seconds(family()), time.perf_counter()
    watch.start()
    store, first, second = interrupted_and_resumed(executor, X, out)
    wall, cpu = time.perf_counter() - began, cpu_seconds(family()) - before
    watch.over.set()
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    row = {"samples": len(X), "tiles": first + second, "tiles_after_interruption": second, "wall_s": wall, "cpu_s": cpu}
    row |= {"peak_gib": watch.peak / 2**30, "store_gib": size / 2**30, "deviation": error(store, X)}
    shutil.rmtree(out)
    if row["deviation"] > 1e-5:
        raise SystemExit(f"The store deviates by {row['deviation']:.2g}; its time would mean nothing.")
    return row | {"within_4_gib": watch.peak <= LIMIT}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, nargs="+", default=[15_000, 30_000, 60_000])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--folder", type=Path, help="on a disk with room for the largest matrix")
    parser.add_argument("--quick", action="store_true", help="some embedded images, no workers")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def main():
    options = arguments()
    torch.set_num_threads(1)
    images = data.sample() if options.quick else data.get("mnist")
    X = images.images.flatten(1).float() / 255
    sizes = [300, 600] if options.quick else options.samples
    if options.folder is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        room = shutil.disk_usage(folder).free
        sizes = [size for size in sizes if 1.1 * 4 * size**2 < room]
        rows = []
        for count in [1] if options.quick else options.workers:
            with contextlib.nullcontext(ThisProcess()) if options.quick else dask_workers(count) as executor:
                rows += [{"workers": count, **measured(executor, X[:size], Path(folder))} for size in sizes]
    alone = {row["samples"]: row["wall_s"] for row in rows if row["workers"] == 1}
    for row in rows:
        row["efficiency"] = alone.get(row["samples"], float("nan")) / (row["workers"] * row["wall_s"])
    show(rows)
    last = [row for row in rows if row["workers"] == rows[-1]["workers"]]
    growth = {key: exponent(sizes, [row[key] for row in last]) for key in ("wall_s", "cpu_s", "peak_gib")}
    record = {"environment": environment(), "rows": rows, "exponents": growth}
    if options.json:
        options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
