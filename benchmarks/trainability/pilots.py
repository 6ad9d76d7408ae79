"""Run the pilot of the forecast on every network: `python -m benchmarks.trainability.pilots OUT [--processes 16]`.

The networks start as in `train.py` and see their samples in another order. What each pilot saw, and the readings of the
start, are kept in OUT, one file a network; the same command goes on after an interruption, and at its end joins them.
"""

import argparse
import gzip
import json
import random
import time
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from benchmarks.trainability.networks import NETWORKS
from benchmarks.trainability.tasks import BATCH, TASKS, task
from benchmarks.trainability.train import RATES, SEEDS, STEPS, build
from skiplens.base.progress import silent
from skiplens.base.randomness import Randomness
from skiplens.graph.batch import as_batch
from skiplens.signal.layers import layer_states
from skiplens.trainability.features import start_features
from skiplens.trainability.forecast import READINGS, TrainingLoss
from skiplens.trainability.optimizers import optimizer_choice
from skiplens.trainability.pilot import Miniature, Pilot, Trial, run_pilot
from skiplens.training.source import source_of

COSTS = (20, 70, 200)
OTHER_BATCHES = 100
STORED = Path(__file__).parent / "results" / "pilots.json.gz"


def piloted(name: str, folder: Path, costs: tuple[int, ...] = COSTS, seeds: tuple[int, ...] = SEEDS) -> str:
    """Pilots of one network, in a file."""
    file = folder / f"{name}.json"
    if file.exists():
        return f"{name} was there"
    torch.set_num_threads(1)
    network, began, found = NETWORKS[name], time.perf_counter(), {}
    for seed in seeds:
        model = build(network, seed)
        source = small(network.task, "adam", COSTS[0], seed).source
        first = as_batch(next(source.batches(0)))
        loss = TrainingLoss(None)
        found[f"start {seed}"] = start_features(model, first, layer_states(model, first))
        for optimizer in RATES:
            for cost in costs:
                clock = time.perf_counter()
                choice = optimizer_choice(optimizer)
                parts = small(network.task, optimizer, cost, seed)
                pilot = run_pilot(model, parts, loss, choice, cost=parts.cost, seed=seed, progress=silent)
                trials = [(trial.rate, trial.losses, trial.diverged) for trial in pilot.trials]
                key = f"{optimizer} {seed} {cost}"
                found[key] = {
                    "trials": trials,
                    "cost": pilot.cost,
                    "seconds": time.perf_counter() - clock,
                }
    file.write_text(json.dumps(found))
    return f"{name}: {time.perf_counter() - began:.1f} s"


@cache
def small(name: str, optimizer: str, cost: int, seed: int = 0) -> Miniature:
    """The training in small that a pilot is, on the task of that name."""
    work = task(name)
    source = source_of((work.inputs, work.targets), BATCH, Randomness(seed + OTHER_BATCHES), torch.device("cpu"))
    rates, epoch = len(optimizer_choice(optimizer).rates), source.steps_per_epoch
    first = as_batch(next(source.batches(0)))
    return Miniature(source, first, steps=STEPS, cost=cost - READINGS, rates=rates, epoch=epoch)


def stored(file: Path = STORED) -> dict[str, dict[str, Any]]:
    """What is stored, by network: pilots by optimizer, seed and cost, and the readings of its starts."""
    kept = json.loads(gzip.decompress(file.read_bytes()))
    return {
        name: {key: _pilot(values) if "trials" in values else values for key, values in own.items()}
        for name, own in kept.items()
    }


def join(folder: Path, file: Path = STORED) -> int:
    """Put all pilots of a folder into one file, losses to five digits; of how many networks."""
    found = {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
    for own in found.values():
        for values in own.values():
            for trial in values.get("trials", ()):
                trial[1] = [float(f"{loss:.5g}") for loss in trial[1]]
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(gzip.compress(json.dumps(found).encode(), mtime=0))
    return len(found)


def _pilot(values: dict) -> Pilot:
    trials = tuple(Trial(rate, losses, diverged) for rate, losses, diverged in values["trials"])
    return Pilot(trials, values["cost"])


def main() -> None:
    """Pilot what was not piloted yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--costs", type=int, nargs="*", default=list(COSTS))
    parser.add_argument("--seeds", type=int, nargs="*", default=list(SEEDS))
    parser.add_argument("--tasks", nargs="*", default=list(TASKS))
    settings = parser.parse_args()
    settings.out.mkdir(parents=True, exist_ok=True)
    wanted = [name for name, network in NETWORKS.items() if network.task in settings.tasks]
    random.Random(0).shuffle(wanted)  # what was interrupted has some of all families
    with ProcessPoolExecutor(settings.processes, get_context("spawn")) as pool:
        work = partial(piloted, folder=settings.out, costs=tuple(settings.costs), seeds=tuple(settings.seeds))
        for said in pool.map(work, wanted):
            print(said, flush=True)
    print(f"Pilots of {join(settings.out)} networks are in {STORED}")


if __name__ == "__main__":
    main()
