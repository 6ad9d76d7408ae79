"""Data from the words that name it: the embedded sample, a data set, or a folder of images."""

import math
import os
from array import array
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from skiplens.base import DataError, InvalidInputError, Progress, Randomness, Settings, did_you_mean, option, silent
from skiplens.base.files import is_folder, user_path
from skiplens.data.catalogue import CATALOGUE
from skiplens.data.fetch import get
from skiplens.data.formats import Framing, decode
from skiplens.data.images import ImageSet, as_floats, sample
from skiplens.data.preprocessing import Standardisation, fit_whitening, measure_channels
from skiplens.graph.batch import Batch, take

_MEASURED_IMAGES = 1024
_ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm")
_MOST_WORKERS = 8
_WAITING_PER_WORKER = 4


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


@dataclass(frozen=True, eq=False)
class ImageBatches:
    """Batches of floating images with their labels; they can be gone through again and again.

    Iterating gives `Batch(inputs, targets)`, inputs (samples, channels, height, width) in torch's default dtype.
    """

    name: str
    source: "ImageSet | ImageFolder"
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
    drawn = Randomness(options.seed).child("order of a folder").torch()
    in_memory = isinstance(source, ImageSet)
    order = torch.arange(len(source)) if in_memory else torch.randperm(len(source), generator=drawn)
    return ImageBatches(os.fspath(spec), source, order, options)


def _source(
    spec: str, options: LoadOptions, root: str | os.PathLike[str] | None, progress: Progress
) -> "ImageSet | ImageFolder":
    name, _, split = spec.partition(":")
    if spec != "sample" and name not in CATALOGUE:
        folder = user_path(spec)
        if not is_folder(folder):
            near = did_you_mean(spec, ["sample", *CATALOGUE])
            raise DataError(f"{spec!r} is neither a folder of images nor a known data set. {near}")
        return open_folder(folder, Framing(options.image_size, options.image_size))
    images = sample() if spec == "sample" else get(name, root, split or "train", progress)
    if options.image_size not in (None, images.shape[1]):
        raise InvalidInputError(
            f"{name} has images of {images.shape[2]}×{images.shape[1]} pixels, so image_size={options.image_size} "
            "cannot be had: it is for folders of images."
        )
    return images


@dataclass(frozen=True, eq=False)
class FileIndex:
    """The files of all classes in order: their names in one run of bytes, and where each name and each class ends."""

    root: Path
    classes: tuple[str, ...]
    names: bytes
    name_ends: np.ndarray
    class_ends: np.ndarray

    def __len__(self) -> int:
        """The number of files."""
        return len(self.name_ends)

    def label(self, index: int) -> int:
        """The class of a file."""
        return int(np.searchsorted(self.class_ends, index, side="right"))

    def path(self, index: int) -> Path:
        """The path of a file."""
        start = self.name_ends[index - 1] if index else 0
        name = os.fsdecode(self.names[start : self.name_ends[index]])
        return self.root / self.classes[self.label(index)] / name


@dataclass(frozen=True, eq=False)
class ImageFolder:
    """Labelled images on disk, all of one shape; only the index is in memory."""

    index: FileIndex
    framing: Framing
    shape: tuple[int, int, int]

    def __len__(self) -> int:
        """The number of images."""
        return len(self.index)

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the class folders, sorted; their places are the labels."""
        return self.index.classes

    def image(self, index: int) -> Tensor:
        """One image as uint8 (channels, height, width)."""
        path = self.index.path(index)
        pixels = decode(path, self.framing, channels=self.shape[0])
        if tuple(pixels.shape) != self.shape:
            raise DataError(
                f"The images have different sizes: {path} is {pixels.shape[2]}×{pixels.shape[1]}, but "
                f"{self.index.path(0)} is {self.shape[2]}×{self.shape[1]}. Give an image size (--image-size) to "
                "bring them to one."
            )
        return pixels

    def stream(self, order: Tensor, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The images (uint8) and labels with the indices in `order`, `batch_size` at a time, decoded in threads."""
        with closing(self._decoded(order.tolist())) as images:  # the threads end with the stream, also on an error
            for chosen in order.split(batch_size):
                labels = torch.tensor([self.index.label(i) for i in chosen.tolist()])
                yield torch.stack([next(images) for _ in chosen]), labels

    def _decoded(self, indices: Iterable[int]) -> Generator[Tensor, None, None]:
        """The images in order; a bounded number of them is decoded ahead of the reader."""
        workers = min(_MOST_WORKERS, os.cpu_count() or 1)
        waiting: deque[Future[Tensor]] = deque()
        with ThreadPoolExecutor(workers, thread_name_prefix="decode") as pool:
            try:
                for index in indices:
                    waiting.append(pool.submit(self.image, index))
                    if len(waiting) >= workers * _WAITING_PER_WORKER:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()


