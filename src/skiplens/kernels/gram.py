"""Gram matrices larger than the memory: symmetric tiles into a tensor, a .npy file or a zarr store, resumable."""

import errno
import hashlib
import inspect
import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from skiplens.base import BrokenFileError, InvalidInputError, Progress, SkiplensError, TooLargeError, silent, track
from skiplens.base.files import file_lock, read_json, require_writable, write_content
from skiplens.base.identity import identity_of
from skiplens.base.memory import budget_bytes, fresh_empty, readable, require_fits
from skiplens.base.optional_imports import optional_import
from skiplens.kernels.architectures import InfiniteWidthKernel
from skiplens.kernels.inputs import directions_of_pair

# From inputs, and other inputs or `None` for themselves, to their kernel matrix: `kernel.ntk` or `kernel.nngp`
KernelFunction = Callable[[Tensor, Tensor | None], Tensor]

_LARGEST_SIDE, _SMALLEST_SIDE = 8192, 16
_BYTES_INSIDE_A_KERNEL = 96  # temporaries per entry while a kernel evaluates at most 2**18 entries at once
_ENTRIES_INSIDE_A_KERNEL = 2**18


def gram(  # noqa: PLR0913 - options by keyword, and one that had another name
    kernel: KernelFunction,
    X: Tensor,
    Y: Tensor | None = None,
    *,
    out: str | Path | None = None,
    memory: int | None = None,
    progress: Progress = silent,
    budget: int | None = None,
) -> Any:
    """The kernel matrix of `X` with `Y` or itself, computed in tiles; a killed run goes on where it stopped.

    Args:
        kernel: `kernel.ntk`, `kernel.nngp` or any function of two sets of inputs. One that may be called with a single
            set gets it alone where both are the same.
        X: Inputs, (samples, features).
        Y: Other inputs; `X` itself if not given, then one half is computed and mirrored.
        out: Where to write: a path that ends in ``.npy`` or ``.zarr``; a tensor if not given. Beside the path, a small
            ``.tiles`` file remembers which tiles are done and what they were computed from: the function with all
            that it holds, and the inputs. Of several processes with one path, one computes and the others wait for it.
        memory: Bytes to use at most; half of what is free if not given.
        progress: Called after each tile.
        budget: Deprecated name of `memory`.

    Returns:
        A tensor, a read-only memory map, or a zarr array.

    Examples:
        >>> from skiplens.kernels import DenseNetKernel
        >>> K = gram(DenseNetKernel(depth=2).ntk, torch.eye(3, dtype=torch.float64))
        >>> K.shape
        torch.Size([3, 3])
    """
    if budget is not None:
        warnings.warn("gram(budget=…) is now gram(memory=…).", DeprecationWarning, stacklevel=2)
        memory = budget
    directions_of_pair(X, Y)
    allowed = budget_bytes(X.device, memory)
    if out is None:
        plan = plan_tiles(X, Y, allowed - _require_result_fits(X, Y, allowed))
        matrix = fresh_empty(X, plan.rows, plan.columns)
        _fill(matrix, None, plan, _Pair(kernel, X, Y), progress)
        return matrix
    computed_from = fingerprint(kernel, X, Y)
    with begun_matrix(Path(out), plan_tiles(X, Y, allowed), X.dtype, computed_from) as (matrix, journal, plan):
        try:
            _fill(matrix, journal, plan, _Pair(kernel, X, Y), progress)
        except BaseException:
            if not journal.done:  # nothing is worth keeping, and it would stand in the way of another function
                _remove(Path(out))
                journal.path.unlink()
            raise
    return np.load(out, mmap_mode="r") if isinstance(matrix, np.memmap) else matrix


@dataclass(frozen=True)
class _Pair:
    """A kernel, and the inputs that it is taken of."""

    kernel: KernelFunction
    rows: Tensor
    columns: Tensor | None


def _fill(matrix: Any, journal: "Journal | None", plan: "TilePlan", pair: _Pair, progress: Progress) -> None:
    """Compute the tiles that are missing."""
    tiles, others = list(plan.tiles()), pair.rows if pair.columns is None else pair.columns
    alone = _takes_one_set(pair.kernel)
    for number, (rows, columns) in track(enumerate(tiles), "kernel matrix", len(tiles), progress):
        if journal is not None and number in journal.done:
            continue
        with torch.no_grad():
            itself = plan.symmetric and rows == columns
            tile = pair.kernel(pair.rows[rows], None if itself and alone else others[columns])
        write_tile(matrix, (rows, columns), tile, plan.symmetric)
        if journal is not None:
            journal.mark(number)


def _takes_one_set(kernel: KernelFunction) -> bool:
    try:
        second = list(inspect.signature(kernel).parameters.values())[1:2]
    except (TypeError, ValueError):  # a function of C has no signature
        return True
    return any(one.default is not one.empty or "None" in str(one.annotation) for one in second)


