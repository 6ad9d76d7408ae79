"""Run the pilot of the forecast on every network: `python -m benchmarks.trainability.pilots OUT [--processes 16]`.

The networks start as in `train.py` and see their samples in another order. What each pilot saw, and the readings of the
start, are kept in OUT, one file a network; the same command goes on after an interruption. `fit.py` needs both.
"""

import argparse
import json
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch

from benchmarks.trainability.networks import NETWORKS
from benchmarks.trainability.tasks import BATCH, TASKS, task
from benchmarks.trainability.train import RATES, SEEDS, build
from skiplens.base.progress import silent
from skiplens.base.randomness import Randomness
from skiplens.graph.batch import as_batch
from skiplens.signal.layers import layer_states
from skiplens.task.measure import measure_task
from skiplens.trainability.forecast import TrainingLoss
from skiplens.trainability.optimizers import optimizer_choice
from skiplens.trainability.pilot import Pilot, Trial, run_pilot
from skiplens.trainability.start import start_features
from skiplens.training.source import source_of

COSTS = (20, 70, 200)
OTHER_BATCHES = 100


def piloted(name: str, folder: Path) -> str:
    """All pilots of one network, in a file."""
    file = folder / f"{name}.json"
    if file.exists():
        return f"{name} was there"
    torch.set_num_threads(1)
    network, began, found = NETWORKS[name], time.perf_counter(), {}
    work = task(network.task)
    for seed in SEEDS:
        model = build(network, seed)
        source = source_of(
            (work.inputs, work.targets), BATCH, Randomness(seed + OTHER_BATCHES), next(model.parameters()).device
        )
        first = as_batch(next(source.batches(0)))
        told, states, loss = measure_task(model, first), layer_states(model, first), TrainingLoss(None)
        found[f"start {seed}"] = start_features(model, first, loss, told, states)
        for optimizer in RATES:
            for cost in COSTS:
                clock = time.perf_counter()
                choice = optimizer_choice(optimizer)
                pilot = run_pilot(model, source, loss, choice, cost=cost, seed=seed, progress=silent)
                trials = [(trial.rate, trial.losses, trial.diverged) for trial in pilot.trials]
                key = f"{optimizer} {seed} {cost}"
                found[key] = {
                    "trials": trials,
                    "cost": pilot.cost,
                    "explained": pilot.explained,
                    "seconds": time.perf_counter() - clock,
                }
    file.write_text(json.dumps(found))
    return f"{name}: {time.perf_counter() - began:.1f} s"


def load(folder: Path, name: str) -> dict[str, Pilot | dict[str, float]]:
    """The pilots of one network by optimizer, seed and cost, and the readings of its starts."""
    kept = json.loads((folder / f"{name}.json").read_text())
    return {key: _pilot(values) if "trials" in values else values for key, values in kept.items()}


def _pilot(values: dict) -> Pilot:
    trials = tuple(Trial(rate, losses, diverged) for rate, losses, diverged in values["trials"])
    return Pilot(trials, values["cost"], values["explained"])


def main() -> None:
    """Pilot what was not piloted yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--tasks", nargs="*", default=list(TASKS))
    settings = parser.parse_args()
    settings.out.mkdir(parents=True, exist_ok=True)
    wanted = [name for name, network in NETWORKS.items() if network.task in settings.tasks]
    with ProcessPoolExecutor(settings.processes, get_context("spawn")) as pool:
        for said in pool.map(piloted, wanted, [settings.out] * len(wanted)):
            print(said, flush=True)


if __name__ == "__main__":
    main()
