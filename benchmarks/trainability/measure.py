"""Run every method on every network: `python -m benchmarks.trainability.measure [--methods …] [--tasks …] [--limit N]`.

Methods are the forecast at several costs, the scores of `proxies` and the searches of `searches`. Each sees the network
as it starts with a seed and mini-batches in another order than the training that it is judged by. Rows are kept in
`results/methods.csv`; the same command goes on after an interruption, and tries again what failed. Scores that know no
optimizer have `any`.
"""

import argparse
import math
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path

from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import skiplens
from benchmarks.trainability.networks import NETWORKS
from benchmarks.trainability.pool import Row, append_rows, read_rows, shared_out
from benchmarks.trainability.proxies import PROXIES
from benchmarks.trainability.searches import SEARCHES
from benchmarks.trainability.tasks import BATCH, TASKS, Task, task
from benchmarks.trainability.train import RATES, SEEDS, build

STORED = Path(__file__).parent / "results" / "methods.csv"
COLUMNS = ("method", "network", "optimizer", "seed", "score", "word", "loss", "low", "high", "rate", "cost")
COSTS = {f"forecast, {cost} steps": cost for cost in (0, 20, 70, 200)}
METHODS = (*COSTS, *PROXIES, *SEARCHES)
ANY = "any"
OTHER_BATCHES = 100
"""Added to a seed, so that no method sees the mini-batches of the training it is judged by."""

Job = tuple[str, str, str, int]
"""Method, network, optimizer, seed: the key of a row."""


def jobs_of(methods: Iterable[str], networks: Iterable[str]) -> list[Job]:
    """All rows that are wanted, network by network."""
    asked = list(methods)
    return [
        (method, network, optimizer, seed)
        for network, seed in product(networks, SEEDS)
        for method in asked
        for optimizer in ((ANY,) if method in PROXIES else RATES)
    ]


def measured(job: Job) -> list[Row]:
    """The row of one job; a method that ends in an error has no score and says so in place of the word."""
    method, name, optimizer, seed = job
    network = NETWORKS[name]
    model, work = build(network, seed), task(network.task)
    row: Row = dict(zip(COLUMNS, job, strict=False))
    try:
        found = run_method(method, model, work, optimizer, seed + OTHER_BATCHES)
    except Exception as error:  # the others still count
        found = {"word": f"failed: {type(error).__name__}: {error}"[:200].replace("\n", " ")}
    return [{column: _written((row | found).get(column, "")) for column in COLUMNS}]


def run_method(method: str, model: nn.Module, work: Task, optimizer: str, seed: int) -> Row:
    """What a method says about a network."""
    if method in PROXIES:
        proxy = PROXIES[method]
        return {"score": proxy.score(model, *next(work.batches(seed))), "cost": proxy.cost}
    if method in SEARCHES:
        found = SEARCHES[method](model, work, optimizer, seed)
        return {"score": found.score, "rate": found.rate, "cost": found.cost}
    batches = DataLoader(TensorDataset(work.inputs, work.targets), BATCH, shuffle=True)
    told = skiplens.forecast(model, batches, loss="cross_entropy", optimizer=optimizer, cost=COSTS[method], seed=seed)
    low, high = told.interval
    return {
        "score": told.score,
        "word": told.word,
        "loss": told.loss,
        "low": low,
        "high": high,
        "rate": told.rate,
        "cost": told.cost,
    }


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


def left_over(wanted: Sequence[Job], file: Path) -> list[Job]:
    """The jobs that are not stored yet, or failed."""
    rows = filter(succeeded, read_rows(file))
    done = {(row["method"], row["network"], row["optimizer"], int(row["seed"])) for row in rows}
    return [job for job in wanted if job not in done]


def main() -> None:
    """Measure what is not stored yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="*", default=list(METHODS), help="names or their beginnings")
    parser.add_argument("--tasks", nargs="*", default=list(TASKS))
    parser.add_argument("--limit", type=int, help="only so many networks of each task")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--stored", type=Path, default=STORED)
    settings = parser.parse_args()
    methods = [method for method in METHODS if any(method.startswith(name) for name in settings.methods)]
    if not methods:
        raise SystemExit(f"No method is called {' or '.join(settings.methods)}. There are: {', '.join(METHODS)}.")
    networks = []
    for name in settings.tasks:
        task(name)  # one process reads the images and stores them for all
        networks += [n.name for n in NETWORKS.values() if n.task == name][: settings.limit]
    left = left_over(jobs_of(methods, networks), settings.stored)
    results = append_rows(settings.stored, COLUMNS, shared_out(measured, left, settings.processes), succeeded)
    for number, (row,) in enumerate(results, 1):
        job = ", ".join(str(row[column]) for column in COLUMNS[:4])
        print(f"{number} of {len(left)}: {job}: {row['word'] or row['score']}", flush=True)


if __name__ == "__main__":
    main()
