"""Does improving improve? `python -m benchmarks.improvement.run OUT.csv [--keep nothing] [--processes 16]`.

The networks are those of `twins.py`, of families that nothing was developed on. Each is trained at every rate of a
grid, which tells the loss of its best rate, and is improved; what it was before and became after comes from the race of
`improve`, whose seeds no pilot has seen. `fall` is how many times lower it ends by a rate that falls at the end, where
that is one of the changes, and `constant` where it ends without. *Faulty* is one that ends above a quarter of a guess
and above twice the loss of its twin without the fault, each at its best rate. Rows are written as they come, and the
same command goes on after an interruption.
"""

import argparse
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.improvement.twins import TWINS, Twin
from benchmarks.trainability.pool import append_rows, read_rows, shared_out
from benchmarks.trainability.tasks import task
from benchmarks.trainability.train import RATES, cross_entropy

COLUMNS = tuple(
    "network family task keep guess known before constant after gain p changes rates cost fall cooled on".split()
)
OPTIMIZER = "adam"  # with which all are trained
GRID = tuple(map(float, RATES[OPTIMIZER][1:6]))
QUARTER = 0.25
STEPS = 400
RACE = "a rate that falls at the end"  # what is raced, told in each row: other rows were run with other code
TWICE, NEAR = 2.0, 1.3  # times the loss of the twin


class Job(NamedTuple):
    """One network to improve."""

    network: Twin
    keep: str
    steps: int
    device: str
    known: str = ""  # the loss of its best rate, where it is known already


def improved(job: Job) -> dict[str, Any]:
    """The row of one network."""
    import skiplens as sl

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    work, model = task(job.network.task), job.network.build(0).to(job.device)
    data = work.inputs.to(job.device), work.targets.to(job.device)
    known, cooled = (float(job.known), math.nan) if job.known else best_of_grid(model, data, job.steps)
    keep: Any = None if job.keep == "nothing" else job.keep
    found = sl.improve(model, data, loss=cross_entropy, optimizer=OPTIMIZER, keep=keep, steps=job.steps)
    before = known if found.race is None else float(found.race.ends[0].median())
    after = float(found.race.ends[1].median()) if found.race is not None and found.changes else before
    factors = zip(found.changes, found.reading.gains.exp().tolist(), strict=True)
    fall = next((factor for change, factor in factors if change.name == "cool_down"), 1.0)
    return {
        "network": job.network.name,
        "family": job.network.family,
        "task": job.network.task,
        "keep": job.keep,
        "guess": f"{work.guess:.5g}",
        "known": f"{known:.5g}",
        "before": f"{before:.5g}",
        "constant": f"{after * fall:.5g}",
        "after": f"{after:.5g}",
        "gain": f"{found.reading.gain if found.changes else 1.0:.4g}",
        "p": f"{found.reading.p:.3g}",
        "changes": " + ".join(change.name for change in found.changes) or f"({found.reading.seemed_better})",
        "rates": " ".join(f"{rate:.3g}" for rate in (found.race.rates if found.race else ())),
        "cost": found.reading.cost,
        "fall": f"{fall:.4g}",
        "cooled": f"{cooled:.5g}",
        "on": f"{job.device}, {RACE}",
    }


