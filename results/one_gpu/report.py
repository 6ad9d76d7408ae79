"""Verdicts and figures of what `sweep.py` trained: `python results/one_gpu/report.py PART STORE FOLDER`."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path

from skiplens.papers.li2016_shortcuts import fig2_fig9
from skiplens.papers.li2016_shortcuts import study as li2016_shortcuts_study
from skiplens.papers.li2016_shortcuts.fig2_fig9 import ONE_GPU as LI2016_SIZES
from skiplens.papers.macdonald2023_regularity import fig3_to_fig6
from skiplens.papers.macdonald2023_regularity import study as macdonald2023_regularity_study
from skiplens.papers.macdonald2023_regularity.images import ONE_GPU
from skiplens.papers.reproduction import ReproductionEffort, reproduce, write_folder
from skiplens.papers.study import Item, Study
from skiplens.readings.store import Store

SAID = "Reduced for some minutes on one H200: fewer epochs, learning rates, depths and trials, as the tables say."


def main(part: str, store: Path, folder: Path) -> None:
    """Judge whole replicates; what is in the store is not trained again."""
    trials = 1 + max(replicates(store))
    study, items = {"macdonald": macdonald, "norms": norms, "errors": errors}[part](trials)
    shutil.copytree(store, folder / "store", dirs_exist_ok=True)
    found = reproduce([(study, item) for item in items], folder, ReproductionEffort("paper"))
    write_folder(found, folder)
    for verdict in found.verdicts:
        sys.stdout.write(f"{verdict.name} {verdict.verdict} {verdict.ours} {verdict.uncertainty}\n")


def replicates(store: Path) -> set[int]:
    """The numbers of the replicates in a store."""
    readings = (Store(store).load(key) for key in Store(store).keys())
    return {int(reading.provenance.settings["replicate"]) for reading in readings if reading is not None}


def macdonald(trials: int) -> tuple[Study, list[Item]]:
    """Figures 3 and 4 and table 1 at one learning rate."""
    items = fig3_to_fig6.items({"paper": replace(ONE_GPU, trials=trials)}, (SAID,))
    return macdonald2023_regularity_study.STUDY, [item for item in items if item.name in ("fig3", "fig4", "table1")]


def norms(trials: int) -> tuple[Study, list[Item]]:
    """Figure 2."""
    return li2016_shortcuts_study.STUDY, [
        fig2_fig9.items({"paper": replace(LI2016_SIZES, norm_runs=trials)}, (SAID,))[0]
    ]


def errors(trials: int) -> tuple[Study, list[Item]]:
    """Figure 9."""
    return li2016_shortcuts_study.STUDY, [
        fig2_fig9.items({"paper": replace(LI2016_SIZES, error_runs=trials)}, (SAID,))[1]
    ]


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
