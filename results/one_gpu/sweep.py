"""Train on one GPU for a given time: `python results/one_gpu/sweep.py PART FOLDER SECONDS`.

All networks of one replicate come before those of the next, so that whenever the time is over the replicates so far are
whole. PART is macdonald, norms or errors; `report.py` makes verdicts and figures of what came out.
"""

import sys
import tarfile
import time
from pathlib import Path

from skiplens.papers.li2016_shortcuts import fig2_fig9
from skiplens.papers.li2016_shortcuts.fig2_fig9 import ONE_GPU as LI2016_SIZES
from skiplens.papers.macdonald2023_regularity import images
from skiplens.papers.macdonald2023_regularity.images import ONE_GPU
from skiplens.readings.store import Store
from skiplens.sweeps.run import Run
from skiplens.sweeps.sweep import sweep


def main(part: str, folder: Path, seconds: float) -> None:
    """Do replicates until the next one would not fit; keep all readings in one archive as well."""
    runs = by_replicate({"macdonald": macdonald, "norms": norms, "errors": errors}[part]())
    store, start = Store(folder / part / "store"), time.monotonic()
    for done, replicate in enumerate(runs, 1):
        swept = sweep(replicate, store)
        passed = time.monotonic() - start
        for failure in swept.failures.values():
            sys.stderr.write(f"{failure.error}\n{failure.traceback}\n")
        sys.stderr.write(f"{part} replicates {done} {passed:.1f} s\n")
        with tarfile.open(folder / f"{part}.tar", "w") as archive:
            archive.add(store.folder, f"{part}/store")
        if passed * (done + 1) / done > seconds:
            break


def macdonald() -> list[Run]:
    """Figure 4 and table 1 at one learning rate."""
    return images.all_rates("cifar10", ONE_GPU, 0)


def norms() -> list[Run]:
    """Figure 2."""
    return fig2_fig9.fig2_runs(LI2016_SIZES, 0)


def errors() -> list[Run]:
    """Figure 9."""
    return fig2_fig9.fig9_runs(LI2016_SIZES, 0)


def by_replicate(runs: list[Run]) -> list[list[Run]]:
    """The runs, those of a replicate together."""
    numbers = [run.settings.replicate for run in runs]  # type: ignore[attr-defined]  # all of them have one
    return [[run for run, own in zip(runs, numbers, strict=True) if own == number] for number in sorted(set(numbers))]


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]))
