"""What a forecast takes: `python -m benchmarks.trainability.timing`, its time over that of as many training steps.

A forecast with a cost of 70 and 70 steps of a plain training loop with Adam take turns, on the same network, batches of
64 and one thread; the median of the ratios counts.
"""

import statistics
import time

import torch

import skiplens as sl
from benchmarks.trainability.networks import NETWORKS
from benchmarks.trainability.searches import make_optimizer, take_step
from benchmarks.trainability.tasks import task
from benchmarks.trainability.train import build

COST, REPEATS, RATE = 70, 3, 1e-3
CHOSEN = (
    "plain_mlp(6, relu)",
    "plain_mlp(40, relu)",
    "residual_mlp(16)",
    "plain_conv(10)",
    "residual_conv(10)",
    "mixer(6)",
    "transformer(6)",
    "recurrent(gated)",
)


def ratio(name: str) -> tuple[float, float]:
    """Seconds of the steps, and those of the forecast over them."""
    network = NETWORKS[name]
    work, ratios, plain = task(network.task), [], []
    for _ in range(REPEATS):
        model = build(network, 0)
        stepper, batches = make_optimizer("adam", model, RATE), work.batches(0)
        began = time.perf_counter()
        for _ in range(COST):
            take_step(model, stepper, next(batches))
        between = time.perf_counter()
        sl.forecast(build(network, 0), (work.inputs, work.targets), cost=COST)
        plain.append(between - began)
        ratios.append((time.perf_counter() - between) / plain[-1])
    return statistics.median(plain), statistics.median(ratios)


def main() -> None:
    """A line for each network."""
    torch.set_num_threads(1)
    print("| network | 70 steps (s) | forecast / steps |\n|---|---:|---:|")
    for name in CHOSEN:
        seconds, found = ratio(name)
        print(f"| `{name}` | {seconds:.2f} | {found:.2f} |", flush=True)


if __name__ == "__main__":
    main()
