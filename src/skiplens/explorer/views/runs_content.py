"""What is in the files of a run: JSON, CSV and readings; none of it can run code."""

import csv
import json
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from skiplens.base.errors import BrokenFileError, InvalidInputError
from skiplens.base.memory import readable
from skiplens.readings.file import read_file
from skiplens.readings.reading import Reading
from skiplens.report.inspection import Report

T = TypeVar("T")

Row = Mapping[str, Any]

MOST_BYTES = 2**26

MOST_UNPACKED = 2**29

_KEPT = 16


def load_report(folder: Path) -> Report:
    """The report in a folder."""
    return _kept(_report, folder / "readings.json")


def load_verdicts(folder: Path) -> tuple[Row, ...]:
    """The verdicts of a study."""
    return _kept(_verdicts, folder / "verdicts.json")


def load_environment(folder: Path) -> Row:
    """Preset, seed and versions of a study; nothing where they are not told."""
    path = folder / "environment.json"
    return _kept(_environment, path) if path.is_file() else {}


def load_comparison(folder: Path) -> Row:
    """The numbers of a comparison."""
    return _kept(_comparison, folder / "comparison.json")


def load_table(path: Path) -> "Table":
    """The table in a CSV file."""
    return _kept(_table, path)


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

    def grouping(self, most: int) -> tuple[str, ...]:
        """The names of the columns that have few different cells, by which rows can be told apart."""
        return tuple(name for name, cells in self.columns.items() if 1 < len(set(cells)) <= most)

    @property
    def rows(self) -> tuple[Row, ...]:
        """The table row by row."""
        return tuple(dict(zip(self.columns, cells, strict=True)) for cells in zip(*self.columns.values(), strict=True))


def _kept(load: Callable[[str, int, int], T], path: Path) -> T:
    """What `load` makes of the file; read again only when it has changed."""
    _require_small_and_here(path)
    stat = path.stat()
    return load(str(path), stat.st_mtime_ns, stat.st_size)


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


@lru_cache(_KEPT)
def _report(path: str, changed: int, size: int) -> Report:
    return Report.load(path)


@lru_cache(_KEPT)
def _verdicts(path: str, changed: int, size: int) -> tuple[Row, ...]:
    content = _json(path)
    if not isinstance(content, list) or not all(isinstance(entry, dict) for entry in content):
        raise InvalidInputError("verdicts.json must hold a list of objects; it was not written by skiplens reproduce.")
    return tuple(content)


@lru_cache(_KEPT)
def _environment(path: str, changed: int, size: int) -> Row:
    content = _json(path)
    return content if isinstance(content, dict) else {}


@lru_cache(_KEPT)
def _comparison(path: str, changed: int, size: int) -> Row:
    content = _json(path)
    if not isinstance(content, dict) or not isinstance(content.get("numbers"), list):
        raise InvalidInputError("comparison.json has no numbers; it was not written by skiplens compare.")
    return content


@lru_cache(_KEPT)
def _table(path: str, changed: int, size: int) -> Table:
    with Path(path).open(newline="", encoding="utf-8", errors="replace") as file:
        head, *rows = list(csv.reader(file)) or [[]]
    columns = {name: tuple(row[index] if index < len(row) else "" for row in rows) for index, name in enumerate(head)}
    return Table({name: _numbers(cells) for name, cells in columns.items()})


def _numbers(cells: tuple[str, ...]) -> tuple[Any, ...]:
    """The cells as numbers if all of them are; an empty cell is NaN."""
    try:
        return tuple(float(cell) if cell else float("nan") for cell in cells)
    except ValueError:
        return cells


def _json(path: str) -> Any:
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"{Path(path).name} is no JSON: {error}.") from error
