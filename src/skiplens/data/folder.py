"""A folder of images, one folder per class: listed once into a compact index, decoded in threads when read."""

import os
from array import array
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from skiplens.core.errors import DataError
from skiplens.data.decode import Framing, decode

_ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm")
_MOST_WORKERS = 8
_WAITING_PER_WORKER = 4


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
                f"{self.index.path(0)} is {self.shape[2]}×{self.shape[1]}. Give an image size to bring them to one."
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
    index = list_files(Path(root).expanduser())
    framing = framing or Framing()
    channels, height, width = decode(index.path(0), framing).shape
    return ImageFolder(index, framing, (channels, height, width))


def list_files(root: Path) -> FileIndex:
    """The index of all image files one level below `root`; each folder is listed once."""
    if not root.is_dir():
        raise DataError(f"{root} is not a folder. Give a folder that has one folder of images per class.")
    with os.scandir(root) as entries:
        classes = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
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


def _image_names(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        names = sorted(e.name for e in entries if e.name.lower().endswith(_ENDINGS) and not e.name.startswith("."))
    if not names:
        raise DataError(f"The class folder {folder} holds no images ({' '.join(_ENDINGS)}). Fill it or remove it.")
    return names
