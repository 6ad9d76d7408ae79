"""Kernel matrices from angular kernels: one matrix product and one look-up per entry, tile by tile."""

from collections.abc import Iterator

import torch
from torch import Tensor

from skiplens.core.axes import Float
from skiplens.core.fresh_memory import fresh_empty
from skiplens.core.memory import free_bytes, readable, require_fits
from skiplens.kernels.angular import AngularKernel
from skiplens.kernels.inputs import Directions
from skiplens.kernels.lookup import Lookup
from skiplens.kernels.near_pairs import half_squared_distance, near_pairs, precise_correlation
from skiplens.theory.infinite_width.arc_cosine import Correlation

_TILE_ENTRIES = {"cpu": 2**18, "cuda": 2**24}  # a tile and its few temporaries stay in the cache, or fill the GPU
_HEIGHT_STEP = 32  # matrix products are slower by up to a tenth when the rows do not fill the processor's vectors
_MANY_NEAR = 1 / 64
_BYTES_WITH_GRADIENT = 160  # about twenty float64 intermediates per entry stay alive until the backward pass


def kernel_matrix(
    kernel: AngularKernel, lookup: Lookup | None, rows: Directions, columns: Directions | None
) -> Float[Tensor, "samples other_samples"]:
    """The kernel of all rows with all columns, or with themselves.

    Args:
        kernel: The kernel as a function of the correlation.
        lookup: Its look-up in the dtype of the inputs; without it every entry is evaluated from its angle in float64.
        rows: Inputs.
        columns: Other inputs; `None` for a symmetric matrix, of which one half is computed.
    """
    others = rows if columns is None else columns
    tracked = torch.is_grad_enabled() and (kernel.learned or rows.unit.requires_grad or others.unit.requires_grad)
    _require_memory(rows, others, tracked)
    if tracked:
        return _differentiable(kernel, rows, columns)
    with torch.no_grad():
        return _tiled(_Tiles(kernel, lookup), rows, columns)


def _differentiable(kernel: AngularKernel, rows: Directions, columns: Directions | None) -> Tensor:
    left = rows.double()
    right = left if columns is None else columns.double()
    correlation = precise_correlation(left.unit, right.unit, kernel.near_limits(torch.float64))
    lengths = kernel.peak.scaled_length(left).unsqueeze(1) * kernel.peak.scaled_length(right)
    K = (kernel.values(correlation) * lengths).to(rows.unit.dtype)
    return K if columns is not None else torch.diagonal_scatter((K + K.T) / 2, kernel.peak.diagonal(rows))


class _Tiles:
    """Evaluates one tile in the input's precision, without gradients."""

    def __init__(self, kernel: AngularKernel, lookup: Lookup | None) -> None:
        self.kernel, self.lookup = kernel, lookup

    def __call__(self, rows: Directions, columns: Directions, on_diagonal: bool) -> Tensor:
        """The kernel of all rows with all columns, not yet multiplied by the lengths.

        With `on_diagonal`, row i is column i and the entry of the two is left to the closed form.
        """
        if self.lookup is not None:
            return self._by_lookup(self.lookup, rows, columns, on_diagonal)
        return self._in_double(rows, columns).to(rows.unit.dtype)

    def _in_double(self, rows: Directions, columns: Directions) -> Tensor:
        left, right = rows.double().unit, columns.double().unit
        return self.kernel.values(precise_correlation(left, right, self.kernel.near_limits(torch.float64)))

    def _by_lookup(self, lookup: Lookup, rows: Directions, columns: Directions, on_diagonal: bool) -> Tensor:
        cosine = rows.unit @ columns.unit.T
        if on_diagonal:
            cosine.diagonal().zero_()  # or every diagonal entry would be corrected as a nearly equal pair
        limits = self.kernel.near_limits(cosine.dtype)
        equal, opposite = near_pairs(cosine, limits)
        if len(equal) + len(opposite) > max(len(rows), _MANY_NEAR * cosine.numel()):
            return self._in_double(rows, columns).to(cosine.dtype)
        k = lookup.to(cosine.device).replace(cosine)
        self._correct(k, equal, rows, columns, sign=1)
        self._correct(k, opposite, rows, columns, sign=-1)
        return k

    def _correct(self, k: Tensor, pairs: Tensor, rows: Directions, columns: Directions, sign: int) -> None:
        """Evaluate nearly equal (`sign` 1) or nearly opposite (−1) pairs again from their exact distance."""
        if len(pairs) == 0:
            return
        left, right = rows[pairs[:, 0]].double().unit, columns[pairs[:, 1]].double().unit
        aligned = torch.arange(len(pairs), device=k.device).unsqueeze(1).expand(-1, 2)
        small = half_squared_distance(left, sign * right, aligned)
        correlation = Correlation(small, 2 - small) if sign > 0 else Correlation(2 - small, small)
        k[pairs[:, 0], pairs[:, 1]] = self.kernel.values(correlation).to(k.dtype)


def _tiled(tiles: _Tiles, rows: Directions, columns: Directions | None) -> Tensor:
    others = rows if columns is None else columns
    left, right = (tiles.kernel.peak.scaled_length(part).to(rows.unit.dtype) for part in (rows, others))
    out = fresh_empty(rows.unit, len(rows), len(others))
    for start, stop in _row_blocks(rows, others):
        first = start if columns is None else 0
        k = tiles(rows[start:stop], others[first:], on_diagonal=columns is None)
        torch.mul(k.mul_(right[first:]), left[start:stop].unsqueeze(1), out=out[start:stop, first:])
        if columns is None:
            _mirror(out, start, stop)
    if columns is None:
        out.diagonal().copy_(tiles.kernel.peak.diagonal(rows))
    return out


def _mirror(out: Tensor, start: int, stop: int) -> None:
    """Copy the rows from `start` to `stop` right of the diagonal to the columns below it, bit for bit."""
    corner = out[start:stop, start:stop]
    corner.copy_(corner.triu() + corner.triu(1).T)
    out[stop:, start:stop] = out[start:stop, stop:].T


def _row_blocks(rows: Directions, others: Directions) -> Iterator[tuple[int, int]]:
    entries = _TILE_ENTRIES.get(rows.unit.device.type, 2**20)
    height = _HEIGHT_STEP * max(1, round(entries / _HEIGHT_STEP / max(1, len(others))))
    for start in range(0, len(rows), height):
        yield start, min(start + height, len(rows))


def _require_memory(rows: Directions, others: Directions, tracked: bool) -> None:
    entry = _BYTES_WITH_GRADIENT if tracked else rows.unit.element_size()
    budget = free_bytes(rows.unit.device)
    side = int((budget / entry) ** 0.5)
    require_fits(
        entry * len(rows) * len(others),
        f"A kernel matrix of {len(rows)} × {len(others)} entries{' with gradients' if tracked else ''}",
        f"About {side} × {side} would fit; skiplens.kernels.gram writes larger ones to a file "
        f"({readable(rows.unit.element_size() * len(rows) * len(others))}) in tiles.",
        budget,
    )
