"""Readings that are kept in results/: one archive a folder, from which claims are judged and figures drawn anew."""

import io
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "results"
LARGE = ("bundle", "diagonal", "layer")  # measures whose readings take a megabyte and more, and two minutes to do again


def archive(shelf: str) -> Path:
    """Where those of `laptop`, `gpu` or `more_runs` are."""
    return RESULTS / shelf / "readings.tar.xz"


def is_small(reading: Path) -> bool:
    """Whether it is kept; the names of files begin with those of measures."""
    return reading.name.partition("-")[0] not in LARGE


def collect(folders: Sequence[Path], archive: Path, wanted: Callable[[Path], bool] = lambda reading: True) -> None:
    """Write an archive of wanted readings of the folders and of all that it has; the same ones give the same bytes."""
    with tempfile.TemporaryDirectory() as place:
        if archive.exists():
            unpack(archive, Path(place))
        every = [path for folder in folders for path in (folder / "store").glob("*.npz") if wanted(path)]
        found = {path.name: path for path in (*(Path(place) / "store").glob("*.npz"), *every)}
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
