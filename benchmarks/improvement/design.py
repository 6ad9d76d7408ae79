"""Is a design better than the usual one? `python -m benchmarks.improvement.design OUT.csv [--processes 16]`.

Networks that `sl.design` proposes for a depth are trained beside *He start with batch norm* of the same depth and width
(layer norm in a transformer, which takes no other), once without shortcuts and once with the usual ones over two
layers. Each is trained at every rate of a grid from several seeds, and counts at the rate that is best over the seeds;
the design of a seed is made from the data with that seed. A transformer reads a text and tells its next character.
Rows are written as they come, and the same command goes on after an interruption.
"""

import argparse
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch

from benchmarks.improvement.run import GRID
from benchmarks.trainability.pool import append_rows, read_rows, shared_out
from benchmarks.trainability.tasks import BATCH, CONTEXT, Task, task
from benchmarks.trainability.train import LAST, STEPS, cross_entropy
from skiplens.zoo.blueprint import Blueprint

COLUMNS = ("family", "task", "depth", "network", "seed", "rate", "loss", "guess", "choices")
CASES = (
    ("mlp", "digits"),
    ("mlp", "grey images"),
    ("mlp", "few digits"),
    ("resnet", "cifar10"),
    ("transformer", "more text"),
)
WIDTHS = {"mlp": 96, "resnet": 16, "transformer": 48}
DEPTHS = (10, 50, 200)
NETWORKS = ("designed", "usual", "usual with shortcuts")
SEEDS = 3
EAGER = 3  # steps on a GPU before one is recorded, so that all that is made once is there
ALIKE = 1.05  # times the loss are as good
LEARNT = 0.01  # of a guess: what both end below they have learnt by heart, and ratios of such losses say nothing


@dataclass(frozen=True)
class Job:
    """One network and seed, at every rate."""

    family: str
    task: str
    depth: int
    network: str
    seed: int
    steps: int = STEPS
    device: str = "cpu"

    @property
    def key(self) -> tuple[str, ...]:
        """What tells its rows from others."""
        return self.family, self.task, str(self.depth), self.network, str(self.seed)


def trained(job: Job) -> list[dict[str, Any]]:
    """The rows of one network and seed, one a rate."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    work = work_of(job)
    plan = plan_of(job, work)
    choices = f"shortcut={plan.shortcut} branches={plan.branches} norm={plan.norm} start={plan.start}"
    known = dict(zip(COLUMNS, job.key, strict=False)) | {"guess": f"{work.guess:.5g}", "choices": choices}
    # what is recorded on a GPU must not have begun on the stream that all share
    with torch.cuda.stream(torch.cuda.Stream()) if job.device.startswith("cuda") else nullcontext():
        ends = [end_of(plan, work, job, rate) for rate in GRID]
    return [known | {"rate": f"{rate:.4g}", "loss": f"{end:.5g}"} for rate, end in zip(GRID, ends, strict=True)]


def work_of(job: Job) -> Task:
    """The task, of a text the last character alone."""
    work = task(job.task)
    targets = work.targets[:, -1] if work.targets.ndim > 1 else work.targets
    return Task(work.name, work.inputs.to(job.device), targets.to(job.device), work.classes)


def plan_of(job: Job, work: Task) -> Blueprint:
    """What is built: designed from the data, or the usual."""
    import skiplens as sl

    shape, vocabulary = tuple(work.inputs.shape[1:]), work.classes if work.inputs.shape[1:] == (CONTEXT,) else 0
    sizes: dict[str, Any] = {"depth": job.depth, "width": WIDTHS[job.family], "vocabulary": vocabulary}
    if job.network == "designed":
        asked = sizes | {"family": job.family, "loss": cross_entropy, "steps": job.steps, "seed": job.seed}
        return sl.design(shape, work.classes, data=(work.inputs, work.targets), **asked).blueprint
    norm, shortcut = "layer" if job.family == "transformer" else "batch", 2 if "shortcuts" in job.network else 0
    usual: dict[str, Any] = {"branches": "plain", "norm": norm, "shortcut": shortcut, "start": "he"}
    return Blueprint(job.family, shape, work.classes, **sizes, **usual)  # type: ignore[arg-type]  # a family by its name


def end_of(plan: Blueprint, work: Task, job: Job, rate: float) -> float:
    """The mean loss of the last steps of a training with Adam, infinite where it diverged."""
    model = plan.build(job.seed).to(job.device).train()
    on_gpu = job.device.startswith("cuda")
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, capturable=on_gpu)
    inputs, targets, loss = work.inputs[:BATCH].clone(), work.targets[:BATCH].clone(), torch.zeros(())

    def step() -> None:
        nonlocal loss
        optimizer.zero_grad()
        loss = cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()

    losses, take_step = torch.empty(job.steps, device=job.device), step
    for number, batch in zip(range(job.steps), work.batches(job.seed), strict=False):
        for own, drawn in zip((inputs, targets), batch, strict=True):
            own.copy_(drawn)
        if on_gpu and number == EAGER:
            take_step = recorded(step)
        take_step()
        losses[number] = loss.detach()
    end = float(losses[-LAST:].mean())
    return max(end, torch.finfo(torch.float32).tiny) if math.isfinite(end) else math.inf


def recorded(step: Callable[[], None]) -> Callable[[], None]:
    """The step as one program of the GPU: deep networks of small layers wait for Python otherwise."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
        step()
    return graph.replay


