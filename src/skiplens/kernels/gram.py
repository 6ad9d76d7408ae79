"""Gram matrices larger than the memory: symmetric tiles into a tensor, a .npy file or a zarr store, resumable."""

import hashlib
import json
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from skiplens.base.errors import BrokenFileError, InvalidInputError, TooLargeError
from skiplens.base.memory import budget_bytes, fresh_empty, readable, require_fits
from skiplens.base.optional_imports import optional_import
from skiplens.base.progress import Progress, silent, track
from skiplens.kernels.inputs import directions_of_pair

KernelFunction = Callable[[Tensor, Tensor | None], Tensor]
"""From inputs, and other inputs or `None` for themselves, to their kernel matrix: `kernel.ntk` or `kernel.nngp`."""

_LARGEST_SIDE, _SMALLEST_SIDE = 8192, 16

_BYTES_INSIDE_A_KERNEL = 96  # temporaries per entry while a kernel evaluates at most 2**18 entries at once

_ENTRIES_INSIDE_A_KERNEL = 2**18


@dataclass(frozen=True)
class TilePlan:
    """A (rows, columns) matrix in square tiles; of a symmetric one only those on and above the diagonal.

    Attributes:
        rows: Rows of the matrix.
        columns: Columns of the matrix.
        side: Rows and columns of a tile; those at the edges may be smaller.
        symmetric: Whether the matrix equals its transpose.
    """

    rows: int
    columns: int
    side: int
    symmetric: bool

    def tiles(self) -> Iterator[tuple[slice, slice]]:
        """The row and column ranges of each tile, row by row."""
        for top in range(0, self.rows, self.side):
            for left in range(top if self.symmetric else 0, self.columns, self.side):
                yield slice(top, min(top + self.side, self.rows)), slice(left, min(left + self.side, self.columns))


def gram(
    kernel: KernelFunction,
    X: Tensor,
    Y: Tensor | None = None,
    out: str | Path | None = None,
    budget: int | None = None,
    progress: Progress = silent,
) -> Any:
    """The kernel matrix of `X` with `Y` or itself, computed in tiles; a killed run goes on where it stopped.

    Args:
        kernel: `kernel.ntk`, `kernel.nngp` or any function of the same form.
        X: Inputs, (samples, features).
        Y: Other inputs; `X` itself if not given, then one half is computed and mirrored.
        out: Where to write: a path that ends in ``.npy`` or ``.zarr``; a tensor if not given. Beside the path, a small
            ``.tiles`` file remembers which tiles are done and what they were computed from.
        budget: Bytes of memory to use at most; half of what is free if not given.
        progress: Called after each tile.

    Returns:
        A tensor, a read-only memory map, or a zarr array.

    Examples:
        >>> from skiplens.kernels import DenseNetKernel
        >>> K = gram(DenseNetKernel(depth=2).ntk, torch.eye(3, dtype=torch.float64))
        >>> K.shape
        torch.Size([3, 3])
    """
    directions_of_pair(X, Y)
    allowed = budget_bytes(X.device, budget)
    if out is None:
        job = _Job(kernel, X, Y, plan_tiles(X, Y, allowed - _require_result_fits(X, Y, allowed)))
        return job.run(InMemory(fresh_empty(X, job.plan.rows, job.plan.columns)), None, progress)
    path = Path(out)
    plan = plan_tiles(X, Y, allowed)
    require_writable(path, (plan.rows, plan.columns), X.dtype)
    journal = Journal.begin(path, fingerprint(kernel, X, Y), plan.side)
    job = _Job(kernel, X, Y, replace(plan, side=journal.side))
    return job.run(on_disk(path, (plan.rows, plan.columns), journal.side, X.dtype), journal, progress)


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


class Journal:
    """The ``.tiles`` file beside a Gram matrix."""

    def __init__(self, path: Path, fingerprint: str, side: int, done: set[int]) -> None:
        self.path, self.fingerprint, self.side, self.done = path, fingerprint, side, done

    @classmethod
    def begin(cls, matrix: Path, fingerprint: str, side: int) -> "Journal":
        """The journal of the matrix at `matrix`: the one that is there, or a new one.

        Raises:
            InvalidInputError: If something else is at that path.
        """
        path = matrix.with_name(matrix.name + ".tiles")
        if not path.exists():
            return cls._new(path, matrix, fingerprint, side)
        found = _read(path)
        if found.fingerprint != fingerprint:
            raise InvalidInputError(
                f"{matrix.name} was begun with another kernel or other inputs, so it cannot be continued. "
                f"Delete {matrix.name} and {path.name}, or choose another path."
            )
        return found if matrix.exists() else cls._new(path, matrix, fingerprint, side)

    @classmethod
    def _new(cls, path: Path, matrix: Path, fingerprint: str, side: int) -> "Journal":
        if matrix.exists():
            raise InvalidInputError(
                f"{matrix.name} exists and has no {path.name} beside it, so it is not ours to overwrite. "
                "Delete it or choose another path."
            )
        journal = cls(path, fingerprint, side, set())
        journal._write()
        return journal

    def is_done(self, tile: int) -> bool:
        """Whether tile number `tile` has been written."""
        return tile in self.done

    def mark(self, tile: int) -> None:
        """Remember that tile number `tile` has been written."""
        self.done.add(tile)
        self._write()

    def _write(self) -> None:
        bits = sum(1 << tile for tile in self.done)
        content = {"fingerprint": self.fingerprint, "side": self.side, "done": f"{bits:x}"}
        temporary = self.path.with_name(self.path.name + ".new")
        temporary.write_text(json.dumps(content))
        temporary.replace(self.path)


