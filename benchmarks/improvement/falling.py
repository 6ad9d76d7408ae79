"""Does a rate that falls to zero at the end help? `python -m benchmarks.improvement.falling OUT.csv --networks …`.

Networks of `benchmarks/trainability`, on which `improve` was developed, are trained with Adam at the rate of their
stored pilot: at a constant rate, and with one that falls linearly to zero over the last quarter, half, or all of the
400 steps. Beside it stands where the best of seven constant rates ended in the stored trainings, from another start.
"""

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.trainability import pilots, truth
from benchmarks.trainability.networks import NETWORKS
from benchmarks.trainability.pool import append_rows, read_rows
from benchmarks.trainability.tasks import task
from benchmarks.trainability.train import LAST, STEPS, cross_entropy
from skiplens.trainability.extrapolation import Situation, advised

COLUMNS = ("network", "rate", "best", "constant", "quarter", "half", "whole")
FALLING = {"constant": 0, "quarter": STEPS // 4, "half": STEPS // 2, "whole": STEPS}
START, ORDER = 77, 11  # seeds that no stored training has


def trained(name: str) -> dict[str, Any]:
    """The row of one network."""
    runs = [run for run in truth.load() if (run.network, run.optimizer, run.seed) == (name, "adam", 0)]
    ends = [float(np.mean(run.curve[-4:])) for run in runs]
    trial = advised(pilots.stored()[name]["adam 0 70"], Situation(truth.guesses()[NETWORKS[name].task], math.inf))
    rate = math.nan if trial is None else trial.rate
    row = {way: f"{end_of(name, rate, last):.4f}" for way, last in FALLING.items()}
    best = min(end for end in ends if math.isfinite(end))
    return {"network": name, "rate": f"{rate:.3g}", "best": f"{best:.4f}", **row}


def end_of(name: str, rate: float, last: int) -> float:
    """The mean loss of the last steps."""
    torch.manual_seed(START)
    model, losses = NETWORKS[name].build().train(), []
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for number, (inputs, targets) in zip(range(STEPS), task(NETWORKS[name].task).batches(ORDER), strict=False):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, (STEPS - number) / last if last else 1.0)
        loss = cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return float(np.mean(losses[-LAST:]))


def main() -> None:
    """Train what is not there yet, then tell how much lower each way ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--networks", nargs="*", default=[], choices=list(NETWORKS), metavar="NAME")
    settings = parser.parse_args()
    done = {row["network"] for row in read_rows(settings.out)}
    batches = ([trained(name)] for name in settings.networks if name not in done)
    for rows in append_rows(settings.out, COLUMNS, batches):
        print(rows[0], flush=True)
    found = read_rows(settings.out)
    for way in list(FALLING)[1:]:
        ratios = [float(row[way]) / float(row["constant"]) for row in found]
        mean = math.exp(float(np.mean(np.log(ratios))))
        print(f"{way}: {mean:.2f} times the loss of a constant rate ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
