"""Gram matrices larger than the memory: symmetric tiles into a tensor, a .npy file or a zarr store, resumable."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from skiplens.core.fresh_memory import fresh_empty
from skiplens.core.memory import budget_bytes, require_fits
from skiplens.core.progress import Progress, silent, track
from skiplens.kernels.gram_destination import Destination, InMemory, on_disk, require_writable
from skiplens.kernels.gram_journal import Journal, fingerprint
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
