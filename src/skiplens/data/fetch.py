"""Get a data set by name: from the user's folder, the cache or its authors, always with checksums."""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from skiplens.base import DataError, Progress, silent
from skiplens.base.files import file_lock, is_file, is_folder, user_path
from skiplens.data import download
from skiplens.data.catalogue import CATALOGUE, DataSet, Part, look_up
from skiplens.data.download import cache_folder, cached, explain_os_errors, fill, read_gzip, read_tar, require_checksum
from skiplens.data.images import ImageSet, sample


def get(
    name: str, root: str | os.PathLike[str] | None = None, split: str = "train", progress: Progress = silent
) -> ImageSet:
    """The data set called `name`, fetched if it is not on this machine yet.

    Looked for in this order: the folder `root` (or SKIPLENS_DATA), the cache (SKIPLENS_CACHE or the system's), the
    authors' download. Every route gives the same bytes: each file is used only if its SHA-256 is the published one.

    Args:
        name: mnist, fashion-mnist, cifar10 or cifar100.
        root: A folder that may hold the files: plain, as .gz or as the authors' archive.
        split: train or test.
        progress: Called while downloading, in bytes.
    """
    data_set = look_up(name)
    wanted = data_set.split(split)
    folder = user_folder(root)
    contents = find(data_set, wanted, folder) if folder else None
    if contents is None:
        target = cache_folder() / name
        download.sweep(target.parent)
        contents = cached(wanted, target)
        if contents is None:
            fill_cache(data_set, partial(_from_authors, data_set, target.parent, progress))
            contents = cached(wanted, target)
        if contents is None:
            raise DataError(f"{target} was filled just now but does not read back; is the disk sound?")
    return data_set.assemble(contents, [part.name for part in wanted])


@dataclass(frozen=True)
class Availability:
    """One row of the list of data sets: what it is, where it is, and how large the download would be."""

    name: str
    train: int
    test: int
    shape: tuple[int, int, int]
    classes: int
    place: str
    download_bytes: int


def available(root: str | os.PathLike[str] | None = None) -> list[Availability]:
    """The known data sets with the place each would be read from now; nothing is fetched and nothing is hashed."""
    digits = sample()
    rows = [Availability("sample", len(digits), 0, digits.shape, len(digits.classes), "embedded in the package", 0)]
    folder = user_folder(root)
    for entry in CATALOGUE.values():
        size = sum(archive.size for archive in entry.archives)
        train, test = entry.samples("train"), entry.samples("test")
        place = str(place_of(entry.name, folder) or "not fetched yet")
        rows.append(Availability(entry.name, train, test, entry.shape, len(entry.classes), place, size))
    return rows


def place_of(name: str, root: str | os.PathLike[str] | None = None) -> Path | None:
    """The folder a data set would be read from, the user's before the cache; None where it is not on this machine."""
    data_set, folder = look_up(name), user_folder(root)
    if folder and holds(data_set, folder):
        return folder
    target = cache_folder() / data_set.name
    return target if all(is_file(target / part.name) for part in data_set.parts) else None


def is_cached(data_set: DataSet) -> bool:
    """Whether the cache holds all parts of the data set, whole."""
    return cached(data_set.parts, cache_folder() / data_set.name) is not None


def fill_cache(data_set: DataSet, route: Callable[[], Iterator[tuple[Part, bytes]]]) -> None:
    """Put the parts that `route` gives into the cache: all of them, checked, or none. One process at a time."""
    target = cache_folder() / data_set.name
    arriving = _arriving(data_set, target.parent)
    with explain_os_errors(data_set, target.parent):
        target.parent.mkdir(parents=True, exist_ok=True)
        with file_lock(target.parent / f".{data_set.name}.lock"):
            if is_cached(data_set):  # another process may have filled it while we waited
                return
            try:
                fill(data_set, route(), target)
                shutil.rmtree(arriving, ignore_errors=True)
            except DataError as error:
                with suppress(OSError):  # an unfinished download stays, an empty folder does not
                    arriving.rmdir()
                addresses = "\n".join(f"  {archive.url}" for archive in data_set.archives)
                raise DataError(
                    f"{data_set.name} is not on this machine and could not be fetched: {error}\n"
                    f"To place it by hand, get these files on a machine with network\n{addresses}\n"
                    f"put them into a folder named {data_set.name}, and name the folder above it with SKIPLENS_DATA or "
                    "root. In a checkout of Skiplens, `make data` asks mirrors for some sets."
                ) from error


def _from_authors(data_set: DataSet, cache: Path, progress: Progress) -> Iterator[tuple[Part, bytes]]:
    """The parts out of the authors' archives."""
    by_name = {part.name: part for part in data_set.parts}
    for archive in data_set.archives:
        path = download.download(archive, _arriving(data_set, cache), progress)
        part = by_name.get(archive.name.removesuffix(".gz"))
        if part is None:
            yield from read_tar(path, data_set.parts)
        else:
            yield part, read_gzip(path, part)


def _arriving(data_set: DataSet, cache: Path) -> Path:
    """Where downloads are gathered; kept after an interruption so that the next call goes on from there."""
    return cache / f".arriving-{data_set.name}"


def user_folder(root: str | os.PathLike[str] | None) -> Path | None:
    """The folder the user named, by argument or by SKIPLENS_DATA; None if there is none."""
    named, by = (root, "root") if root is not None else (os.environ.get("SKIPLENS_DATA") or None, "SKIPLENS_DATA")
    if named is None:
        return None
    folder = user_path(named)
    if not is_folder(folder):
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
            return [require_checksum(part, _content(files[part], part), str(files[part])) for part in wanted]
        for archive in data_set.archives:
            if archive.name.endswith(".tar.gz") and (folder / archive.name).is_file():
                return _from_archive(folder / archive.name, wanted)
    return None


def _content(path: Path, part: Part) -> bytes:
    return read_gzip(path, part) if path.suffix == ".gz" else path.read_bytes()


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
    others = (part for other in CATALOGUE.values() if other.name != data_set.name for part in other.parts)
    twins = {part.sha256 for part in others if part.size == smallest.size}
    return hashlib.sha256(_content(files[smallest], smallest)).hexdigest() in twins


def _file_of(part: Part, folder: Path) -> Path | None:
    return next((path for path in (folder / part.name, folder / f"{part.name}.gz") if path.is_file()), None)


def _from_archive(path: Path, wanted: Sequence[Part]) -> list[bytes]:
    found = {part: require_checksum(part, content, f"{path}/{part.name}") for part, content in read_tar(path, wanted)}
    for part in wanted:
        if part not in found:
            raise DataError(f"{path} does not hold {part.name}; is it the binary version? Fetch it again.")
    return [found[part] for part in wanted]
