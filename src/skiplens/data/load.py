"""Data from the words that name it: the embedded sample, a data set, or a folder of images."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from skiplens.core.errors import DataError, InvalidInputError
from skiplens.core.nearest import did_you_mean
from skiplens.core.progress import Progress, silent
from skiplens.core.randomness import Randomness
from skiplens.core.settings import Settings, option
from skiplens.data.batch import Batch, take
from skiplens.data.catalogue import CATALOGUE
from skiplens.data.decode import Framing
from skiplens.data.embedded import sample
from skiplens.data.fetch import get
from skiplens.data.folder import open_folder
from skiplens.data.images import ImageSet, as_floats
from skiplens.data.standardise import Standardisation, measure_channels

_MEASURED_IMAGES = 1024


@dataclass(frozen=True)
class LoadOptions(Settings):
    """How images become batches."""

    batch_size: int = option(64, "images per batch")
    samples: int | None = option(None, "use this many images only; none means all")
    image_size: int | None = option(None, "scale and crop the images of a folder to this many pixels a side")
    standardise: bool = option(True, "give each channel mean 0 and variance 1; else pixels in [0, 1]")
    seed: int = option(0, "seed of the order in which a folder's images are read")

    def __post_init__(self) -> None:
        """Refuse counts that are not positive."""
        super().__post_init__()
        for name in ("batch_size", "samples", "image_size"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise InvalidInputError(f"{name} must be at least 1; got {getattr(self, name)}.")


class ImageSource(Protocol):
    """Labelled images that can be read in any order: in memory or on disk."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width."""

    def __len__(self) -> int:
        """The number of images."""

    def stream(self, order: Tensor, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Images (uint8) and labels in the given order."""


@dataclass(frozen=True, eq=False)
class ImageBatches:
    """Batches of floating images with their labels; they can be gone through again and again.

    Iterating gives `Batch(inputs, targets)`, inputs (samples, channels, height, width) in torch's default dtype.
    """

    name: str
    source: ImageSource
    order: Tensor
    options: LoadOptions

    def __len__(self) -> int:
        """The number of batches."""
        return -(-self.samples // self.options.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        """Each batch, in the same order every time."""
        standardisation = self.standardisation
        for images, labels in self.source.stream(self.order[: self.samples], self.options.batch_size):
            yield Batch(standardisation(images) if standardisation else as_floats(images), labels)

    @property
    def samples(self) -> int:
        """The number of images."""
        return min(self.options.samples or len(self.source), len(self.source))

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes; the targets are places in this list."""
        return self.source.classes

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of an image."""
        return self.source.shape

    @cached_property
    def standardisation(self) -> Standardisation | None:
        """What is subtracted and divided by, or None: the statistics of the whole set, or of 1,024 images of a folder.

        They do not depend on how many samples are used, so fewer samples are the beginning of more.
        """
        if not self.options.standardise:
            return None
        order = self.order if isinstance(self.source, ImageSet) else self.order[:_MEASURED_IMAGES]
        return measure_channels(images for images, _ in self.source.stream(order, self.options.batch_size))

    def first(self, count: int) -> Batch:
        """The first `count` images as one batch."""
        return take(self, count)


def load(
    spec: str | os.PathLike[str],
    options: LoadOptions | None = None,
    *,
    root: str | os.PathLike[str] | None = None,
    progress: Progress = silent,
) -> ImageBatches:
    """Batches of the images that `spec` names: `"sample"`, a data set (`"cifar10"`, `"mnist:test"`) or a folder.

    A data set is read in its own order, a folder in a random order fixed by the seed (its files are sorted by class). A
    folder that has the name of a data set is written with its path: `./mnist`.

    Examples:
        >>> batch = next(iter(load("sample")))
        >>> tuple(batch.inputs.shape), tuple(batch.targets.shape)
        ((64, 1, 28, 28), (64,))
    """
    options = options or LoadOptions()
    source = _source(os.fspath(spec), options, root, progress)
    order = torch.arange(len(source))
    if not isinstance(source, ImageSet):
        generator = Randomness(options.seed).child("order of a folder").torch()
        order = torch.randperm(len(source), generator=generator)
    return ImageBatches(os.fspath(spec), source, order, options)


def _source(spec: str, options: LoadOptions, root: str | os.PathLike[str] | None, progress: Progress) -> ImageSource:
    name, _, split = spec.partition(":")
    if spec != "sample" and name not in CATALOGUE:
        return _folder(spec, options)
    images = sample() if spec == "sample" else get(name, root, split or "train", progress)
    if options.image_size not in (None, images.shape[1]):
        raise InvalidInputError(
            f"{name} has images of {images.shape[2]}×{images.shape[1]} pixels, so image_size={options.image_size} "
            "cannot be had: it is for folders of images."
        )
    return images


def _folder(spec: str, options: LoadOptions) -> ImageSource:
    folder = Path(spec).expanduser()
    if not folder.is_dir():
        known = ["sample", *CATALOGUE]
        raise DataError(f"{spec!r} is neither a folder of images nor a known data set. {did_you_mean(spec, known)}")
    return open_folder(folder, Framing(options.image_size, options.image_size))
