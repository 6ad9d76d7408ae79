"""The folder of runs: which there are, and which of their files may be seen; nothing outside of it, and no code."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Literal
from urllib.parse import quote, unquote_to_bytes

from skiplens.core.errors import InvalidInputError

Kind = Literal["report", "study", "comparison"]

MARKS: dict[str, Kind] = {"readings.json": "report", "verdicts.json": "study", "comparison.json": "comparison"}
"""The file that tells what a folder is."""

FILES = (
    *MARKS,
    *("report.html", "index.html", "comparison.html", "environment.json"),
    *("tables/*.csv", "figures/*.png", "figures/*.svg", "store/*.npz"),
)
"""What a run's folder has that may be downloaded; anything else in it is nobody's business."""

MOST_RUNS = 500
MOST_FILES = 200
_DEEPEST = 5  # folders below the one that was given


@dataclass(frozen=True)
class Run:
    """A report, a study or a comparison.

    Attributes:
        word: Its name as it stands in an address: any name of a folder, without commas and odd characters.
        label: Its name for a person.
        kind: What it is.
        path: Where it is.
    """

    word: str
    label: str
    kind: Kind
    path: Path


class RunsFolder:
    """A folder and everything that is really inside of it; links that lead outside are not followed."""

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise InvalidInputError(f"{root} is not a folder; name the one that holds your reports and studies.")
        self.given = root
        self._root = root.resolve()

    def runs(self) -> tuple[Run, ...]:
        """All runs, in order of their names."""
        found = sorted(self._walk(self._root, _DEEPEST, set()), key=lambda run: run.word)
        return tuple(found[:MOST_RUNS])

    def run(self, word: str) -> Run:
        """The run that is called so."""
        run = self._run(self._inside(word))
        if run is None:
            raise InvalidInputError(f"There is no run {word!r} in the folder.")
        return run

    def files(self, run: Run) -> tuple[tuple[str, str], ...]:
        """The files of a run that may be downloaded: their names in it, and their words for `file`."""
        names = (path for pattern in FILES for path in sorted(run.path.glob(pattern)))
        inside = [path for path in names if path.is_file() and self._holds(path)]
        return tuple((_label(path.relative_to(run.path)), self._word(path)) for path in inside[:MOST_FILES])

    def file(self, word: str) -> Path:
        """The place of a file of a run; every other name is refused, however it is written."""
        path = self._inside(word)
        for depth in (0, 1):
            folder = path.parents[depth]
            name = path.relative_to(folder).as_posix()
            known = any(fnmatch(name, pattern) and name.count("/") == pattern.count("/") for pattern in FILES)
            if known and path.is_file() and self._holds(folder) and self._run(folder) is not None:
                return path
        raise InvalidInputError(f"There is no file {word!r} of a run in the folder.")

    def _walk(self, folder: Path, deeper: int, seen: set[Path]) -> Iterator[Run]:
        if folder in seen:
            return
        seen.add(folder)
        run = self._run(folder)
        if run is not None:
            yield run
        if deeper and len(seen) < 20 * MOST_RUNS:
            for path in _folders_in(folder):
                if self._holds(path):
                    yield from self._walk(path.resolve(), deeper - 1, seen)

    def _run(self, folder: Path) -> Run | None:
        marks = ((folder / name, kind) for name, kind in MARKS.items())
        kind = next((kind for path, kind in marks if path.is_file() and self._holds(path)), None)
        if kind is None:
            return None
        name = folder.relative_to(self._root)
        return Run(self._word(folder), _label(name) if name.parts else _label(Path(self._root.name)), kind, folder)

    def _word(self, path: Path) -> str:
        return quote(os.fsencode(path.resolve().relative_to(self._root)), safe="/")

    def _inside(self, word: str) -> Path:
        """The path that a word names, resolved; refused unless it lies in the folder."""
        refused = InvalidInputError(f"{word!r} names nothing inside of the folder of runs.")
        try:
            name = os.fsdecode(unquote_to_bytes(word))
            path = (self._root / name).resolve(strict=True)
        except (OSError, ValueError, RuntimeError) as error:  # missing, a NUL in it, or links in a circle
            raise refused from error
        if not path.is_relative_to(self._root):
            raise refused
        return path

    def _holds(self, path: Path) -> bool:
        try:
            return path.resolve(strict=True).is_relative_to(self._root)
        except (OSError, RuntimeError):
            return False


def _folders_in(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError:
        return []


def _label(path: Path) -> str:
    return os.fsencode(path).decode(errors="replace")
