"""Two tiny data sets with the layout of the real ones, so that every route can be walked without a network."""

import gzip
import hashlib
import io
import json
import struct
import tarfile
from pathlib import Path
from typing import ClassVar

import torch

from skiplens.data.catalogue import Archive, DataSet, Part
from skiplens.data.formats import write_cifar


def random_bytes(*shape: int, seed: int = 0, high: int = 256) -> torch.Tensor:
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)


def write_idx(array: torch.Tensor) -> bytes:
    """The idx file that holds the uint8 `array`."""
    header = struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.contiguous().numpy().tobytes()


class ToyDigits:
    """Seven training and three test images of 5×4 pixels in four idx files."""

    images = random_bytes(7, 5, 4)
    labels = random_bytes(7, seed=1, high=10)
    contents: ClassVar = {
        "train-images-idx3-ubyte": write_idx(images),
        "train-labels-idx1-ubyte": write_idx(labels),
        "t10k-images-idx3-ubyte": write_idx(images[:3]),
        "t10k-labels-idx1-ubyte": write_idx(labels[:3]),
    }

    @classmethod
    def data_set(cls, host: str = "http://127.0.0.1:9/") -> DataSet:
        parts = [part_of(name, content) for name, content in cls.contents.items()]
        archives = tuple(archive_of(f"{host}{name}.gz", gzipped(c)) for name, c in cls.contents.items())
        return DataSet("toy-digits", tuple("0123456789"), (1, 5, 4), tuple(parts[:2]), tuple(parts[2:]), archives)


class ToyColours:
    """Six training images in two files and three test images, 3×32×32, in CIFAR's records."""

    images = random_bytes(9, 3, 32, 32)
    labels = random_bytes(9, seed=1, high=10)
    contents: ClassVar = {
        "data_batch_1.bin": write_cifar(images[:3], labels[:3]),
        "data_batch_2.bin": write_cifar(images[3:6], labels[3:6]),
        "test_batch.bin": write_cifar(images[6:], labels[6:]),
    }

    @classmethod
    def data_set(cls, host: str = "http://127.0.0.1:9/") -> DataSet:
        parts = [part_of(name, content) for name, content in cls.contents.items()]
        archive = archive_of(f"{host}toy-binary.tar.gz", tarred(cls.contents))
        names = tuple(f"colour {i}" for i in range(10))
        return DataSet("toy-colours", names, (3, 32, 32), tuple(parts[:2]), tuple(parts[2:]), (archive,), label_bytes=1)

    @classmethod
    def as_pictures(cls) -> dict[str, bytes]:
        """The same pixels as the registry's package has them: one image a row, labels in JSON."""
        files = {"train_lables.json": cls.labels[:6].tolist(), "test_lables.json": cls.labels[6:].tolist()}
        packed = {name: json.dumps(labels).encode() for name, labels in files.items()}
        for name, chosen in (("data_batch_1", slice(0, 3)), ("data_batch_2", slice(3, 6)), ("test_batch", slice(6, 9))):
            packed[f"{name}.png"] = png(cls.images[chosen].reshape(3, 3, 1024).permute(0, 2, 1))
        return packed


def part_of(name: str, content: bytes) -> Part:
    return Part(name, len(content), hashlib.sha256(content).hexdigest())


def archive_of(url: str, content: bytes) -> Archive:
    return Archive(url, len(content), f"md5:{hashlib.md5(content).hexdigest()}")


def gzipped(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)


def tarred(contents: dict[str, bytes], folder: str = "inner", mode: str = "gz") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=f"w:{mode}") as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    raw = buffer.getvalue()
    # Bytes 4 to 8 of a gzip file are the time it was made; without them the archive is the same every time.
    return raw[:4] + b"\0\0\0\0" + raw[8:] if mode == "gz" else raw


def png(pixels: torch.Tensor) -> bytes:
    """A PNG of uint8 pixels (height, width, 3)."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels.contiguous().numpy()).save(buffer, "png")
    return buffer.getvalue()


def write_all(folder: Path, contents: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return folder
