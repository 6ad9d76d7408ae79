"""The known data sets: the files that make them and what these must hash to.

Every route ends in the same *parts*, the uncompressed files as their authors published them; a part is used only if its
SHA-256 is the one written in `catalogue.json`, so all routes give the same arrays.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from skiplens.base.errors import DataError, pick, refuse_if
from skiplens.data.formats import read_cifar, read_idx
from skiplens.data.images import ImageSet

Split = Literal["train", "test"]
FILE = Path(__file__).with_name("catalogue.json")


@dataclass(frozen=True)
class Part:
    """One uncompressed file of a data set."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Archive:
    """One file of the canonical download; a `.gz` holds one part, a `.tar.gz` several."""

    url: str
    size: int
    checksum: str

    @property
    def name(self) -> str:
        """The file name at the end of the address."""
        return self.url.rsplit("/", 1)[1]


@dataclass(frozen=True)
class DataSet:
    """All that is known about a data set; the parts of a split are in the order they are read."""

    name: str
    classes: tuple[str, ...]
    shape: tuple[int, int, int]
    train: tuple[Part, ...]
    test: tuple[Part, ...]
    archives: tuple[Archive, ...]
    folders: tuple[str, ...] = ()
    label_bytes: int = 0

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of both splits."""
        return self.train + self.test

    def split(self, name: str) -> tuple[Part, ...]:
        """The parts of the split called `name`."""
        refuse_if(name not in ("train", "test"), f"{self.name} has the splits train and test; got {name!r}.", DataError)
        return self.train if name == "train" else self.test

    def samples(self, split: str) -> int:
        """The number of images in a split, from the sizes of its parts."""
        pixels = self.shape[0] * self.shape[1] * self.shape[2]
        if self.label_bytes:
            return sum(part.size // (self.label_bytes + pixels) for part in self.split(split))
        return self.split(split)[0].size // pixels

    def assemble(self, contents: list[bytes], names: list[str]) -> ImageSet:
        """The images in the contents of one split's parts, given in order with the names to use in errors."""
        if self.label_bytes:
            pairs = [
                read_cifar(content, self.label_bytes, len(self.classes), name)
                for content, name in zip(contents, names, strict=True)
            ]
            images, labels = (torch.cat(column) for column in zip(*pairs, strict=True))
            return ImageSet(images, labels, self.classes)
        images, labels = (read_idx(content, name) for content, name in zip(contents, names, strict=True))
        return ImageSet(images.unsqueeze(1), labels.long(), self.classes)


def look_up(name: str) -> DataSet:
    """The data set called `name`."""
    return pick(CATALOGUE, name, f"There is no data set {name!r}.", DataError)


def _known(values: dict[str, Any]) -> DataSet:
    parts = {split: tuple(Part(**part) for part in values[split]) for split in ("train", "test")}
    lists = {name: tuple(values[name]) for name in ("classes", "shape", "folders")}
    return DataSet(**{**values, **lists, **parts, "archives": tuple(Archive(**one) for one in values["archives"])})


CATALOGUE: dict[str, DataSet] = {values["name"]: _known(values) for values in json.loads(FILE.read_text("utf-8"))}
