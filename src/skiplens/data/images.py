"""Labelled images in memory: bytes as stored, floats when asked for; the embedded digits; names of classes."""

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files

import torch
from torch import Tensor

from skiplens.base.errors import InvalidInputError
from skiplens.data.formats import read_idx
from skiplens.graph.batch import Batch


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images uint8 (samples, channels, height, width), labels int64 (samples), and the names of the classes."""

    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        """Refuse shapes and types that do not belong together."""
        if self.images.dtype != torch.uint8 or self.images.ndim != 4:
            raise InvalidInputError(
                f"Images must be uint8 with shape (samples, channels, height, width); got {self.images.dtype} "
                f"with shape {tuple(self.images.shape)}."
            )
        if self.labels.shape != self.images.shape[:1] or self.labels.dtype != torch.int64:
            raise InvalidInputError(
                f"Labels must be int64 with shape ({len(self.images)},), one per image; got {self.labels.dtype} "
                f"with shape {tuple(self.labels.shape)}."
            )

    def __len__(self) -> int:
        """The number of images."""
        return self.images.shape[0]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of each image."""
        channels, height, width = self.images.shape[1:]
        return channels, height, width

    def first(self, count: int) -> "ImageSet":
        """The first `count` images."""
        return self.select(torch.arange(min(count, len(self))))

    def select(self, chosen: Tensor) -> "ImageSet":
        """The images with the indices `chosen`, in that order."""
        return ImageSet(self.images[chosen], self.labels[chosen], self.classes)

    def pixels(self, dtype: torch.dtype | None = None) -> Tensor:
        """The images as floats in [0, 1], in torch's default dtype unless given."""
        return as_floats(self.images, dtype)

    def one_hot(self, dtype: torch.dtype | None = None) -> Tensor:
        """The labels as rows of the identity, (samples, classes)."""
        return torch.eye(len(self.classes), dtype=dtype or torch.get_default_dtype())[self.labels]

    def batch(self, dtype: torch.dtype | None = None) -> Batch:
        """All images as floats in [0, 1] with their labels."""
        return Batch(self.pixels(dtype), self.labels)

    def stream(self, order: Tensor, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The images (uint8) and labels with the indices in `order`, `batch_size` at a time."""
        for chosen in order.split(batch_size):
            yield self.images[chosen], self.labels[chosen]


def as_floats(images: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Bytes 0…255 as floats 0…1, in torch's default dtype unless given."""
    return images.to(dtype or torch.get_default_dtype()) / 255


def sample() -> ImageSet:
    """The first 2,000 MNIST training digits (28×28, ten classes), read from the package itself.

    They are the leading images and not a balanced choice, so what a paper says about "the first 1000 training images"
    can be checked without fetching anything. Licence: see `skiplens/data/sample/NOTICE.md`.

    Examples:
        >>> digits = sample()
        >>> tuple(digits.images.shape), digits.labels[:5].tolist()
        ((2000, 1, 28, 28), [5, 0, 4, 1, 9])
    """
    names = [f"mnist-first-2000-{kind}-ubyte.gz" for kind in ("images-idx3", "labels-idx1")]
    packed = (files("skiplens.data").joinpath("sample", name).read_bytes() for name in names)
    images, labels = (read_idx(gzip.decompress(data), name) for data, name in zip(packed, names, strict=True))
    return ImageSet(images.unsqueeze(1), labels.long(), tuple("0123456789"))
