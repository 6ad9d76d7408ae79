"""CIFAR-10 in pieces of at most 60 MiB, to carry to a machine without a network, and whole again there.

`python tools/pack_cifar.py pack FOLDER` takes it from the cache (or SKIPLENS_DATA) and writes cifar10.0.xz, … into
FOLDER. `python tools/pack_cifar.py unpack FOLDER TARGET` writes the authors' files into TARGET/cifar-10-batches-bin;
name TARGET by SKIPLENS_DATA. Nothing is lost: the authors' checksums are looked at when the files are read.
"""

import lzma
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt

from skiplens.base.errors import DataError
from skiplens.data.catalogue import CATALOGUE
from skiplens.data.fetch import get
from skiplens.data.formats import write_cifar

LIMIT, IMAGES = 60 * 2**20, 10_000  # bytes of a piece, images of a file
RECORD, SHAPE = 3073, (3, 32, 32)
Bytes = npt.NDArray[np.uint8]


def packed(content: bytes) -> bytes:
    """The records of a file, compressed: each pixel as its difference from the mean of those above and beside it."""
    records = np.frombuffer(content, np.uint8).reshape(-1, RECORD)
    images = records[:, 1:].reshape(-1, *SHAPE)
    differences = images.copy()
    for row in range(SHAPE[1]):
        for column in range(SHAPE[2]):
            differences[:, :, row, column] -= _guess(images, row, column)
    alike = np.ascontiguousarray(differences.transpose(1, 2, 3, 0))  # what is alike stands together
    return lzma.compress(records[:, 0].tobytes() + alike.tobytes(), preset=1)


def unpacked(content: bytes) -> bytes:
    """What `packed` was given."""
    numbers = np.frombuffer(lzma.decompress(content), np.uint8)
    count = len(numbers) // RECORD
    images = numbers[count:].reshape(*SHAPE, count).transpose(3, 0, 1, 2).copy()
    for row in range(SHAPE[1]):
        for column in range(SHAPE[2]):
            images[:, :, row, column] += _guess(images, row, column)
    return np.concatenate([numbers[:count, None], images.reshape(count, -1)], axis=1).tobytes()


def _guess(images: Bytes, row: int, column: int) -> Bytes:
    """The mean of the pixels above and to the left, of those that there are."""
    near = [images[:, :, row - 1, column]] * (row > 0) + [images[:, :, row, column - 1]] * (column > 0)
    total = sum((pixels.astype(np.uint16) for pixels in near), np.zeros(images.shape[:2], np.uint16))
    return (total // max(1, len(near))).astype(np.uint8)


def pack(folder: Path) -> None:
    """Write the pieces; a file of ten thousand images is never cut."""
    contents: list[bytes] = []
    for split in ("train", "test"):
        found = get("cifar10", split=split)
        thousands = zip(found.images.split(IMAGES), found.labels.split(IMAGES), strict=True)
        contents += [packed(write_cifar(images, labels)) for images, labels in thousands]
    folder.mkdir(parents=True, exist_ok=True)
    for number, piece in enumerate(pieces(contents)):
        (folder / f"cifar10.{number}.xz").write_bytes(piece)


def pieces(contents: list[bytes], limit: int = LIMIT) -> list[bytes]:
    """Contents joined as long as the limit allows, each with its length in front."""
    found = [b""]
    for content in contents:
        entry = len(content).to_bytes(8, "big") + content
        if found[-1] and len(found[-1]) + len(entry) > limit:
            found.append(b"")
        found[-1] += entry
    return found


def entries(piece: bytes) -> list[bytes]:
    """The contents of a piece."""
    found, place = [], 0
    while place < len(piece):
        length = int.from_bytes(piece[place : place + 8], "big")
        found.append(piece[place + 8 : place + 8 + length])
        place += 8 + length
    return found


def unpack(folder: Path, target: Path) -> None:
    """Write the authors' files."""
    parts = [part for split in ("train", "test") for part in CATALOGUE["cifar10"].split(split)]
    contents = [entry for file in sorted(folder.glob("cifar10.*.xz")) for entry in entries(file.read_bytes())]
    if len(contents) != len(parts):
        raise DataError(f"{folder} holds {len(contents)} of the {len(parts)} files of CIFAR-10; carry all pieces.")
    place = target / "cifar-10-batches-bin"
    place.mkdir(parents=True, exist_ok=True)
    for part, content in zip(parts, contents, strict=True):
        (place / part.name).write_bytes(unpacked(content))


if __name__ == "__main__":
    verbs = {"pack": pack, "unpack": unpack}
    if len(sys.argv) < 3 or sys.argv[1] not in verbs:
        raise SystemExit(__doc__)
    verbs[sys.argv[1]](*map(Path, sys.argv[2:]))