@dataclass(frozen=True)
class TilePlan:
    """A (rows, columns) matrix in square tiles; of a symmetric one only those on and above the diagonal."""

    rows: int
    columns: int
    side: int  # rows and columns of a tile; those at the edges may be smaller
    symmetric: bool

    def tiles(self) -> Iterator[tuple[slice, slice]]:
        """The row and column ranges of each tile, row by row."""
        for top in range(0, self.rows, self.side):
            for left in range(top if self.symmetric else 0, self.columns, self.side):
                yield slice(top, min(top + self.side, self.rows)), slice(left, min(left + self.side, self.columns))


def plan_tiles(X: Tensor, Y: Tensor | None, budget: int) -> TilePlan:
    """The plan with the largest tiles whose computation fits in `budget` bytes."""

    def tile_bytes(side: int) -> int:
        """A tile and its transpose, what a kernel needs beside it, and the rows it is computed from in float64."""
        inside = min(side**2, _ENTRIES_INSIDE_A_KERNEL) * _BYTES_INSIDE_A_KERNEL
        return 2 * side**2 * X.element_size() + inside + 6 * side * X.shape[1] * 8

    side = _LARGEST_SIDE
    while side > _SMALLEST_SIDE and tile_bytes(side) > budget:
        side //= 2
    what = f"A tile of {side} × {side} entries, the smallest there is,"
    require_fits(tile_bytes(side), what, "Give a larger budget.", budget)
    return TilePlan(len(X), len(X if Y is None else Y), side, Y is None)


def _require_result_fits(X: Tensor, Y: Tensor | None, budget: int) -> int:
    """The bytes of the whole matrix."""
    columns, fits = len(X if Y is None else Y), int((max(0, budget) / X.element_size()) ** 0.5)
    needed, what = X.element_size() * len(X) * columns, f"A kernel matrix of {len(X)} × {columns} entries in memory"
    disk = "give a path that ends in .npy or .zarr to write it to the disk instead"
    require_fits(needed, what, f"About {fits} × {fits} would fit; {disk}.", budget)
    return needed


@dataclass(frozen=True)
class Journal:
    """The ``.tiles`` file beside a Gram matrix: the side of the tiles, which are done, and what of."""

    path: Path
    fingerprint: str
    side: int
    done: set[int]

    @classmethod
    def begin(cls, matrix: Path, fingerprint: str, side: int) -> "Journal":
        """The journal of the matrix at `matrix`: the one that is there, or a new one."""
        path = matrix.with_name(matrix.name + ".tiles")
        if path.exists() and matrix.exists():
            found = cls._read(path)
            if found.fingerprint != fingerprint:
                raise InvalidInputError(
                    f"{matrix.name} was begun with another kernel or other inputs, so it cannot be continued. "
                    f"Delete {matrix.name} and {path.name}, or choose another path."
                )
            return found
        if matrix.exists():
            raise InvalidInputError(
                f"{matrix.name} exists and has no {path.name} beside it, so it is not ours to overwrite. "
                "Delete it or choose another path."
            )
        journal = cls(path, fingerprint, side, set())
        journal._write()
        return journal

    def mark(self, tile: int) -> None:
        """Remember that tile number `tile` has been written."""
        self.done.add(tile)
        self._write()

    def _write(self) -> None:
        bits = sum(1 << tile for tile in self.done)
        content = {"fingerprint": self.fingerprint, "side": self.side, "done": f"{bits:x}"}
        write_content(self.path, json.dumps({**content, "checksum": _checksum(content)}))

    @classmethod
    def _read(cls, path: Path) -> "Journal":
        try:
            content = read_json(path)
            if content.pop("checksum", None) not in (None, _checksum(content)):  # there was none before version 0.2
                raise ValueError("its checksum is wrong")
            bits = int(content["done"], 16)
            if content["side"] not in range(1, _LARGEST_SIDE + 1) or bits < 0:
                raise ValueError("no tiles are so large")
            done = {tile for tile in range(bits.bit_length()) if bits >> tile & 1}
            return cls(path, str(content["fingerprint"]), int(content["side"]), done)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BrokenFileError(
                f"{path.name} is damaged ({error}). Delete it and the matrix beside it, and compute again."
            ) from error


def _checksum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


@contextmanager
def begun_matrix(
    path: Path, plan: TilePlan, dtype: torch.dtype, computed_from: str
) -> Iterator[tuple[Any, Journal, TilePlan]]:
    """The matrix at `path`, begun or continued, its journal, and the plan with the journal's side of the tiles.

    One process at a time has them. A path whose end says no format, whose folder is missing or whose disk is too small
    is refused.
    """
    if path.suffix not in (".npy", ".zarr"):
        raise InvalidInputError(f"A kernel matrix goes to a path that ends in .npy or .zarr, got {path.name!r}.")
    if not path.parent.is_dir():
        raise InvalidInputError(f"The folder {str(path.parent)!r} for {path.name!r} does not exist. Make it first.")
    if path.suffix == ".zarr":
        _zarr()  # refused here where it is missing
    require_writable(path.parent)
    with file_lock(path.with_name(f".{path.name}.lock")):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()  # of a process that was killed before it wrote anything
        if not path.exists():
            _require_disk(path, plan, dtype)
        journal = Journal.begin(path, computed_from, plan.side)
        plan = replace(plan, side=journal.side)
        if not path.exists():
            try:
                _make_matrix(path, plan, dtype)
            except BaseException:
                journal.path.unlink()
                raise
        for leftover in path.rglob("*.partial"):  # zarr's, of a process that was killed while it wrote a chunk
            leftover.unlink(missing_ok=True)
        matrix = open_matrix(path)
        if (matrix.shape, str(matrix.dtype)) != ((plan.rows, plan.columns), str(dtype).removeprefix("torch.")):
            raise _damaged(path, f"it is a matrix of {matrix.shape} entries in {matrix.dtype}")
        yield matrix, journal, plan


