"""A folder of runs: what is really inside of it, and what is in its files. Nothing of it can run code.

Links that lead outside are not followed, and large files are not opened: the page may be seen by others than the owner.
"""

import csv
import os
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from fnmatch import fnmatch
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import quote, unquote_to_bytes

from skiplens.base import BrokenFileError, InvalidInputError, readable, refuse_if
from skiplens.base.files import read_json
from skiplens.explorer.control import Control
from skiplens.readings import Reading, read_file
from skiplens.report.gallery import shown_word
from skiplens.report.inspection import Report

T = TypeVar("T")
Row = Mapping[str, Any]
Kind = Literal["report", "study", "comparison"]

MARKS: dict[str, Kind] = {"readings.json": "report", "verdicts.json": "study", "comparison.json": "comparison"}
"""The file that tells what a folder is."""

PAGES: dict[Kind, str] = {"study": "index.html", "comparison": "comparison.html"}
"""The pages that are shown as they were written; that of a report is made from its readings."""

_FILES = (
    *MARKS,
    *PAGES.values(),
    *("report.html", "environment.json", "change.py", "card.png"),
    *("tables/*.csv", "figures/*.png", "figures/*.svg", "store/*.npz"),
)  # what a run's folder has that may be downloaded; anything else in it is nobody's business

MOST_RUNS, MOST_FILES = 500, 200
MOST_BYTES, MOST_UNPACKED = 2**26, 2**29
_DEEPEST = 5  # folders below the one that was given


@dataclass(frozen=True)
class Run:
    """A report, a study or a comparison."""

    word: str  # its name as it stands in an address: any name of a folder, without commas and odd characters
    label: str  # its name for a person
    kind: Kind
    path: Path

    @property
    def mark(self) -> Path:
        """The file that tells what it is."""
        return self.path / next(name for name, kind in MARKS.items() if kind == self.kind)

    @property
    def page(self) -> str:
        """The address of its own page, as it was written for a person; empty where there is none."""
        there = self.kind == "report" or (self.path / PAGES[self.kind]).is_file()
        return f"/report?name={quote(self.word, safe='')}" if there else ""


class RunsFolder:
    """A folder and everything that is really inside of it; links that lead outside are not followed."""

    def __init__(self, root: Path) -> None:
        refuse_if(not root.is_dir(), f"{root} is not a folder; name the one that holds your reports and studies.")
        self.given = root
        self._root = root.resolve()

    def runs(self) -> tuple[Run, ...]:
        """All runs, in order of their names."""
        return tuple(sorted(self._walk(self._root, _DEEPEST, set()), key=lambda run: run.word)[:MOST_RUNS])

    def run(self, word: str) -> Run:
        """The run that is called so."""
        run = self._run(self._inside(word))
        if run is None:
            raise InvalidInputError(f"There is no run {word!r} in the folder.")
        return run

    def files(self, run: Run) -> tuple[tuple[str, str], ...]:
        """The files of a run that may be downloaded: their names in it, and their words for `file`."""
        names = (path for pattern in _FILES for path in sorted(run.path.glob(pattern)))
        inside = [path for path in names if path.is_file() and self._holds(path)]
        return tuple((_label(path.relative_to(run.path)), self._word(path)) for path in inside[:MOST_FILES])

    def file(self, word: str) -> Path:
        """The place of a file of a run; every other name is refused, however it is written."""
        path = self._inside(word)
        for folder in path.parents[:2]:
            name = path.relative_to(folder).as_posix()
            known = any(fnmatch(name, pattern) and name.count("/") == pattern.count("/") for pattern in _FILES)
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
        if not deeper or len(seen) >= 20 * MOST_RUNS:
            return
        try:
            inner = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
        except OSError:
            return
        for path in filter(self._holds, inner):
            yield from self._walk(path.resolve(), deeper - 1, seen)

    def _run(self, folder: Path) -> Run | None:
        marks = ((folder / name, kind) for name, kind in MARKS.items())
        kind = next((kind for path, kind in marks if path.is_file() and self._holds(path)), None)
        if kind is None:
            return None
        name = folder.relative_to(self._root)
        return Run(self._word(folder), _label(name if name.parts else Path(self._root.name)), kind, folder)

    def _word(self, path: Path) -> str:
        return quote(os.fsencode(path.resolve().relative_to(self._root)), safe="/")

    def _inside(self, word: str) -> Path:
        """The path that a word names, resolved; refused unless it lies in the folder."""
        refused = InvalidInputError(f"{word!r} names nothing inside of the folder of runs.")
        try:
            path = (self._root / os.fsdecode(unquote_to_bytes(word))).resolve(strict=True)
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


def _label(path: Path) -> str:
    return os.fsencode(path).decode(errors="replace")


def told(run: Run) -> dict[str, str]:
    """A run as a card; without what it says of itself where its file cannot be read, which opening it tells."""
    card = {"name": run.label, "address": f"/runs?run={quote(run.word, safe='')}", "kind": run.kind}
    card |= dict.fromkeys(("written", "about", "says", "severity"), "")
    with suppress(OSError, AttributeError, KeyError, TypeError, ValueError, RecursionError, InvalidInputError):
        written = run.mark.stat().st_mtime
        card["written"] = f"{datetime.fromtimestamp(written):%Y-%m-%d %H:%M}"
        _require_small_and_here(run.mark)
        card |= _told(run.mark, written)
    return card


