"""Files are written whole or not at all, and by one process at a time."""

import contextlib
import json
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from skiplens.base.errors import InvalidInputError, SkiplensError


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then move it into place in one step.

    A process killed on the way leaves the old file, or the new one, and perhaps a hidden temporary file that no reader
    looks at. Each writer has a temporary file of its own, so many may write to one folder.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise SkiplensError(
            f"Could not write {path}: {error.strerror or error}. "
            "Nothing was changed; free some space or choose another folder."
        ) from error
    finally:
        with contextlib.suppress(OSError):  # an unwritable folder has been reported already
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def written_together(folder: Path) -> Iterator[Path]:
    """A folder to write files into; they take their places in `folder` at the end, or not at all after an error."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".part-") as beside:
            yield Path(beside)
            for path in sorted(path for path in Path(beside).rglob("*") if path.is_file()):
                place = folder / path.relative_to(beside)
                place.parent.mkdir(parents=True, exist_ok=True)
                path.replace(place)
    except OSError as error:
        raise SkiplensError(
            f"Could not write to {folder}: {error.strerror or error}. Free some space or choose another folder."
        ) from error


def require_writable(folder: Path) -> None:
    """Refuse a folder into which no file can be written; a folder that is not there is not there afterwards."""
    probe = folder / f".writable-{os.getpid()}-{secrets.token_hex(4)}"
    missing: list[Path] = []
    try:
        missing.extend(path for path in (folder, *folder.parents) if not path.exists())
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except (OSError, ValueError) as error:  # a name with a zero byte is a ValueError
        problem = getattr(error, "strerror", None) or error
        raise InvalidInputError(
            f"Nothing can be written to {folder}: {problem}. Choose another folder, or allow writing."
        ) from error
    finally:
        for path in missing:  # the innermost first
            with contextlib.suppress(OSError):
                path.rmdir()


def user_path(named: str | os.PathLike[str]) -> Path:
    """The path that a person named, `~` resolved; refused where the system does not know that home."""
    try:
        return Path(named).expanduser()
    except RuntimeError as error:
        raise InvalidInputError(
            f"The path {os.fspath(named)} starts in a home that does not exist here. Write it from the root."
        ) from error


def is_folder(path: Path) -> bool:
    """Whether `path` is a folder; a name that the system does not take, such as one too long, is none."""
    return os.path.isdir(path)  # noqa: PTH112 - Path.is_dir raises


def is_file(path: Path) -> bool:
    """Whether `path` is a file, in the same way."""
    return os.path.isfile(path)  # noqa: PTH113 - Path.is_file raises


def read_json(path: Path) -> Any:
    """The JSON value in `path`, which is UTF-8; a ValueError also where it is nested too deeply to be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def write_content(path: Path, content: bytes | str) -> None:
    """Write all of `content` to `path`, whole or not at all; text as UTF-8."""
    encoded = content.encode() if isinstance(content, str) else content
    write_atomically(path, lambda file: file.write(encoded))


@contextlib.contextmanager
def file_lock(lock: Path, wait: bool = True) -> Iterator[bool]:
    """Let one process at a time through; the system frees the lock when a process dies, and the file is gone after use.

    Gives whether the lock is held: it is not where the system has none, or where another process has it and `wait` is
    off.
    """
    file, held = _locked(lock, wait)
    try:
        yield held
    finally:
        if held:  # taken away before it is freed: who waits for it sees that it is gone
            with contextlib.suppress(OSError):
                lock.unlink()
        file.close()


def _locked(lock: Path, wait: bool) -> tuple[BinaryIO, bool]:
    while True:
        file = lock.open("ab")
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(file.fileno()), lock.stat()):
                return file, True
        except FileNotFoundError:  # who had it took it away: the next one has a file of its own
            pass
        except (ImportError, OSError):
            return file, False
        file.close()
