"""The authors' files: downloaded and resumed with pooch, unpacked, checked, kept in a cache that several may use."""

import errno
import gzip
import hashlib
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from skiplens.base import DataError, InvalidInputError, Progress, readable, refuse_if
from skiplens.base.files import file_lock, is_file, user_path
from skiplens.base.optional_imports import optional_import
from skiplens.data.catalogue import Archive, DataSet, Part

_UNUSABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ENAMETOOLONG)
_ATTEMPTS = 3
_CONNECT_AND_READ_SECONDS = (10, 60)
_FOLLOWED = ("https://",)  # how addresses begin that are followed, also by redirection


class RouteClosed(DataError):  # noqa: N818 - it says what happened, and the next route is tried
    """A way to get a data set does not work here; the message is the reason."""


def download(archive: Archive, folder: Path, progress: Progress) -> Path:
    """The archive as a file in `folder`, complete and with the right checksum; continued if a part of it is there."""
    pooch = optional_import("pooch", "downloading data sets")
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f"{archive.name}.unfinished"
    transfer, logger = _Transfer(unfinished, archive.size, progress), pooch.get_logger()
    for attempt in ("continued", "anew") if unfinished.exists() else ("anew",):
        try:
            with ExitStack() as stack:  # pooch's own lines stay off the terminal: progress goes through the callback
                stack.callback(logger.setLevel, logger.level)
                logger.setLevel("WARNING")
                known = {"known_hash": archive.checksum, "fname": archive.name, "path": folder}
                return Path(pooch.retrieve(archive.url, **known, downloader=transfer))
        except ValueError as error:  # pooch's word for a wrong checksum; the file is gone by now
            if attempt == "anew":
                raise RouteClosed(f"{archive.url} has the wrong checksum ({_first_line(error)})") from error
    raise AssertionError("unreachable: the last attempt returns or raises")


class _Transfer:
    """A downloader for pooch that writes into one unfinished file and goes on where that ends."""

    def __init__(self, unfinished: Path, expected: int, progress: Progress) -> None:
        self.unfinished, self.expected, self.progress = unfinished, expected, progress

    def __call__(self, url: str, output_file: str, pooch: Any) -> None:
        requests, urllib3 = optional_import("requests", "downloads"), optional_import("urllib3", "downloads")
        broken = (requests.RequestException, urllib3.exceptions.HTTPError)
        final = (requests.HTTPError, requests.ConnectTimeout, requests.exceptions.InvalidSchema)
        with requests.Session() as session:
            session.adapters.clear()
            for start in _FOLLOWED:
                session.mount(start, requests.adapters.HTTPAdapter())
            for attempt in range(_ATTEMPTS):
                try:
                    self._receive(requests, session, url)
                    self.unfinished.replace(output_file)
                    return
                except broken as error:
                    if attempt == _ATTEMPTS - 1 or isinstance(error, final):
                        raise RouteClosed(f"{url} could not be downloaded: {_reason(error, requests)}") from error
                except RouteClosed:  # too long: no part of it is of use
                    self.unfinished.unlink(missing_ok=True)
                    raise

    def _receive(self, requests: Any, session: Any, url: str) -> None:
        start = self.unfinished.stat().st_size if self.unfinished.exists() else 0
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
        with session.get(url, headers=headers, stream=True, timeout=_CONNECT_AND_READ_SECONDS) as response:
            if response.status_code == requests.codes.requested_range_not_satisfiable:
                self.unfinished.unlink()
                raise requests.ConnectionError("the unfinished file is longer than the file itself")
            response.raise_for_status()
            self._write(response, start if response.status_code == requests.codes.partial_content else 0)

    def _write(self, response: Any, start: int) -> None:
        announced = response.headers.get("Content-Length", "")
        total, done = start + int(announced) if announced.isdecimal() else self.expected, start
        self._require_size(total, response.url)
        label = f"downloading {self.unfinished.name.removesuffix('.unfinished')}"
        try:
            with self.unfinished.open("ab" if start else "wb") as file:
                # Raw bytes: a host that declares a .gz file as an encoding must not have it unpacked on the way.
                for chunk in response.raw.stream(1 << 16, decode_content=False):
                    done += len(chunk)
                    self._require_size(done, response.url)
                    file.write(chunk)
                    self.progress(label, done, total)
        except OSError as error:
            if error.errno is not None:  # the disk, not the network: what was written is in the way
                self.unfinished.unlink(missing_ok=True)
            raise

    def _require_size(self, size: int, url: str) -> None:
        if size > self.expected:
            raise RouteClosed(f"{url} is longer than the {self.expected} bytes of the published file")


