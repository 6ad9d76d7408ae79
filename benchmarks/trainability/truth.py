"""What training really gave, small enough to be kept: `python -m benchmarks.trainability.truth RUNS` joins all files.

Of each run the mean loss of every ten steps is kept, to three digits; what is infinite diverged.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.trainability.networks import NETWORKS
from benchmarks.trainability.tasks import TASKS, task
from benchmarks.trainability.train import RATES, windows

STORED = Path(__file__).parent / "results" / "truth.npz"


@dataclass(frozen=True)
class Run:
    """One network, trained once."""

    network: str
    family: str
    task: str
    optimizer: str
    seed: int
    rate: float
    curve: np.ndarray  # mean loss of each ten steps


def load(stored: Path = STORED) -> list[Run]:
    """Every run that was stored."""
    kept = np.load(stored)
    runs = []
    for key in kept.files:
        optimizer, _, name = key.partition("-")
        if name not in NETWORKS:  # the environment
            continue
        network = NETWORKS[name]
        for seed, curves in enumerate(np.exp(kept[key].astype(np.float64))):
            runs += [
                Run(name, network.family, network.task, optimizer, seed, float(rate), curve)
                for rate, curve in zip(RATES[optimizer], curves, strict=True)
            ]
    return runs


def join(folder: Path, stored: Path = STORED) -> int:
    """Put all that `train.py` wrote into one file; how many networks times optimizers that are."""
    curves = {}
    for file in sorted(folder.glob("*-*.npy")):
        with np.errstate(divide="ignore", over="ignore"):
            curves[file.stem] = np.log(windows(np.load(file).astype(np.float64))).astype(np.float16)
    stored.parent.mkdir(exist_ok=True)
    environment = np.array((folder / "environment.json").read_text())
    guesses = np.array(json.dumps({name: task(name).guess for name in TASKS}))
    np.savez_compressed(stored, environment=environment, guesses=guesses, **curves)
    return len(curves)


def guesses(stored: Path = STORED) -> dict[str, float]:
    """The loss of the best constant answer on each task."""
    return json.loads(str(np.load(stored)["guesses"]))


def environment(stored: Path = STORED) -> dict[str, str]:
    """What the stored numbers depend on."""
    return json.loads(str(np.load(stored)["environment"]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path)
    print(f"{join(parser.parse_args().runs)} networks with their optimizer are in {STORED}")
