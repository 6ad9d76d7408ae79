"""Does improving improve? `python -m benchmarks.improvement.run OUT.csv [--keep nothing] [--processes 16]`.

Every network of `benchmarks.trainability` whose family was not used while `improve` was developed is improved. What it
was before and became after comes from the race of `improve`, whose seeds no pilot has seen; *faulty* is one whose loss
ends above a quarter of a guess. Rows are written as they come, and the same command goes on after an interruption.
"""

import argparse
import math
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.trainability.networks import NETWORKS
from benchmarks.trainability.pool import append_rows, read_rows, shared_out
from benchmarks.trainability.tasks import task
from benchmarks.trainability.train import build, cross_entropy

DEVELOPED_ON = ("plain mlp", "residual mlp")
COLUMNS = ("network", "family", "task", "keep", "faulty", "before", "after", "gain", "p", "changes", "cost")
QUARTER = 0.25
STEPS = 400


def improved(job: tuple[str, str, int, str]) -> dict[str, Any]:
    """The row of one network."""
    import skiplens as sl

    name, keep, steps, device = job
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    network = NETWORKS[name]
    work, model = task(network.task), build(network, 0).to(device)
    data = work.inputs.to(device), work.targets.to(device)
    asked: dict[str, Any] = {"keep": None if keep == "nothing" else keep, "steps": steps}
    found = sl.improve(model, data, loss=cross_entropy, **asked)
    before = found.before.loss if found.race is None else float(found.race.ends[0].median())
    after = float(found.race.ends[1].median()) if found.race is not None and found.changes else before
    return {
        "network": name,
        "family": network.family,
        "task": network.task,
        "keep": keep,
        "faulty": int(not before <= QUARTER * found.before.guess),
        "before": f"{before:.5g}",
        "after": f"{after:.5g}",
        "gain": f"{found.reading.gain if found.changes else 1.0:.4g}",
        "p": f"{found.reading.p:.3g}",
        "changes": " + ".join(change.name for change in found.changes),
        "cost": found.reading.cost,
    }


def summary(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """How many faulty networks became good, and whether healthy ones stayed so."""
    for faulty in (1, 0):
        chosen = [row for row in rows if int(row["faulty"]) == faulty]
        if not chosen:
            continue
        ratios = [_ratio(float(row["before"]), float(row["after"])) for row in chosen]
        what = "faulty" if faulty else "healthy"
        halved, worse = (sum(test(ratio) for ratio in ratios) for test in (_halved, _worse))
        yield f"{len(chosen)} {what}: {halved} end at half or less, {worse} above 1.05 times"
        yield f"  median of after / before: {statistics.median(ratios):.3g}"


def _ratio(before: float, after: float) -> float:
    if not math.isfinite(before):
        return 0.0 if math.isfinite(after) else 1.0
    return after / before if before > 0 else 1.0


def _halved(ratio: float) -> bool:
    return ratio <= 0.5


def _worse(ratio: float) -> bool:
    return ratio > 1.05


def main() -> None:
    """Improve what is not there yet, then tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--keep", default="nothing", choices=["outputs", "architecture", "nothing"])
    parser.add_argument("--families", nargs="*", default=[])
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    settings = parser.parse_args()
    done = {(row["network"], row["keep"]) for row in read_rows(settings.out)}
    wanted = [n for n in NETWORKS.values() if n.family in settings.families or not settings.families]
    wanted = [n for n in wanted if n.family not in DEVELOPED_ON and (n.name, settings.keep) not in done]
    jobs = [(network.name, settings.keep, settings.steps, settings.device) for network in wanted]
    batches = ([row] for row in shared_out(improved, jobs, settings.processes))
    for (row,) in append_rows(settings.out, COLUMNS, batches):
        print(f"{row['network']}: {row['before']} -> {row['after']} {row['changes']}", flush=True)
    for line in summary([row for row in read_rows(settings.out) if row["keep"] == settings.keep]):
        print(line)


if __name__ == "__main__":
    main()
