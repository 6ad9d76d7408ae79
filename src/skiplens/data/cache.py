"""The user's cache of data sets: filled whole or not at all, by one process at a time, verified at every use."""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from skiplens.core.doors import open_door
from skiplens.core.errors import DataError
from skiplens.core.memory import readable
from skiplens.data.catalogue import DataSet, Part
from skiplens.data.unpack import require_checksum

_FULL = (errno.ENOSPC, errno.EDQUOT)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)


def cache_folder() -> Path:
    """The folder of the cache: SKIPLENS_CACHE, or the place this system has for caches."""
    named = os.environ.get("SKIPLENS_CACHE")
    if named:
        return Path(named).expanduser() / "data"
    return Path(open_door("pooch", "finding the cache folder").os_cache("skiplens")) / "data"


def cached(parts: Iterable[Part], folder: Path) -> list[bytes] | None:
    """The verified contents of the parts in `folder`, or None if one is missing or damaged."""
    contents = []
    for part in parts:
        path = folder / part.name
        if not path.is_file():
            return None
        try:
            contents.append(require_checksum(part, path.read_bytes(), str(path)))
        except DataError:  # a damaged cache is fetched again, as a missing one is
            return None
    return contents


def fill(data_set: DataSet, contents: Iterable[tuple[Part, bytes]], target: Path) -> None:
    """Write all parts into a folder beside `target` and move it there when every one has its checksum."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{data_set.name}-") as staging:
        ready = Path(staging) / "ready"
        ready.mkdir()
        for part, content in contents:
            (ready / part.name).write_bytes(require_checksum(part, content, f"{part.name} as it came"))
        missing = [part.name for part in data_set.parts if not (ready / part.name).is_file()]
        if missing:
            raise DataError(f"What came for {data_set.name} does not hold {', '.join(missing)}.")
        shutil.rmtree(target, ignore_errors=True)
        ready.replace(target)


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Let one process at a time through; the system frees the lock when a process dies."""
    with lock.open("ab") as file:
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        except (ImportError, OSError):  # no such locks on this system or file system: checksums still hold
            pass
        yield


@contextmanager
def explained(data_set: DataSet, folder: Path) -> Iterator[None]:
    """Turn a full disk or a folder that cannot be written into an error that says what to do."""
    try:
        yield
    except OSError as error:
        needed = readable(sum(part.size for part in data_set.parts) + sum(a.size for a in data_set.archives))
        if error.errno in _FULL:
            raise DataError(
                f"No space left in {folder} for {data_set.name}, which needs about {needed}. "
                "Free some, or name a cache folder elsewhere with SKIPLENS_CACHE."
            ) from error
        if error.errno in _FORBIDDEN:
            raise DataError(
                f"The cache folder {folder} cannot be written ({error.strerror}). Name another one with SKIPLENS_CACHE."
            ) from error
        raise
