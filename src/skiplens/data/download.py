"""The canonical download: pooch checks and places the files, and a transfer that broke off is continued."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from skiplens.core.doors import open_door
from skiplens.core.errors import DataError
from skiplens.core.progress import Progress
from skiplens.data.catalogue import Archive

_ATTEMPTS = 3
_CHUNK = 1 << 16
_CONNECT_AND_READ_SECONDS = (10, 60)


class RouteClosed(DataError):  # noqa: N818 - it says what happened, and the next route is tried
    """A way to get a data set does not work here; the message is the reason."""


def download(archive: Archive, folder: Path, progress: Progress) -> Path:
    """The archive as a file in `folder`, complete and with the right checksum; continued if a part of it is there."""
    pooch = open_door("pooch", "downloading data sets")
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f"{archive.name}.unfinished"
    for attempt in ("continued", "anew") if unfinished.exists() else ("anew",):
        try:
            return _retrieve(pooch, archive, unfinished, progress)
        except ValueError as error:  # pooch's word for a wrong checksum; the file is gone by now
            if attempt == "anew":
                raise RouteClosed(f"{archive.url} has the wrong checksum ({_first_line(error)})") from error
    raise AssertionError("unreachable: the last attempt returns or raises")


def _retrieve(pooch: Any, archive: Archive, unfinished: Path, progress: Progress) -> Path:
    transfer = _Transfer(unfinished, archive.size, progress)
    with _quiet(pooch.get_logger()):
        path = pooch.retrieve(
            archive.url, known_hash=archive.checksum, fname=archive.name, path=unfinished.parent, downloader=transfer
        )
    return Path(path)


class _Transfer:
    """A downloader for pooch that writes into one unfinished file and goes on where that ends."""

    def __init__(self, unfinished: Path, expected: int, progress: Progress) -> None:
        self.unfinished, self.expected, self.progress = unfinished, expected, progress

    def __call__(self, url: str, output_file: str, pooch: Any) -> None:
        requests, urllib3 = open_door("requests", "downloads"), open_door("urllib3", "downloads")
        broken = (requests.RequestException, urllib3.exceptions.HTTPError)
        for attempt in range(_ATTEMPTS):
            try:
                self._transfer(requests, url)
                self.unfinished.replace(output_file)
                return
            except broken as error:
                if attempt == _ATTEMPTS - 1 or isinstance(error, (requests.HTTPError, requests.ConnectTimeout)):
                    raise RouteClosed(f"{url} could not be downloaded: {_reason(error, requests)}") from error

    def _transfer(self, requests: Any, url: str) -> None:
        start = self.unfinished.stat().st_size if self.unfinished.exists() else 0
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
        with requests.get(url, headers=headers, stream=True, timeout=_CONNECT_AND_READ_SECONDS) as response:
            if response.status_code == requests.codes.requested_range_not_satisfiable:
                self.unfinished.unlink()
                raise requests.ConnectionError("the unfinished file is longer than the file itself")
            response.raise_for_status()
            self._write(response, start if response.status_code == requests.codes.partial_content else 0)

    def _write(self, response: Any, start: int) -> None:
        announced = response.headers.get("Content-Length")
        total, done = start + int(announced) if announced else self.expected, start
        label = f"downloading {self.unfinished.name.removesuffix('.unfinished')}"
        try:
            with self.unfinished.open("ab" if start else "wb") as file:
                # Raw bytes: a host that declares a .gz file as an encoding must not have it unpacked on the way.
                for chunk in response.raw.stream(_CHUNK, decode_content=False):
                    file.write(chunk)
                    done += len(chunk)
                    self.progress(label, done, total)
        except OSError as error:
            if error.errno is not None:  # the disk, not the network: what was written is in the way
                self.unfinished.unlink(missing_ok=True)
            raise


def _reason(error: Exception, requests: Any) -> str:
    """Why a transfer failed: the answer of the host, or what the network said at the very bottom."""
    if isinstance(error, requests.HTTPError):
        return _first_line(error)
    bottom: BaseException = error
    while bottom.__context__ is not None:
        bottom = bottom.__context__
    return f"no network, or it broke off ({_first_line(bottom)})"


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]


@contextmanager
def _quiet(logger: Any) -> Iterator[None]:
    """Keep pooch's own lines off the terminal: progress is reported through the callback."""
    before = logger.level
    logger.setLevel("WARNING")
    try:
        yield
    finally:
        logger.setLevel(before)