@dataclass(frozen=True, eq=False)
class _Job:
    kernel: KernelFunction
    X: Tensor
    Y: Tensor | None
    plan: TilePlan

    def run(self, destination: Destination, journal: Journal | None, progress: Progress) -> Any:
        """Write every tile that the journal does not know."""
        tiles = list(self.plan.tiles())
        for number, tile in track(enumerate(tiles), "kernel matrix", len(tiles), progress):
            if journal is None:
                self._write(destination, *tile)
            elif not journal.is_done(number):
                self._write(destination, *tile)
                destination.flush()
                journal.mark(number)
        return destination.finished()

    @torch.no_grad()
    def _write(self, destination: Destination, rows: slice, columns: slice) -> None:
        on_diagonal = self.plan.symmetric and rows == columns
        others = self.X if self.Y is None else self.Y
        tile = self.kernel(self.X[rows], None if on_diagonal else others[columns])
        destination.write(rows, columns, tile)
        if self.plan.symmetric and not on_diagonal:
            destination.write(columns, rows, tile.T)


def plan_tiles(X: Tensor, Y: Tensor | None, budget: int) -> TilePlan:
    """The plan with the largest tiles whose computation fits in `budget` bytes."""
    others = X if Y is None else Y
    side = _LARGEST_SIDE
    while side > _SMALLEST_SIDE and _tile_bytes(X, side) > budget:
        side //= 2
    require_fits(
        _tile_bytes(X, side),
        f"A tile of {side} × {side} entries, the smallest there is,",
        "Give a larger budget.",
        budget,
    )
    return TilePlan(len(X), len(others), side, Y is None)


def _tile_bytes(X: Tensor, side: int) -> int:
    """A tile and its transpose, what a kernel needs beside it, and the rows it is computed from in float64."""
    inside = min(side**2, _ENTRIES_INSIDE_A_KERNEL) * _BYTES_INSIDE_A_KERNEL
    return 2 * side**2 * X.element_size() + inside + 6 * side * X.shape[1] * 8


def _require_result_fits(X: Tensor, Y: Tensor | None, budget: int) -> int:
    columns = len(X if Y is None else Y)
    needed = X.element_size() * len(X) * columns
    fits = int((budget / X.element_size()) ** 0.5)
    require_fits(
        needed,
        f"A kernel matrix of {len(X)} × {columns} entries in memory",
        f"About {fits} × {fits} would fit; give a path that ends in .npy or .zarr to write it to the disk instead.",
        budget,
    )
    return needed


_NUMPY: dict[torch.dtype, np.dtype[Any]] = {torch.float32: np.dtype("float32"), torch.float64: np.dtype("float64")}


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
    return optional_import("zarr", "writing a kernel matrix to a .zarr store", "skiplens[chunked]")


def _require_disk(path: Path, shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
    needed, free = shape[0] * shape[1] * dtype.itemsize, shutil.disk_usage(path.parent).free
    if needed > free:
        raise TooLargeError(
            f"A matrix of {shape[0]} × {shape[1]} entries needs {readable(needed)} on the disk, but {readable(free)} "
            f"are free. About {int((free / dtype.itemsize) ** 0.5)} rows and columns would fit."
        )


def fingerprint(kernel: Callable[..., Tensor], X: Tensor, Y: Tensor | None) -> str:
    """A hash of the kernel's description and of all inputs."""
    owner = getattr(kernel, "__self__", None)
    name = getattr(kernel, "__qualname__", type(kernel).__qualname__)
    digest = hashlib.sha256(f"{owner!r} {name}".encode())
    for inputs in (X,) if Y is None else (X, Y):
        digest.update(f"{tuple(inputs.shape)} {inputs.dtype}".encode())
        for rows in inputs.detach().split(4096):
            digest.update(rows.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _read(path: Path) -> Journal:
    try:
        content = json.loads(path.read_text())
        bits = int(content["done"], 16)
        side, fingerprint = int(content["side"]), str(content["fingerprint"])
    except (ValueError, KeyError, TypeError) as error:
        raise BrokenFileError(
            f"{path.name} is damaged ({error}). Delete it and the matrix beside it, and compute again."
        ) from error
    return Journal(path, fingerprint, side, {tile for tile in range(bits.bit_length()) if bits >> tile & 1})
