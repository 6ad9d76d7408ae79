"""CIFAR-10 in six small files, to carry to a machine without a network, and whole again there.

`python tools/pack_cifar.py pack FOLDER` takes it from the cache (or SKIPLENS_DATA) and writes data_batch_1.bin.bz2, …
into FOLDER, 17 MiB each. `python tools/pack_cifar.py unpack FOLDER TARGET` writes the authors' files for those that are
in FOLDER into TARGET/cifar-10-batches-bin, so they may come one after the other; name TARGET by SKIPLENS_DATA. Nothing
is lost: the authors' checksums are looked at when the files are read.
"""

import bz2
import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt

from skiplens.data.catalogue import CATALOGUE
from skiplens.data.fetch import get
from skiplens.data.formats import write_cifar

IMAGES = 10_000  # of a file
RECORD, SIDE = 3073, 32
FROM = np.array([0, 128, 128], np.int16)[:, None]  # green is counted from 0, the two differences from -128
Planes = npt.NDArray[np.int16]


def packed(content: bytes) -> bytes:
    """The records of a file, compressed: green, red - green, blue - green, each without what its neighbours tell."""
    records = np.frombuffer(content, np.uint8).reshape(-1, RECORD)
    red, green, blue = records[:, 1:].reshape(-1, 3, SIDE, SIDE).transpose(1, 2, 3, 0).astype(np.int16)
    planes = np.stack([green, red - green, blue - green])
    planes = _wrapped(planes.reshape(3, -1)).reshape(planes.shape)
    differences = planes.copy()
    for row, column in product(range(SIDE), repeat=2):
        differences[:, row, column] -= _guess(planes, row, column)
    alike = _there_and_back(differences.astype(np.uint8).transpose(0, 3, 1, 2))
    return bz2.compress(records[:, 0].tobytes() + alike.tobytes())


def unpacked(content: bytes) -> bytes:
    """What `packed` was given."""
    numbers = np.frombuffer(bz2.decompress(content), np.uint8)
    count = len(numbers) // RECORD
    differences = _there_and_back(numbers[count:].reshape(3, count, SIDE, SIDE))
    planes = np.ascontiguousarray(differences.transpose(0, 2, 3, 1)).astype(np.int16)
    for row, column in product(range(SIDE), repeat=2):
        planes[:, row, column] = _wrapped(planes[:, row, column] + _guess(planes, row, column))
    green, red, blue = planes
    images = np.stack([red + green, green, blue + green]).astype(np.uint8).transpose(3, 0, 1, 2)
    return np.concatenate([numbers[:count, None], images.reshape(count, -1)], axis=1).tobytes()


def _wrapped(values: Planes) -> Planes:
    """Three rows of numbers modulo 256, each in its range."""
    return ((values + FROM) & 255) - FROM


def _guess(planes: Planes, row: int, column: int) -> Planes | int:
    """A pixel as a plane through its three neighbours, halfway to their mean, would have it."""
    if row == column == 0:
        return 0
    above, left = planes[:, row - 1, column], planes[:, row, column - 1]
    if row == 0 or column == 0:
        return left if row == 0 else above
    return (3 * (left + above) - 2 * planes[:, row - 1, column - 1]) >> 2


def _there_and_back(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Every second row of each image turned round, so that neighbours in the file are neighbours in the image."""
    found = images.copy()
    found[..., 1::2, :] = images[..., 1::2, ::-1]
    return found


def pack(folder: Path) -> None:
    """Write the small files."""
    folder.mkdir(parents=True, exist_ok=True)
    for split in ("train", "test"):
        found = get("cifar10", split=split)
        thousands = zip(found.images.split(IMAGES), found.labels.split(IMAGES), strict=True)
        for part, (images, labels) in zip(CATALOGUE["cifar10"].split(split), thousands, strict=True):
            (folder / f"{part.name}.bz2").write_bytes(packed(write_cifar(images, labels)))


def unpack(folder: Path, target: Path) -> None:
    """Write the authors' files, side by side on all processors."""
    place = target / "cifar-10-batches-bin"
    place.mkdir(parents=True, exist_ok=True)
    small = sorted(folder.glob("*.bin.bz2"))
    with ProcessPoolExecutor() as processors:
        for path, content in zip(small, processors.map(unpacked, [path.read_bytes() for path in small]), strict=True):
            (place / path.stem).write_bytes(content)
    names = [part.name for split in ("train", "test") for part in CATALOGUE["cifar10"].split(split)]
    missing = [name for name in names if not (place / name).exists()]
    sys.stdout.write(f"{place}: {', '.join(missing) if missing else 'nothing'} missing\n")


if __name__ == "__main__":
    verbs = {"pack": pack, "unpack": unpack}
    if len(sys.argv) < 3 or sys.argv[1] not in verbs:
        raise SystemExit(__doc__)
    verbs[sys.argv[1]](*map(Path, sys.argv[2:]))
