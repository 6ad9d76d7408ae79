"""How much more than one matrix product does an infinite-width Gram matrix cost, at any depth?

    python benchmarks/infinite_width_gram.py [--samples 2000] [--features 784] [--threads 1]
    python benchmarks/infinite_width_gram.py --neural-tangents PYTHON   # an environment that has it: three more rows

Prints a table and, as the last line, the same numbers as JSON with the environment. Times are the best of several runs
after one that builds the tables; the time to build them is a column of its own. Errors are relative to equal inputs, in
float32 against float64, and in float64 against the layer-by-layer recursion, on the first 150 inputs.
"""

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch

from skiplens.kernels import DenseNetKernel, InfiniteWidthKernel, ResNetKernel

CASES: dict[str, InfiniteWidthKernel] = {
    "resnet L=10": ResNetKernel(10, 2, 10**-0.5),
    "resnet L=100": ResNetKernel(100, 2, 0.1),
    "resnet L=1000": ResNetKernel(1000, 2, 1000**-0.5),
    "resnet L=1000, α=1": ResNetKernel(1000, 2, 1.0, normalise=True),
    "resnet L=10000": ResNetKernel(10_000, 2, 0.01),
    "densenet L=100": DenseNetKernel(100),
}

NEURAL_TANGENTS = """
import sys, time, warnings
warnings.simplefilter("ignore")
import jax, numpy as np
from neural_tangents import stax
depth, samples, features = map(int, sys.argv[1:])
a = depth ** -0.5
branch = stax.serial(stax.Dense(1, a**0.5), stax.Relu(), stax.Dense(1, (2 * a) ** 0.5))
block = stax.serial(stax.FanOut(2), stax.parallel(stax.Identity(), branch), stax.FanInSum())
kernel = stax.serial(stax.Dense(1), stax.repeat(block, depth))[2]
ntk = jax.jit(lambda x: kernel(x, None, "ntk"))
x = np.random.default_rng(0).normal(size=(samples, features)).astype("float32")
ntk(x).block_until_ready()
walls, cpus = [], []
for _ in range(3):
    wall, cpu = time.perf_counter(), time.process_time()
    ntk(x).block_until_ready()
    walls.append(time.perf_counter() - wall)
    cpus.append(time.process_time() - cpu)
print(min(walls), min(cpus))
"""


def best_times(action, repetitions=7):
    """Least wall and CPU seconds of several runs."""
    walls, cpus = [], []
    for _ in range(repetitions):
        wall, cpu = time.perf_counter(), time.process_time()
        action()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return min(walls), min(cpus)


def inputs(samples, features):
    return torch.randn(samples, features, generator=torch.Generator().manual_seed(0))


def deviation(kernel, actual, expected, X):
    size = kernel.diagonal(X.double()).sqrt()
    return float(((actual.double() - expected).abs() / torch.outer(size, size)).max())


def errors(kernel, X):
    X = X[:150]
    exact = replace(kernel, evaluation="recursion").ntk(X.double())
    return deviation(kernel, kernel.ntk(X), exact, X), deviation(kernel, kernel.ntk(X.double()), exact, X)


def measure(name, kernel, X, product):
    start = time.perf_counter()
    kernel.ntk(X[:2])
    building = time.perf_counter() - start
    kernel.ntk(X)
    wall, cpu = best_times(lambda: kernel.ntk(X))
    single, double = errors(kernel, X)
    child = subprocess.run([sys.executable, __file__, "--memory-of", name, *sizes(X)], check=True, capture_output=True)
    return {
        "case": name,
        "wall_s": wall,
        "cpu_s": cpu,
        "wall_over_product": wall / product[0],
        "cpu_over_product": cpu / product[1],
        "table_s": building,
        "peak_memory_over_result": float(child.stdout),
        "error_float32": single,
        "error_float64": double,
    }


def sizes(X):
    return ["--samples", str(X.shape[0]), "--features", str(X.shape[1]), "--threads", str(torch.get_num_threads())]


def memory_of(kernel, X):
    """Growth of the resident memory at its peak during one Gram matrix, over the size of the result (Linux)."""
    kernel.ntk(X[:100])  # what the first call loads is not part of the matrix
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = resident("VmRSS")
    K = kernel.ntk(X)
    return (resident("VmHWM") - before) * 1024 / (K.numel() * K.element_size())


def resident(field):
    """KiB of a field of this process's status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


def neural_tangents(python, depth, X):
    run = subprocess.run(
        [python, "-c", NEURAL_TANGENTS, str(depth), *map(str, X.shape)], capture_output=True, text=True, check=True
    )
    wall, cpu = map(float, run.stdout.split())
    return {"case": f"neural-tangents L={depth}", "wall_s": wall, "cpu_s": cpu}


def show(rows):
    columns = list(dict.fromkeys(key for row in rows for key in row))
    print("  ".join(f"{column:>24}" for column in columns))
    for row in rows:
        cells = (row.get(column, "") for column in columns)
        print("  ".join(f"{cell:>24.4g}" if isinstance(cell, float) else f"{cell:>24}" for cell in cells))


def environment():
    return {
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


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--features", type=int, default=784)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--neural-tangents", metavar="PYTHON", help="a Python that can import neural_tangents")
    parser.add_argument("--memory-of", metavar="CASE", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = arguments()
    torch.set_num_threads(options.threads)
    X = inputs(options.samples, options.features)
    if options.memory_of:
        print(memory_of(CASES[options.memory_of], X))
        return
    X @ X.T
    product = best_times(lambda: X @ X.T)
    rows = [{"case": "matrix product", "wall_s": product[0], "cpu_s": product[1]}]
    rows += [measure(name, kernel, X, product) for name, kernel in CASES.items()]
    if options.neural_tangents:
        rows += [neural_tangents(options.neural_tangents, depth, X) for depth in (10, 100)]
    show(rows)
    print(json.dumps({"environment": environment(), "samples": len(X), "features": X.shape[1], "rows": rows}))


if __name__ == "__main__":
    main()