def best_ends(rows: Sequence[dict[str, Any]]) -> dict[tuple[str, str, int], dict[str, float]]:
    """The loss of each network at its best rate, by family, task and depth: geometric means over the seeds of all."""
    ends: dict[tuple[str, str, int], dict[str, dict[str, dict[str, float]]]] = defaultdict(dict)
    for row in rows:
        rates = ends[row["family"], row["task"], int(row["depth"])].setdefault(row["network"], defaultdict(dict))
        rates[row["rate"]][row["seed"]] = float(row["loss"])
    best: dict[tuple[str, str, int], dict[str, float]] = {}
    for case, networks in ends.items():
        seeds = set.intersection(*({seed for found in rates.values() for seed in found} for rates in networks.values()))
        if seeds:
            best[case] = {
                name: min(_mean(found, seeds) for found in rates.values() if seeds <= found.keys())
                for name, rates in networks.items()
            }
    return best


def _mean(losses: Mapping[str, float], seeds: Collection[str]) -> float:
    """The geometric mean over these seeds."""
    return math.exp(statistics.fmean(math.log(losses[seed]) for seed in seeds))


def summary(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Each case, then whether designs are as good everywhere and better where it is deep."""
    guesses = {row["task"]: float(row["guess"]) for row in rows}
    built: dict[tuple[str, str, int, str], set[str]] = defaultdict(set)
    for row in rows:
        built[row["family"], row["task"], int(row["depth"]), row["network"]].add(row["choices"])
    good, better, deep, cases = 0, 0, 0, 0
    for (family, name, depth), ends in sorted(best_ends(rows).items()):
        if set(ends) != set(NETWORKS):
            continue
        own, (other, rival) = ends["designed"], min((ends[network], network) for network in NETWORKS[1:])
        small = max(own, other) <= LEARNT * guesses[name]
        same = built[family, name, depth, "designed"] == built[family, name, depth, rival]
        cases, good = cases + 1, good + (small or same or own <= ALIKE * other)
        if depth == max(DEPTHS):
            deep, better = deep + 1, better + (own < other)
        told = ", ".join(f"{network} {ends[network]:.3g}" for network in NETWORKS)
        notes = " (both have learnt it by heart)" * small + f" (the design is the same network: {rival})" * same
        yield f"{family} on {name}, depth {depth}: {told}{notes}"
    words = f"of {deep} at depth {max(DEPTHS)} better in {better}"
    yield f"{cases} cases: as good as the better usual one in {good}; {words}"


def main() -> None:
    """Train what is not there yet, then tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--families", nargs="*", default=list(WIDTHS))
    parser.add_argument("--depths", nargs="*", type=int, default=list(DEPTHS))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    settings = parser.parse_args()
    done = {tuple(row[name] for name in COLUMNS[:5]) for row in read_rows(settings.out)}
    depths = sorted(settings.depths, reverse=True)  # the longest first, so that no process waits for one at the end
    jobs = [
        Job(family, name, depth, network, seed, settings.steps, settings.device)
        for depth, (family, name), network, seed in product(depths, CASES, NETWORKS, range(settings.seeds))
        if family in settings.families
    ]
    left = [job for job in jobs if job.key not in done]
    for rows in append_rows(settings.out, COLUMNS, shared_out(trained, left, settings.processes)):
        words = " ".join(str(rows[0][name]) for name in COLUMNS[:5])
        print(f"{words}: {' '.join(row['loss'] for row in rows)} {rows[0]['choices']}", flush=True)
    for line in summary(read_rows(settings.out)):
        print(line)


if __name__ == "__main__":
    main()
