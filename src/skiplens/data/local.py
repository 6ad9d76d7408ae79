"""Data sets that already lie in a folder: plain files, `.gz` files or the authors' archive, in the usual layouts."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from skiplens.core.errors import DataError
from skiplens.data.catalogue import CATALOGUE, DataSet, Part
from skiplens.data.unpack import read_gzip, read_tar, require_checksum


def user_folder(root: str | os.PathLike[str] | None) -> Path | None:
    """The folder the user named, by argument or by SKIPLENS_DATA; None if there is none."""
    named, by = (root, "root") if root is not None else (os.environ.get("SKIPLENS_DATA") or None, "SKIPLENS_DATA")
    if named is None:
        return None
    folder = Path(named).expanduser()
    if not folder.is_dir():
        raise DataError(f"{by} names the data folder {folder}, which is not a folder. Create it or name another one.")
    return folder


def find(data_set: DataSet, wanted: Sequence[Part], root: Path) -> list[bytes] | None:
    """The verified contents of the `wanted` parts in `root`, or None if nothing of them is there."""
    for folder in _places(data_set, root):
        files = {part: file for part in wanted if (file := _file_of(part, folder))}
        if files and len(files) < len(wanted):
            missing = ", ".join(part.name for part in wanted if part not in files)
            raise DataError(f"{folder} holds a part of {data_set.name} but not {missing}. Add it (plain or as .gz).")
        if files and not _is_another(data_set, wanted, files):
            return [read_part(files[part], part) for part in wanted]
        for archive in data_set.archives:
            if archive.name.endswith(".tar.gz") and (folder / archive.name).is_file():
                return _from_archive(folder / archive.name, wanted)
    return None


def read_part(path: Path, part: Part) -> bytes:
    """The verified content of one part from its plain or its compressed file."""
    return require_checksum(part, read_gzip(path, part) if path.suffix == ".gz" else path.read_bytes(), str(path))


def holds(data_set: DataSet, root: Path) -> bool:
    """Whether all parts or the archive seem to be in `root`; only names are looked at."""
    for folder in _places(data_set, root):
        if all(_file_of(part, folder) for part in data_set.parts):
            return True
        if any((folder / archive.name).is_file() for archive in data_set.archives if archive.name.endswith(".tar.gz")):
            return True
    return False


def _places(data_set: DataSet, root: Path) -> Iterator[Path]:
    for name in (data_set.name, *data_set.folders, *(f"{data_set.name}/{inner}" for inner in data_set.folders), "."):
        if (root / name).is_dir():
            yield root / name


def _is_another(data_set: DataSet, wanted: Sequence[Part], files: dict[Part, Path]) -> bool:
    """Whether the smallest file is that of another known data set: MNIST and Fashion-MNIST share their file names."""
    smallest = min(wanted, key=lambda part: part.size)
    twins = [
        p for other in CATALOGUE.values() if other.name != data_set.name for p in other.parts if p.size == smallest.size
    ]
    path = files[smallest]
    content = read_gzip(path, smallest) if path.suffix == ".gz" else path.read_bytes()
    return hashlib.sha256(content).hexdigest() in {twin.sha256 for twin in twins}


def _file_of(part: Part, folder: Path) -> Path | None:
    for path in (folder / part.name, folder / f"{part.name}.gz"):
        if path.is_file():
            return path
    return None


def _from_archive(path: Path, wanted: Sequence[Part]) -> list[bytes]:
    found = {part: require_checksum(part, content, f"{path}/{part.name}") for part, content in read_tar(path, wanted)}
    for part in wanted:
        if part not in found:
            raise DataError(f"{path} does not hold {part.name}; is it the binary version? Fetch it again.")
    return [found[part] for part in wanted]
