"""Run every method on every network: `python -m benchmarks.trainability.measure [--methods …] [--tasks …] [--limit N]`.

Methods are the forecast at several costs, the scores of `proxies` and the searches of `searches`. Each sees the network
as it starts with a seed and mini-batches in another order than the training that it is judged by. Rows are kept in
`results/methods.csv`; the same command goes on after an interruption, and tries again what failed. Scores that know no
optimizer have `any`; of every score more is better.
"""

import argparse
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.trainability.networks import NETWORKS
from benchmarks.trainability.pool import Row, append_rows, read_rows, shared_out
from benchmarks.trainability.proxies import PROXIES
from benchmarks.trainability.searches import GRID_SEARCHES, RANGE_TESTS, grid_losses, ramp
from benchmarks.trainability.tasks import TASKS, task
from benchmarks.trainability.train import RATES, SEEDS, build
from skiplens import forecast

STORED = Path(__file__).parent / "results" / "methods.csv"
COLUMNS = ("method", "network", "optimizer", "seed", "score", "word", "loss", "low", "high", "rate", "cost")
COSTS = {f"forecast, {cost} steps": cost for cost in (0, 20, 70, 200)}
METHODS = (*COSTS, *PROXIES, *GRID_SEARCHES, *RANGE_TESTS)
ANY = "any"
OTHER_BATCHES = 100
"""Added to a seed, so that no method sees the mini-batches of the training it is judged by."""


@dataclass(frozen=True)
class Job:
    """What is measured together: one start of a network, so that searches share their trainings."""

    network: str
    optimizer: str
    seed: int
    methods: tuple[str, ...]


def jobs_of(
    methods: Iterable[str], networks: Iterable[str], done: Iterable[Row], seeds: Iterable[int] = SEEDS
) -> list[Job]:
    """What is wanted and not done, network by network."""
    have = {(row["method"], row["network"], row["optimizer"], int(row["seed"])) for row in done}
    asked, jobs = list(methods), []
    for network, seed, optimizer in product(networks, seeds, (ANY, *RATES)):
        own = [method for method in asked if (method in PROXIES) == (optimizer == ANY)]
        left = tuple(method for method in own if (method, network, optimizer, seed) not in have)
        if left:
            jobs.append(Job(network, optimizer, seed, left))
    return jobs


def measured(job: Job, device: str = "cpu") -> list[Row]:
    """A row for each method; one that ends in an error has no score and says so in place of the word."""
    start, rows = Start(job, device), []
    for method in job.methods:
        row: Row = {"method": method, "network": job.network, "optimizer": job.optimizer, "seed": job.seed}
        try:
            row |= start.told(method)
        except Exception as error:  # the others still count
            row["word"] = f"failed: {type(error).__name__}: {error}"[:200].replace("\n", " ")
        rows.append({column: _written(row.get(column, "")) for column in COLUMNS})
    return rows


class Start:
    """One start of a network, its data, and the trainings that searches share."""

    def __init__(self, job: Job, device: str) -> None:
        self.job, self.network = job, NETWORKS[job.network]
        work = task(self.network.task)
        self.task = replace(work, inputs=work.inputs.to(device), targets=work.targets.to(device))
        self.model = build(self.network, job.seed).to(device)
        self.batches = job.seed + OTHER_BATCHES

    @cached_property
    def grid_losses(self) -> NDArray[np.float64]:
        return grid_losses(self.network, self.task, self.job.optimizer, self.job.seed, self.batches)

    @cached_property
    def ramp(self) -> tuple[list[float], list[float]]:
        return ramp(self.model, self.task, self.job.optimizer, self.batches)

    def told(self, method: str) -> Row:
        """What a method says about the network."""
        if method in PROXIES:
            proxy = PROXIES[method]
            return {"score": proxy.score(self.model, *next(self.task.batches(self.batches))), "cost": proxy.cost}
        if method in COSTS:
            return self.forecast(COSTS[method])
        if method in GRID_SEARCHES:
            found = GRID_SEARCHES[method](tuple(RATES[self.job.optimizer]), self.grid_losses)
        else:
            found = RANGE_TESTS[method](*self.ramp)
        return {"score": found.score, "rate": found.rate, "cost": found.cost}

    def forecast(self, cost: int) -> Row:
        """Ours; of its score less is better, of those here more is."""
        data = self.task.inputs, self.task.targets  # of which each step takes 64 samples, as the truth does
        optimizer, seed = self.job.optimizer, self.batches
        told = forecast(self.model, data, loss="cross_entropy", optimizer=optimizer, cost=cost, seed=seed)
        low, high = told.interval
        named = {name: getattr(told, name) for name in ("word", "loss", "rate", "cost")}
        return named | {"score": -told.score, "low": low, "high": high}


def _written(value: object) -> object:
    return f"{value:.7g}" if isinstance(value, float) else "" if value is None else value


def _number(text: str) -> float:
    return float(text) if text else math.nan


def load(file: Path = STORED) -> list[Row]:
    """The rows that are stored, with numbers; NaN where there is none."""
    numbers = ("score", "loss", "low", "high", "rate", "cost")
    return [
        row | {"seed": int(row["seed"])} | {column: _number(row[column]) for column in numbers}
        for row in read_rows(file)
    ]


def succeeded(row: Row) -> bool:
    """Whether a method came to its end."""
    return not row["word"].startswith("failed")


def main() -> None:
    """Measure what is not stored yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--methods",
        nargs="*",
        default=[method for method in METHODS if method not in COSTS],
        help="names or their beginnings",
    )
    parser.add_argument("--tasks", nargs="*", default=list(TASKS))
    parser.add_argument("--seeds", type=int, nargs="*", default=list(SEEDS))
    parser.add_argument("--limit", type=int, help="only so many networks of each task")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--stored", type=Path, default=STORED)
    settings = parser.parse_args()
    methods = [method for method in METHODS if any(method.startswith(name) for name in settings.methods)]
    if not methods:
        raise SystemExit(f"No method is called {' or '.join(settings.methods)}. There are: {', '.join(METHODS)}.")
    networks = []
    for name in settings.tasks:
        task(name)  # one process reads the images and stores them for all
        networks += [n.name for n in NETWORKS.values() if n.task == name][: settings.limit]
    jobs = jobs_of(methods, networks, filter(succeeded, read_rows(settings.stored)), settings.seeds)
    found = shared_out(partial(measured, device=settings.device), jobs, settings.processes)
    for number, rows in enumerate(append_rows(settings.stored, COLUMNS, found, succeeded), 1):
        failed = [f"{row['method']} {row['word']}" for row in rows if not succeeded(row)]
        start = ", ".join(str(rows[0][column]) for column in COLUMNS[1:4])
        print(f"{number} of {len(jobs)}: {start}: {'; '.join(failed) or f'{len(rows)} methods'}", flush=True)


if __name__ == "__main__":
    main()
