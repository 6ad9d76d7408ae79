"""How much more than one float32 matrix product does an infinite-width Gram matrix cost on a GPU?

    python benchmarks/infinite_width_gram_gpu.py [--json FILE]

Times are medians of CUDA events after a run that builds the tables. Before it times anything the script compares a
corner of the Gram matrix with the layer-by-layer recursion in float64.
"""

import argparse
import json
import statistics
from dataclasses import replace
from pathlib import Path

import torch
from infinite_width_gram import environment

from skiplens.kernels.architectures import ResNetKernel

FEATURES, REPETITIONS, CORNER = 784, 5, 200
KERNEL = ResNetKernel(depth=100, branch_depth=2, branch_scale=0.1)


def milliseconds(action) -> float:
    """Median time on the GPU."""
    action()
    times = []
    for _ in range(REPETITIONS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        action()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def error(X: torch.Tensor) -> float:
    """Largest deviation of a corner from the float64 recursion, relative to the largest entry."""
    exact = replace(KERNEL, evaluation="recursion").ntk(X[:CORNER].double())
    return float((KERNEL.ntk(X[:CORNER]).double() - exact).abs().max() / exact.abs().max())


def product_milliseconds(X: torch.Tensor) -> float:
    """The matrix product alone, into memory that is there already."""
    out = torch.empty(len(X), len(X), device="cuda")
    return milliseconds(lambda: torch.mm(X, X.T, out=out))


def measured(samples: int) -> dict[str, float]:
    X = torch.randn(samples, FEATURES, device="cuda", generator=torch.Generator("cuda").manual_seed(0))
    deviation = error(X)
    assert deviation < 1e-5, f"the two evaluations differ by {deviation:.2g}: nothing is timed"
    product = product_milliseconds(X)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    kernel = milliseconds(lambda: KERNEL.ntk(X))
    peak = (torch.cuda.max_memory_allocated() - before) / (4 * samples**2)
    return {
        "samples": samples,
        "product_ms": round(product, 1),
        "kernel_ms": round(kernel, 1),
        "kernel_over_product": round(kernel / product, 2),
        "peak_memory_over_result": round(peak, 2),
        "error": deviation,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the numbers here too")
    options = parser.parse_args()
    rows = [measured(samples) for samples in (10_000, 20_000, 50_000)]
    result = {
        "environment": {**environment(), "device": torch.cuda.get_device_name(), "cuda": torch.version.cuda},
        "kernel": "tangent kernel, 100 residual blocks, 2 matrices per branch, scale 0.1",
        "features": FEATURES,
        "dtype": "float32",
        "timing": f"CUDA events, median of {REPETITIONS}",
        "rows": rows,
    }
    for row in rows:
        print(row)
    text = json.dumps(result, indent=1)
    print(text)
    if options.json:
        options.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