def open_folder(root: str | os.PathLike[str], framing: Framing | None = None) -> ImageFolder:
    """The images below `root`, which has one folder per class; lists names and decodes the first image only."""
    index = list_files(user_path(root))
    framing = framing or Framing()
    channels, height, width = decode(index.path(0), framing).shape
    return ImageFolder(index, framing, (channels, height, width))


def list_files(root: Path) -> FileIndex:
    """The index of all image files one level below `root`; each folder is listed once."""
    if not is_folder(root):
        raise DataError(f"{root} is not a folder. Give a folder that has one folder of images per class.")
    classes = sorted(entry.name for entry in _entries(root) if entry.is_dir() and not entry.name.startswith("."))
    if not classes:
        raise DataError(
            f"The data folder {root} is empty of class folders. Put the images of each class into a folder of its own: "
            f"{root / 'class-name' / 'image.png'}."
        )
    names, name_ends, class_ends = bytearray(), array("q"), array("q")
    for name in classes:
        for file in _image_names(root / name):
            names += os.fsencode(file)
            name_ends.append(len(names))
        class_ends.append(len(name_ends))
    return FileIndex(root, tuple(classes), bytes(names), np.asarray(name_ends), np.asarray(class_ends))


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise DataError(f"The folder {folder} cannot be listed: {error.strerror}. Allow reading it.") from error


def _image_names(folder: Path) -> list[str]:
    entries = _entries(folder)
    names = sorted(e.name for e in entries if e.name.lower().endswith(_ENDINGS) and not e.name.startswith("."))
    if not names:
        raise DataError(f"The class folder {folder} holds no images ({' '.join(_ENDINGS)}). Fill it or remove it.")
    return names


@dataclass(frozen=True)
class FittedBatches:
    """Batches that can be gone through again and again, and how they were made to fit, in words."""

    stream: Callable[[], Iterator[Batch]]
    description: str
    classes: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Batch]:
        """Each batch."""
        return self.stream()


def fit_to(images: ImageBatches, shape: tuple[int, ...]) -> FittedBatches:
    """The images as samples of `shape`.

    (channels, height, width) scales them and repeats or averages channels; (features,) flattens them where that gives
    as many features, and else whitens to that many principal components.
    """
    if tuple(shape) == images.shape:
        return FittedBatches(lambda: iter(images), images.name, images.classes)
    if len(shape) == 3:
        return _changed(images, lambda inputs: _as_images(inputs, shape), f"scaled to {_times(shape)}")
    if shape == (math.prod(images.shape),):
        return _changed(images, lambda inputs: inputs.flatten(1), "flattened")
    if len(shape) == 1 and isinstance(images.source, ImageSet):
        return _whitened(images, images.source, shape[0])
    raise InvalidInputError(
        f"{images.name} cannot be brought to samples of shape {_times(shape)}: known forms are (channels, height, "
        "width) and, for images in memory, (features,). Give your own data as path/file.py:function."
    )


def _changed(images: ImageBatches, change: Callable[[Tensor], Tensor], how: str) -> FittedBatches:
    return FittedBatches(
        lambda: (batch.map_inputs(change) for batch in images), f"{images.name}, {how}", images.classes
    )


def _whitened(images: ImageBatches, source: ImageSet, components: int) -> FittedBatches:
    white = fit_whitening(source.images, components)

    def stream() -> Iterator[Batch]:
        for pixels, labels in source.stream(images.order[: images.samples], images.options.batch_size):
            yield Batch(white(pixels).to(torch.get_default_dtype()), labels)

    return FittedBatches(stream, f"{images.name}, whitened to {components} principal components", images.classes)


def _as_images(inputs: Tensor, shape: tuple[int, ...]) -> Tensor:
    channels, height, width = shape
    scaled = F.interpolate(inputs, (height, width), mode="bilinear", antialias=True)
    if scaled.shape[1] != channels:
        scaled = scaled.mean(1, keepdim=True).expand(-1, channels, -1, -1)
    return scaled.contiguous()


def _times(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape))
