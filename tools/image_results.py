"""Judge the image runs that are kept in results/gpu: `python -m tools.image_results [FOLDER …]`.

The readings of the FOLDERs (those of `results/gpu/sweep.py`) are put into results/gpu/readings.tar.xz first, beside
what it has. Then every image item is judged by them, without data and without a GPU, and results/gpu/verdicts.json is
written; `python -m tools.claims_page` takes the words from there. Words that the readings decide join the record that
`skiplens reproduce` compares with.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from tools.kept_readings import RESULTS, archive, collect, unpack
from tools.record_verdicts import join_record

from skiplens.papers.reproduction import Reproduction, ReproductionEffort, reproduce
from skiplens.papers.study import choose

PLACE = RESULTS / "gpu/verdicts.json"
ITEMS = {"li2016_shortcuts": ("fig2", "fig9"), "macdonald2023_regularity": ("fig3", "fig4", "table1")}


def judged() -> Reproduction:
    """What the readings say of all image items."""
    chosen = [pair for study, items in ITEMS.items() for item in items for pair in choose(f"{study}/{item}")]
    with tempfile.TemporaryDirectory() as place:
        unpack(archive("gpu"), Path(place))
        return reproduce(chosen, place, ReproductionEffort("paper"))


def entries(found: Reproduction) -> list[dict[str, Any]]:
    """What verdicts.json has."""
    return [verdict.to_json() for verdict in found.verdicts]


def decided(found: Reproduction) -> dict[str, str]:
    """The words that more readings should not change."""
    return {verdict.name: verdict.verdict for verdict in found.verdicts if verdict.verdict != "not attempted"}


if __name__ == "__main__":
    os.environ.pop("SKIPLENS_DATA", None)
    os.environ["SKIPLENS_CACHE"] = tempfile.mkdtemp()  # what lacks data says so, also where they are at hand
    collect([Path(folder) for folder in sys.argv[1:]], archive("gpu"))
    changed = judged().changed
    for alarm in changed:
        sys.stdout.write(f"{alarm.name} was {alarm.recorded}: say why in docs/judging.md\n")
    join_record("paper", decided(judged()), without=[alarm.name for alarm in changed])
    found = judged()
    PLACE.write_text(f"{json.dumps(entries(found), indent=1, ensure_ascii=False)}\n", "utf-8")
    for verdict in found.verdicts:
        sys.stdout.write(f"{verdict.name}: {verdict.verdict} {verdict.ours} ± {verdict.uncertainty}\n")
