"""A folder of readings, one file a run, named by the key of its settings; no lock and no database."""

import re
import secrets
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from skiplens.base.errors import BrokenFileError, refuse_if
from skiplens.readings.file import read_file, write_file
from skiplens.readings.reading import Reading

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,119}")


class BrokenFileWarning(UserWarning):
    """A stored file could not be trusted; it was set aside and its run will be done again."""


class Store:
    """Readings by key in one folder; safe with many readers and writers, also on a network file system."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)

    def path(self, key: str) -> Path:
        """The file that holds, or would hold, the reading called `key`."""
        refuse_if(not _KEY.fullmatch(key), f"{key!r} cannot name a file; use letters, digits, '_', '-' and '.'.")
        return self.folder / f"{key}.npz"

    def keys(self) -> Iterator[str]:
        """The keys that have a file, in order."""
        if self.folder.is_dir():
            yield from sorted(path.stem for path in self.folder.glob("*.npz") if not path.name.startswith("."))

    def save(self, key: str, reading: Reading) -> None:
        """Write `reading` under `key`, whole or not at all."""
        write_file(self.path(key), reading)

    def load(self, key: str) -> Reading | None:
        """The reading called `key`, or None if there is none or its file had to be set aside."""
        path = self.path(key)
        try:
            return read_file(path)
        except FileNotFoundError:
            return None
        except BrokenFileError as error:
            aside = self._set_aside(path)
            warnings.warn(f"{error} It was set aside as {aside}; the run will be done again.", BrokenFileWarning, 2)
            return None

    def compute(self, key: str, measure: Callable[[], Reading]) -> Reading:
        """The stored reading, or the one that `measure` takes now; either way it is in the store afterwards."""
        reading = self.load(key)
        if reading is None:
            reading = measure()
            self.save(key, reading)
        return reading

    def _set_aside(self, path: Path) -> str:
        aside = path.with_name(f"{path.name}.broken-{secrets.token_hex(4)}")
        try:
            path.replace(aside)
        except FileNotFoundError:
            return "nothing: somebody else removed it first"
        return aside.name