def _require_disk(path: Path, plan: TilePlan, dtype: torch.dtype) -> None:
    needed, free = plan.rows * plan.columns * dtype.itemsize, shutil.disk_usage(path.parent).free
    if needed > free:
        raise TooLargeError(
            f"A matrix of {plan.rows} × {plan.columns} entries needs {readable(needed)} on the disk, but "
            f"{readable(free)} are free. About {int((free / dtype.itemsize) ** 0.5)} rows and columns would fit."
        )


def _make_matrix(path: Path, plan: TilePlan, dtype: torch.dtype) -> None:
    """A matrix without numbers at `path`: made beside it, so that a process killed meanwhile leaves none."""
    beside, shape = path.with_name(f".{path.stem}.part{path.suffix}"), (plan.rows, plan.columns)
    kind = str(dtype).removeprefix("torch.")
    _remove(beside)
    try:
        if path.suffix == ".npy":
            np.lib.format.open_memmap(beside, mode="w+", dtype=kind, shape=shape)
            _reserve(beside)
        else:  # uncompressed: the last digits of a kernel are noise, and squeezing out an eighth takes as long as all
            chunks = (plan.side, plan.side)  # one tile each
            _zarr().create_array(beside, shape=shape, chunks=chunks, dtype=kind, compressors=None)
        beside.replace(path)
    except OSError as error:
        raise SkiplensError(
            f"There is no room for {path.name}, {readable(plan.rows * plan.columns * dtype.itemsize)} on the disk: "
            f"{error.strerror or error}. Nothing was written; free some space or choose another folder."
        ) from error
    finally:
        _remove(beside)


def _reserve(path: Path) -> None:
    """Have the disk keep room for the whole file: a page of a memory map without room ends the process (SIGBUS)."""
    with path.open("r+b") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
        except AttributeError:  # no such call on this system
            pass
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise  # any other: this file system does not reserve


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)


def open_matrix(path: Path) -> Any:
    """The memory map or zarr array at `path`, to be written to."""
    try:
        return (
            np.lib.format.open_memmap(path, mode="r+") if path.suffix == ".npy" else _zarr().open_array(path, mode="r+")
        )
    except Exception as error:  # NumPy and zarr stumble in any way over what is cut or foreign
        raise _damaged(path, error) from error


def _damaged(path: Path, why: object) -> BrokenFileError:
    return BrokenFileError(f"{path.name} is damaged ({why}). Delete it and {path.name}.tiles, and compute again.")


def write_tile(matrix: Any, place: tuple[slice, slice], tile: Tensor, symmetric: bool) -> None:
    """Put a tile at its rows and columns and, in a symmetric matrix, its mirror image at the columns and rows."""
    rows, columns = place
    mirrored = [(columns, rows, tile.T)] if symmetric and rows != columns else []
    try:
        for top, left, part in [(rows, columns, tile), *mirrored]:
            if isinstance(matrix, Tensor):
                matrix[top, left] = part
            else:  # torch turns a mirror image around far faster than NumPy would
                matrix[top, left] = part.contiguous().cpu().numpy()
        if isinstance(matrix, np.memmap):
            matrix.flush()  # zarr writes each chunk to its file at once
    except OSError as error:
        raise SkiplensError(
            f"A tile could not be written: {error.strerror or error}. Those that are done are kept; free some space "
            "and give the same call again."
        ) from error


def fingerprint(kernel: Callable[..., Tensor], X: Tensor, Y: Tensor | None) -> str:
    """A hash of the function with all that it holds, and of all inputs."""
    owner = getattr(kernel, "__self__", None)
    ours = isinstance(owner, InfiniteWidthKernel) and type(owner).__module__ == InfiniteWidthKernel.__module__
    if ours and not any(isinstance(value, Tensor) for value in vars(owner).values()):  # its name and numbers say all
        digest = hashlib.sha256(f"{owner!r} {kernel.__qualname__}".encode())
    else:
        digest = hashlib.sha256(identity_of(kernel).encode())
    for inputs in (X,) if Y is None else (X, Y):
        digest.update(f"{tuple(inputs.shape)} {inputs.dtype}".encode())
        for rows in inputs.detach().split(4096):
            digest.update(rows.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _zarr() -> ModuleType:
    return optional_import("zarr", "writing a kernel matrix to a .zarr store", "skiplens[chunked]")
