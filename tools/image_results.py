"""Judge the image runs that are kept in results/gpu: `python tools/image_results.py [FOLDER …]`.

The readings of the FOLDERs (those of `results/gpu/sweep.py`) are put into results/gpu/readings.tar.gz first, beside
what it has. Then every image item is judged by them, without data and without a GPU, and results/gpu/verdicts.json is
written; `python tools/claims_page.py` takes the words from there.
"""

import io
import json
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from skiplens.papers.reproduction import Reproduction, ReproductionEffort, reproduce
from skiplens.papers.study import choose

GPU = Path(__file__).parents[1] / "results/gpu"
ARCHIVE = GPU / "readings.tar.xz"
ITEMS = {"li2016_shortcuts": ("fig2", "fig9"), "macdonald2023_regularity": ("fig3", "fig4", "table1")}


def collect(folders: Sequence[Path], archive: Path) -> None:
    """Write an archive of all readings of the folders and of those that it has; the same ones give the same bytes."""
    with tempfile.TemporaryDirectory() as place:
        if archive.exists():
            unpack(archive, Path(place))
        found = {path.name: path for folder in (Path(place), *folders) for path in (folder / "store").glob("*.npz")}
        with tarfile.open(archive.with_suffix(".new"), "w:xz") as tar:
            for name, path in sorted(found.items()):
                entry = tarfile.TarInfo(f"store/{name}")
                entry.size = path.stat().st_size
                tar.addfile(entry, io.BytesIO(path.read_bytes()))
        archive.with_suffix(".new").replace(archive)


def unpack(archive: Path, folder: Path) -> None:
    """Put the readings into a folder of `skiplens reproduce`."""
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")


def judged(archive: Path = ARCHIVE) -> Reproduction:
    """What the readings say of all image items."""
    chosen = [pair for study, items in ITEMS.items() for item in items for pair in choose(f"{study}/{item}")]
    with tempfile.TemporaryDirectory() as place:
        unpack(archive, Path(place))
        return reproduce(chosen, place, ReproductionEffort("paper"))


def entries(found: Reproduction) -> list[dict[str, Any]]:
    """What verdicts.json has."""
    return [verdict.to_json() for verdict in found.verdicts]


if __name__ == "__main__":
    collect([Path(folder) for folder in sys.argv[1:]], ARCHIVE)
    found = judged()
    (GPU / "verdicts.json").write_text(f"{json.dumps(entries(found), indent=1, ensure_ascii=False)}\n", "utf-8")
    for verdict in found.verdicts:
        sys.stdout.write(f"{verdict.name}: {verdict.verdict} {verdict.ours} ± {verdict.uncertainty}\n")