def _reason(error: Exception, requests: Any) -> str:
    """Why a transfer failed: the answer of the host, or what the network said at the very bottom."""
    if isinstance(error, requests.HTTPError):
        return _first_line(error)
    if isinstance(error, requests.exceptions.InvalidSchema):
        return f"it leads to an address without encryption ({_first_line(error)})"
    bottom: BaseException = error
    while bottom.__context__ is not None:
        bottom = bottom.__context__
    return f"no network, or it broke off ({_first_line(bottom)})"


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]


def cache_folder() -> Path:
    """The folder of the cache: SKIPLENS_CACHE, or the place this system has for caches."""
    named = os.environ.get("SKIPLENS_CACHE")
    if named:
        return user_path(named) / "data"
    try:
        return user_path(optional_import("pooch", "finding the cache folder").os_cache("skiplens")) / "data"
    except (RuntimeError, InvalidInputError) as error:
        raise InvalidInputError("No home folder is known here. Name a cache folder with SKIPLENS_CACHE.") from error


def cached(parts: Iterable[Part], folder: Path) -> list[bytes] | None:
    """The verified contents of the parts in `folder`, or None if one is missing or damaged."""
    contents = []
    for part in parts:
        path = folder / part.name
        if not is_file(path):
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
        refuse_if(missing, f"What came for {data_set.name} does not hold {', '.join(missing)}.", DataError)
        shutil.rmtree(target, ignore_errors=True)
        ready.replace(target)


def sweep(cache: Path) -> None:
    """Remove what killed fetches have left in the cache and no later one continues; never that of a process at work."""
    for lock in cache.glob(".*.lock"):
        name = lock.name[1:].removesuffix(".lock")
        with suppress(OSError), file_lock(lock, wait=False) as held:
            # Unfinished downloads and whole archives stay: the next fetch goes on from there. "tmp" is pooch's.
            left = [*cache.glob(f".{name}-*"), *cache.glob(f".arriving-{name}/tmp*")] if held else []
            for path in left:
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()


@contextmanager
def explain_os_errors(data_set: DataSet, folder: Path) -> Iterator[None]:
    """Turn a full disk or a folder that cannot be written into an error that says what to do."""
    try:
        yield
    except OSError as error:
        needed = readable(sum(part.size for part in data_set.parts) + sum(a.size for a in data_set.archives))
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DataError(
                f"No space left in {folder} for {data_set.name}, which needs about {needed}. "
                "Free some, or name a cache folder elsewhere with SKIPLENS_CACHE."
            ) from error
        if error.errno in _UNUSABLE:
            raise DataError(
                f"The cache folder {folder} cannot be written ({error.strerror}). Name another one with SKIPLENS_CACHE."
            ) from error
        raise


def require_checksum(part: Part, content: bytes, where: str) -> bytes:
    """The content itself if it is the published one; else an error that says in what it differs."""
    if len(content) != part.size:
        problem = "is truncated" if len(content) < part.size else "is too long"
        raise DataError(
            f"{where} {problem}: {part.name} has {part.size} bytes, this has {len(content)}. "
            "Delete it and fetch it again."
        )
    found = hashlib.sha256(content).hexdigest()
    if found != part.sha256:
        raise DataError(
            f"{where} has the wrong checksum: its SHA-256 is {found}, wanted {part.sha256} for {part.name}. "
            "It is damaged or another file; delete it and fetch it again."
        )
    return content


def read_gzip(path: Path, part: Part) -> bytes:
    """The uncompressed content of a `.gz` file, never more than the part's size and one byte."""
    try:
        with gzip.open(path) as file:
            return file.read(part.size + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is truncated or damaged ({error}). Delete it and fetch it again.") from error


def read_tar(path: Path, wanted: Sequence[Part]) -> Iterator[tuple[Part, bytes]]:
    """Each wanted part in a tar archive (compressed or not) with its content, in the order of the archive.

    A member counts by the last piece of its path, plain or with `.gz` behind it. Nothing is written to disk.
    """
    by_name = {part.name: part for part in wanted}
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                part = by_name.get(Path(member.name).name.removesuffix(".gz"))
                file = archive.extractfile(member) if part and member.isfile() else None
                if part and file:
                    reader = gzip.open(file) if member.name.endswith(".gz") else file
                    yield part, reader.read(part.size + 1)
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is truncated or damaged ({error}). Delete it and fetch it again.") from error
