"""The known data sets: the files that make them and what these must hash to.

Every route ends in the same *parts*, the uncompressed files as their authors published them; a part is used only if its
SHA-256 is the one written here, so all routes give the same arrays.
"""

from dataclasses import dataclass
from typing import Literal

import torch

from skiplens.base.errors import DataError, did_you_mean
from skiplens.data import images
from skiplens.data.formats import read_cifar, read_idx
from skiplens.data.images import ImageSet

Split = Literal["train", "test"]


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
        if name not in ("train", "test"):
            raise DataError(f"{self.name} has the splits train and test; got {name!r}.")
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
    if name not in CATALOGUE:
        raise DataError(f"There is no data set {name!r}. {did_you_mean(name, CATALOGUE)}")
    return CATALOGUE[name]


_MNIST = (  # SHA-256 of each file, and the bytes and the MD5 of its .gz
    ("ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db", 9912422, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
    ("65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5", 28881, "d53e105ee54ea40749a09fcbcd1e9432"),
    ("0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7", 1648877, "9fb629c4189551a2d022fa330f9573f3"),
    ("ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2", 4542, "ec29112dd5afa0611ce80d1b7f02629c"),
)
_FASHION = (
    ("c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888", 26421880, "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
    ("bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9", 29515, "25c81989df183df01b3e8a0aad5dffbe"),
    ("5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b", 4422102, "bef4ecab320f06d8554ea6380940ec79"),
    ("0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34", 5148, "bb300cfdad3c16e7a12a480ee83cd310"),
)


def _idx_set(
    name: str, classes: tuple[str, ...], host: str, folder: str, files: tuple[tuple[str, int, str], ...]
) -> DataSet:
    """MNIST or its look-alike: four files of the same names and sizes, each a `.gz` of its own."""
    names = (f"{split}-{kind}-ubyte" for split in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))
    described = list(zip(names, (47040016, 60008, 7840016, 10008), files, strict=True))
    parts = tuple(Part(part, size, sha256) for part, size, (sha256, _, _) in described)
    archives = tuple(Archive(f"{host}{part}.gz", packed, f"md5:{md5}") for part, _, (_, packed, md5) in described)
    return DataSet(name, classes, (1, 28, 28), parts[:2], parts[2:], archives, (folder,))


_FASHION_HOST = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/"
_CIFAR_HOST = "https://www.cs.toronto.edu/~kriz/"

_CIFAR10 = DataSet(
    name="cifar10",
    classes=images.CIFAR10,
    shape=(3, 32, 32),
    train=(
        Part("data_batch_1.bin", 30730000, "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
        Part("data_batch_2.bin", 30730000, "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
        Part("data_batch_3.bin", 30730000, "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
        Part("data_batch_4.bin", 30730000, "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
        Part("data_batch_5.bin", 30730000, "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
    ),
    test=(Part("test_batch.bin", 30730000, "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),),
    archives=(Archive(_CIFAR_HOST + "cifar-10-binary.tar.gz", 170052171, "md5:c32a1d4ab5d03f1284b67883e8d87530"),),
    folders=("cifar-10-batches-bin",),
    label_bytes=1,
)

_CIFAR100 = DataSet(
    name="cifar100",
    classes=images.CIFAR100,
    shape=(3, 32, 32),
    train=(Part("train.bin", 153700000, "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29"),),
    test=(Part("test.bin", 30740000, "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a"),),
    archives=(Archive(_CIFAR_HOST + "cifar-100-binary.tar.gz", 168513733, "md5:03b5dce01913d631647c71ecec9e9cb8"),),
    folders=("cifar-100-binary",),
    label_bytes=2,
)

CATALOGUE: dict[str, DataSet] = {
    "mnist": _idx_set("mnist", images.DIGITS, "https://ossci-datasets.s3.amazonaws.com/mnist/", "MNIST/raw", _MNIST),
    "fashion-mnist": _idx_set("fashion-mnist", images.FASHION, _FASHION_HOST, "FashionMNIST/raw", _FASHION),
    "cifar10": _CIFAR10,
    "cifar100": _CIFAR100,
}