def best_of_grid(model: torch.nn.Module, data: Any, steps: int) -> tuple[float, float]:
    """The loss at the end of a training at the best rate of the grid, and of one whose rate falls at the end."""
    from skiplens.improvement.changes import COOL_DOWN
    from skiplens.improvement.race import ends_of, run_to_the_end
    from skiplens.trainability.optimizers import optimizer_choice

    choice = optimizer_choice(OPTIMIZER)
    asked = {"steps": steps, "seed": 0, "last": steps // COOL_DOWN}
    runs = [run_to_the_end(model, data, cross_entropy, choice, rate=rate, **asked) for rate in GRID]
    both = zip(*((run.losses, run.cooled) for run in runs), strict=True)
    constant, cooled = (float(ends_of(torch.stack(curves)).min()) for curves in both)
    return constant, cooled


def twins_known(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """For each network in the rows whose twin is there too, the loss of the twin."""
    known = {row["network"]: float(row["known"]) for row in rows}
    twins = {name: TWINS[name].healthy.name for name in known}
    return {name: known[twin] for name, twin in twins.items() if twin in known}


def is_faulty(row: Mapping[str, Any], twin: float) -> bool:
    """Whether something is wrong with a network that is not with its twin."""
    known = float(row["known"])
    return not (known <= QUARTER * float(row["guess"]) or known <= TWICE * twin)


def summary(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """How many faulty networks became good, how many as good as their twins, and whether healthy ones stayed so."""
    twins = twins_known(rows)
    judged = [row for row in rows if row["network"] in twins]
    for faulty in (True, False):
        chosen = [row for row in judged if is_faulty(row, twins[row["network"]]) == faulty]
        if not chosen:
            continue
        ratios = [_ratio(float(row["before"]), float(row["after"])) for row in chosen]
        halved, worse = sum(ratio <= 0.5 for ratio in ratios), sum(ratio > 1.05 for ratio in ratios)
        near = [sum(float(row[end]) <= NEAR * twins[row["network"]] for row in chosen) for end in ("after", "constant")]
        what = "faulty" if faulty else "healthy"
        yield f"{len(chosen)} {what}: {halved} end at half or less, {worse} above 1.05 times"
        yield f"  median of after / before: {statistics.median(ratios):.3g}"
        yield f"  {near[0]} end within {NEAR} times the loss of the twin, {near[1]} at a constant rate"


def last_runs(tables: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Each network as it was last run; its best rate was looked for where it was first."""
    found: dict[str, dict[str, Any]] = {}
    for row in (row for table in tables for row in table):
        known = found.get(row["network"], row)["known"]
        found[row["network"]] = {"constant": row["after"], **row, "known": known}
    return list(found.values())


def _ratio(before: float, after: float) -> float:
    if not math.isfinite(before):
        return 0.0 if math.isfinite(after) else 1.0
    return after / before if before > 0 else 1.0


def main() -> None:
    """Improve what is not there yet, then tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--keep", default="nothing", choices=["outputs", "architecture", "nothing"])
    parser.add_argument("--families", nargs="*", default=sorted({twin.family for twin in TWINS.values()}))
    parser.add_argument("--networks", nargs="*", default=list(TWINS), help="names, as in the table of results")
    parser.add_argument("--known", type=Path, help="a table of results whose losses of the best rates are taken")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--runs", type=Path, nargs="+", help="train nothing; tell of the last run of each in these tables"
    )
    settings = parser.parse_args()
    if settings.runs:
        print(*summary(last_runs([read_rows(path) for path in settings.runs])), sep="\n")
        return
    if settings.out is None:
        parser.error("a table to write, or --runs")
    done = {(row["network"], row["keep"]) for row in read_rows(settings.out)}
    wanted = [twin for twin in map(TWINS.__getitem__, settings.networks) if twin.family in settings.families]
    known = {row["network"]: row["known"] for row in (read_rows(settings.known) if settings.known else ())}
    jobs = [
        Job(twin, settings.keep, settings.steps, settings.device, known.get(twin.name, ""))
        for twin in wanted
        if (twin.name, settings.keep) not in done
    ]
    jobs.sort(key=lambda job: -job.network.depth)  # the long ones first
    batches = ([row] for row in shared_out(improved, jobs, settings.processes))
    for (row,) in append_rows(settings.out, COLUMNS, batches):
        print(f"{row['network']}: {row['known']} {row['before']} -> {row['after']} {row['changes']}", flush=True)
    rows = [row for row in read_rows(settings.out) if row["keep"] == settings.keep]
    for line in summary(rows):
        print(line)


if __name__ == "__main__":
    main()
