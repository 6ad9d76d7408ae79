"""Read known files out of archives: only by name, only of the announced size, and used only if their hash agrees."""

import gzip
import hashlib
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from skiplens.core.errors import DataError
from skiplens.data.catalogue import Part


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
