"""Unfinished runs on disk: where a long run may keep what it has done so far, to go on after it was killed."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from skiplens.readings import Store

_PLACE: ContextVar[Path | None] = ContextVar("unfinished_work", default=None)


def unfinished_work() -> Path | None:
    """The file of the run being done, for ``train(..., checkpoint=unfinished_work())``; None where nothing is kept.

    The file is removed when the run's reading is stored, and when the measure raises an error, so that the next try
    begins anew. It stays when the worker is killed.
    """
    return _PLACE.get()


def unfinished_path(store: Store, key: str) -> Path:
    """Where the run called `key` may keep its work."""
    return store.path(key).parent.absolute() / "unfinished" / f"{key}.pt"


def forget_unfinished(store: Store, key: str) -> None:
    """Remove what an ended run kept, if it kept anything."""
    unfinished_path(store, key).unlink(missing_ok=True)


@contextmanager
def keeping(path: Path | None) -> Iterator[None]:
    """Let the run inside keep its work in `path`; a worker that does not reach the folder keeps nothing."""
    token = _PLACE.set(path if path is not None and _reachable(path.parent) else None)
    try:
        yield
    finally:
        _PLACE.reset(token)


def _reachable(folder: Path) -> bool:
    """Whether the store is here, as it is on a shared file system, and the folder in it can be made."""
    try:
        folder.mkdir(exist_ok=True)  # not its parents: without the store, this is another machine
    except OSError:
        return False
    return True
