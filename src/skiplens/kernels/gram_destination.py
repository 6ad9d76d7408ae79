"""Where a Gram matrix goes, tile by tile: a tensor, a memory-mapped .npy file or a zarr store."""

import shutil
from abc import ABC, abstractmethod
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from skiplens.core.doors import open_door
from skiplens.core.errors import InvalidInputError, TooLargeError
from skiplens.core.memory import readable

_NUMPY: dict[torch.dtype, np.dtype[Any]] = {torch.float32: np.dtype("float32"), torch.float64: np.dtype("float64")}


class Destination(ABC):
    """Takes tiles in any order."""

    @abstractmethod
    def write(self, rows: slice, columns: slice, tile: Tensor) -> None:
        """Put `tile` at these rows and columns."""

    @abstractmethod
    def flush(self) -> None:
        """Bring what was written to where it outlasts the process."""

    @abstractmethod
    def finished(self) -> Any:
        """The whole matrix, in the form the caller reads."""


class InMemory(Destination):
    """A tensor on the device of the inputs."""

    def __init__(self, matrix: Tensor) -> None:
        self.matrix = matrix

    def write(self, rows: slice, columns: slice, tile: Tensor) -> None:
        """Copy the tile."""
        self.matrix[rows, columns] = tile

    def flush(self) -> None:
        """Nothing to do: a tensor does not outlast the process."""

    def finished(self) -> Tensor:
        """The tensor."""
        return self.matrix


class MemoryMapped(Destination):
    """A .npy file; any NumPy reads it with ``np.load(path, mmap_mode="r")``."""

    def __init__(self, path: Path, shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
        self.path = path
        if path.exists():
            self.matrix = np.lib.format.open_memmap(path, mode="r+")
        else:
            self.matrix = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)

    def write(self, rows: slice, columns: slice, tile: Tensor) -> None:
        """Copy the tile into the map."""
        self.matrix[rows, columns] = tile.cpu().numpy()

    def flush(self) -> None:
        """Write changed pages to the disk."""
        self.matrix.flush()

    def finished(self) -> Any:
        """The file as a read-only map."""
        self.matrix.flush()
        return np.load(self.path, mmap_mode="r")


class ZarrStore(Destination):
    """A zarr store with one chunk per tile."""

    def __init__(self, path: Path, shape: tuple[int, int], side: int, dtype: np.dtype[Any]) -> None:
        zarr = _zarr()
        if path.exists():
            self.matrix = zarr.open_array(path, mode="r+")
        else:
            # uncompressed: the last digits of a kernel are noise, and squeezing out an eighth takes as long as the rest
            self.matrix = zarr.create_array(path, shape=shape, chunks=(side, side), dtype=dtype, compressors=None)

    def write(self, rows: slice, columns: slice, tile: Tensor) -> None:
        """Write the chunk; torch turns a mirror image around far faster than NumPy would."""
        self.matrix[rows, columns] = tile.contiguous().cpu().numpy()

    def flush(self) -> None:
        """Nothing to do: zarr writes each chunk to its file at once."""

    def finished(self) -> Any:
        """The zarr array."""
        return self.matrix


def on_disk(path: Path, shape: tuple[int, int], side: int, dtype: torch.dtype) -> Destination:
    """The destination that the end of `path` asks for, opened if it is there and made if not."""
    if path.suffix == ".npy":
        return MemoryMapped(path, shape, _NUMPY[dtype])
    return ZarrStore(path, shape, side, _NUMPY[dtype])


def require_writable(path: Path, shape: tuple[int, int], dtype: torch.dtype) -> None:
    """Refuse a path whose end says no format, whose folder is missing or whose disk is too small."""
    if path.suffix not in (".npy", ".zarr"):
        raise InvalidInputError(f"A kernel matrix goes to a path that ends in .npy or .zarr, got {path.name!r}.")
    if not path.parent.is_dir():
        raise InvalidInputError(f"The folder {str(path.parent)!r} for {path.name!r} does not exist. Make it first.")
    if path.suffix == ".zarr":
        _zarr()
    if not path.exists():
        _require_disk(path, shape, _NUMPY[dtype])


def _zarr() -> ModuleType:
    return open_door("zarr", "writing a kernel matrix to a .zarr store", "skiplens[chunked]")


def _require_disk(path: Path, shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
    needed, free = shape[0] * shape[1] * dtype.itemsize, shutil.disk_usage(path.parent).free
    if needed > free:
        raise TooLargeError(
            f"A matrix of {shape[0]} × {shape[1]} entries needs {readable(needed)} on the disk, but {readable(free)} "
            f"are free. About {int((free / dtype.itemsize) ** 0.5)} rows and columns would fit."
        )
