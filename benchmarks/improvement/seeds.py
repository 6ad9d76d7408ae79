"""How far a healthy twin ends apart from seed to seed: `python -m benchmarks.improvement.seeds OUT.csv --networks …`.

A network and the twin that it is compared with are trained on batches in another order, and from other draws. Here the
twin is trained at each rate of the grid from seed 0, as in `run.py`, and from the seeds of a race on its batches.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.improvement.run import GRID, OPTIMIZER, STEPS
from benchmarks.improvement.twins import TWINS, Twin
from benchmarks.trainability.pool import append_rows, read_rows
from benchmarks.trainability.tasks import task
from benchmarks.trainability.train import cross_entropy

COLUMNS = ("network", "seed", "rate", "loss")
SEEDS = range(4)  # 0 and those of a race


def ended(twin: Twin) -> Iterator[list[dict[str, Any]]]:
    """The rows of one network, one seed after the other."""
    from skiplens.improvement.race import ends_of, run_to_the_end
    from skiplens.trainability.optimizers import optimizer_choice

    work, model, choice = task(twin.task), twin.build(0), optimizer_choice(OPTIMIZER)
    for seed in SEEDS:
        rows = []
        for rate in GRID:
            asked = {"rate": rate, "steps": STEPS, "seed": seed, "first": seed * STEPS}
            run = run_to_the_end(model, (work.inputs, work.targets), cross_entropy, choice, **asked)
            loss = float(ends_of(run.losses[None]))
            rows.append({"network": twin.name, "seed": seed, "rate": f"{rate:.3g}", "loss": f"{loss:.5g}"})
        yield rows


def main() -> None:
    """Train what is not there yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--networks", nargs="+", choices=list(TWINS), metavar="NAME")
    settings = parser.parse_args()
    rows = read_rows(settings.out)
    whole = {row["network"] for row in rows if row["seed"] == str(SEEDS[-1])}
    batches = (rows for name in settings.networks if name not in whole for rows in ended(TWINS[name]))
    for rows in append_rows(settings.out, COLUMNS, batches, lambda row: row["network"] in whole):
        print(rows, flush=True)


if __name__ == "__main__":
    main()