@lru_cache(4 * MOST_RUNS)
def _told(path: Path, changed: float) -> dict[str, str]:
    """What was looked at, what is said of it and how bad that is; a report of `skiplens improve` is called by that."""
    content = _json(path)
    if isinstance(content, list):
        return {"about": ", ".join(dict.fromkeys(row["study"] for row in content)), "says": counted(content)}
    about = str(content["title"]) if "title" in content else " and ".join(one["name"] for one in content["models"])
    found = {finding["severity"] for finding in content.get("findings", ())} & {"critical", "warning"}
    improved = "improvement" in [one["kind"] for one in content.get("readings", ())]
    said = {"about": about, "says": str(content["verdict"]), "severity": min(found, default="")}
    return said | ({"kind": "improvement"} if improved else {})


def with_models(controls: Sequence[Control], runs: RunsFolder | None) -> tuple[Control, ...]:
    """The controls of a theory view; the last one, for a model on its curves, offers the reports that there are."""
    *others, ghost = tuple[Any, ...](controls)
    found = tuple((run.word, run.label) for run in (runs.runs() if runs else ()) if run.kind == "report")
    return (*others, replace(ghost, options=(*ghost.options, *found))) if found else tuple(others)


def model_among(runs: RunsFolder | None, values: Mapping[str, Any]) -> tuple[str, Report] | None:
    """The name and the report of the model that is laid over the theory, if there is one."""
    word = values.get("ghost", "none")
    run = runs.run(word) if runs is not None and word != "none" else None
    return None if run is None else (run.label, load_report(run.path))


def counted(rows: Iterable[Row]) -> str:
    """How often each verdict stands in rows: 8 reproduced, 3 corrected."""
    counts = Counter(shown_word(str(row["verdict"]), row.get("ours")) for row in rows if "verdict" in row)
    return ", ".join(f"{count} {word}" for word, count in counts.items())


def load_report(folder: Path) -> Report:
    """The report in a folder."""
    return _loaded(Report.load, folder / "readings.json")


def load_verdicts(folder: Path) -> tuple[Row, ...]:
    """The verdicts of a study."""
    content = _loaded(_json, folder / "verdicts.json")
    if not isinstance(content, list) or not all(isinstance(entry, dict) for entry in content):
        raise InvalidInputError("verdicts.json must hold a list of objects; it was not written by skiplens reproduce.")
    return tuple(content)


def load_environment(folder: Path) -> Row:
    """Preset, seed and versions of a study; nothing where they are not told."""
    path = folder / "environment.json"
    content = _loaded(_json, path) if path.is_file() else {}
    return content if isinstance(content, dict) else {}


def load_comparison(folder: Path) -> Row:
    """The numbers of a comparison."""
    content = _loaded(_json, folder / "comparison.json")
    if not isinstance(content, dict) or not isinstance(content.get("numbers"), list):
        raise InvalidInputError("comparison.json has no numbers; it was not written by skiplens compare.")
    return content


def load_table(path: Path) -> "Table":
    """The table in a CSV file."""
    return _loaded(_table, path)


def load_reading(path: Path) -> Reading:
    """The reading in a file; one that would unpack to very much is refused."""
    _require_small_and_here(path)
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
    except zipfile.BadZipFile as error:
        raise BrokenFileError(f"{path.name} is not a whole Skiplens reading: {error}.") from error
    if unpacked > MOST_UNPACKED:
        raise InvalidInputError(f"{path.name} unpacks to {readable(unpacked)}; the explorer opens less than that.")
    return read_file(path)


@dataclass(frozen=True)
class Table:
    """Columns of numbers or words, by their names."""

    columns: Mapping[str, tuple[Any, ...]]

    @property
    def numeric(self) -> tuple[str, ...]:
        """The names of the columns that hold numbers."""
        return tuple(name for name, cells in self.columns.items() if all(isinstance(cell, float) for cell in cells))

    @property
    def rows(self) -> tuple[Row, ...]:
        """The table row by row."""
        return tuple(dict(zip(self.columns, cells, strict=True)) for cells in zip(*self.columns.values(), strict=True))


def load_page(path: Path) -> str:
    """A page as it was written. What it links to is not beside it in its frame, and stands below that to download."""
    _require_small_and_here(path)
    return path.read_text("utf-8", errors="replace") + "<style>li:has(> [href^=tables]) { display: none; }</style>"


def _loaded(load: Callable[[Path], T], path: Path) -> T:
    """What `load` makes of the file; read again only when it has changed."""
    _require_small_and_here(path)
    stat = path.stat()
    return _kept(load, path, stat.st_mtime_ns, stat.st_size)


@lru_cache(64)
def _kept(load: Callable[[Path], Any], path: Path, changed: int, size: int) -> Any:
    return load(path)


def _require_small_and_here(path: Path) -> None:
    """Folders of runs are resolved, so a path that resolves to another one has a link below the run's folder."""
    if path.resolve() != path:
        raise InvalidInputError(
            f"{path.name} is a link; the explorer opens only files that are in the folder itself. Copy it there."
        )
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise InvalidInputError(
            f"{path.name} has {readable(size)}; the explorer opens files up to {readable(MOST_BYTES)}. "
            "Download it, and read it in Python."
        )


def _json(path: Path) -> Any:
    try:
        return read_json(path)
    except ValueError as error:
        raise InvalidInputError(f"{path.name} is no JSON: {error}.") from error


def _table(path: Path) -> Table:
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        head, *rows = list(csv.reader(file)) or [[]]
    columns: dict[str, tuple[Any, ...]] = {}
    for index, name in enumerate(head):
        columns[name] = cells = tuple(row[index] if index < len(row) else "" for row in rows)
        with suppress(ValueError):  # numbers if all cells of the column are; an empty one is NaN
            columns[name] = tuple(float(cell) if cell else float("nan") for cell in cells)
    return Table(columns)
