"""Kernel matrices from angular kernels: one matrix product and one look-up per entry, tile by tile."""

import torch
from torch import Tensor

from skiplens.base import Float, Int
from skiplens.base.memory import free_bytes, fresh_empty, readable, require_fits
from skiplens.base.preserve_state import full_precision
from skiplens.kernels.angular import AngularKernel, NearLimits
from skiplens.kernels.arc_cosine import Correlation, correlation_of_cosine
from skiplens.kernels.inputs import Directions
from skiplens.kernels.tables import Table

_TILE_ENTRIES = {"cpu": 2**18, "cuda": 2**24}  # a tile and its few temporaries stay in the cache, or fill the GPU
_HEIGHT_STEP = 32  # matrix products are slower by up to a tenth when the rows do not fill the processor's vectors
_BYTES_WITH_GRADIENT = 160  # about twenty float64 intermediates per entry stay alive until the backward pass
_ENTRIES_AT_ONCE = 2**20
_MANY_WITH_GRADIENT = 2**26  # differences kept for the backward pass: half a GiB
_MANY = 1 / 64  # a gathered pair costs about as much as 64 pairs of a dense distance


def kernel_matrix(
    kernel: AngularKernel, lookup: Table | None, rows: Directions, columns: Directions | None
) -> Float[Tensor, "samples other_samples"]:
    """The kernel of all rows with all columns, or with themselves; then one half is computed and mirrored.

    `lookup` is its quick table in the dtype of the inputs; without it each entry comes from its angle in float64.
    """
    others = rows if columns is None else columns
    tracked = torch.is_grad_enabled() and (kernel.learned or rows.unit.requires_grad or others.unit.requires_grad)
    _require_memory(rows, others, tracked)
    kernel.peak.require_finite(rows, others)
    with full_precision():
        if not tracked:
            with torch.no_grad():
                return _in_tiles(kernel, lookup, rows, columns)
        return _tracked(kernel, rows, columns)


def _tracked(kernel: AngularKernel, rows: Directions, columns: Directions | None) -> Tensor:
    """The same in float64, with what a gradient needs."""
    left = rows.double()
    right = left if columns is None else columns.double()
    correlation = precise_correlation(left.unit, right.unit, kernel.near_limits[torch.float64])
    lengths = kernel.peak.scaled_length(left).unsqueeze(1) * kernel.peak.scaled_length(right)
    K = (kernel.values(correlation) * lengths).to(rows.unit.dtype)
    return K if columns is not None else torch.diagonal_scatter((K + K.T) / 2, kernel.peak.diagonal(rows))


def _in_tiles(kernel: AngularKernel, lookup: Table | None, rows: Directions, columns: Directions | None) -> Tensor:
    others = rows if columns is None else columns
    left, right = (kernel.peak.scaled_length(part).to(rows.unit.dtype) for part in (rows, others))
    out = fresh_empty(rows.unit, len(rows), len(others))
    entries = _TILE_ENTRIES.get(rows.unit.device.type, 2**20)
    height = _HEIGHT_STEP * max(1, round(entries / _HEIGHT_STEP / max(1, len(others))))
    for start in range(0, len(rows), height):
        stop, first = min(start + height, len(rows)), start if columns is None else 0
        k = _tile(kernel, lookup, rows[start:stop], others[first:], on_diagonal=columns is None)
        torch.mul(k.mul_(right[first:]), left[start:stop].unsqueeze(1), out=out[start:stop, first:])
        if columns is None:  # mirrored bit for bit from the right of the diagonal to below it
            corner = out[start:stop, start:stop]
            corner.copy_(corner.triu() + corner.triu(1).T)
            out[stop:, start:stop] = out[start:stop, stop:].T
    if columns is None:
        out.diagonal().copy_(kernel.peak.diagonal(rows))
    return out


def _tile(
    kernel: AngularKernel, lookup: Table | None, rows: Directions, columns: Directions, on_diagonal: bool
) -> Tensor:
    """The kernel of all rows with all columns, not yet multiplied by the lengths.

    With `on_diagonal`, row i is column i and the entry of the two is left to the closed form.
    """
    if lookup is None:
        return _tile_in_double(kernel, rows, columns)
    cosine = rows.unit @ columns.unit.T
    if on_diagonal:
        cosine.diagonal().zero_()  # or every diagonal entry would be corrected as a nearly equal pair
    equal, opposite = near_pairs(cosine, kernel.near_limits[cosine.dtype])
    if len(equal) + len(opposite) > max(len(rows), _MANY * cosine.numel()):
        return _tile_in_double(kernel, rows, columns)
    k = lookup(cosine)
    for pairs, sign in ((equal, 1), (opposite, -1)):
        if len(pairs):  # evaluated again from their exact distance
            left, right = rows[pairs[:, 0]].double().unit, columns[pairs[:, 1]].double().unit
            aligned = torch.arange(len(pairs), device=k.device).unsqueeze(1).expand(-1, 2)
            small = half_squared_distance(left, sign * right, aligned)
            correlation = Correlation(small, 2 - small) if sign > 0 else Correlation(2 - small, small)
            k[pairs[:, 0], pairs[:, 1]] = kernel.values(correlation).to(k.dtype)
    return k


def _tile_in_double(kernel: AngularKernel, rows: Directions, columns: Directions) -> Tensor:
    left, right = rows.double().unit, columns.double().unit
    return kernel.values(precise_correlation(left, right, kernel.near_limits[torch.float64])).to(rows.unit.dtype)


def _require_memory(rows: Directions, others: Directions, tracked: bool) -> None:
    entries, budget = len(rows) * len(others), free_bytes(rows.unit.device)
    entry = _BYTES_WITH_GRADIENT if tracked else rows.unit.element_size()
    side, file = int((budget / entry) ** 0.5), readable(rows.unit.element_size() * entries)
    what = f"A kernel matrix of {len(rows)} × {len(others)} entries{' with gradients' if tracked else ''}"
    instead = f"skiplens.kernels.gram writes larger ones to a file ({file}) in tiles."
    require_fits(entry * entries, what, f"About {side} × {side} would fit; {instead}", budget)


def precise_correlation(
    rows: Float[Tensor, "samples features"], columns: Float[Tensor, "other_samples features"], limits: NearLimits
) -> Correlation:
    """The correlations of all rows with all columns, accurate also where they are within `limits` of ±1."""
    cosine = rows @ columns.T
    below_one, above_minus_one = correlation_of_cosine(cosine)
    with torch.no_grad():
        equal, opposite = near_pairs(cosine, limits)
    return Correlation(_replaced(below_one, equal, rows, columns), _replaced(above_minus_one, opposite, rows, -columns))


def near_pairs(cosine: Float[Tensor, "samples other_samples"], limits: NearLimits) -> tuple[Tensor, Tensor]:
    """Row and column numbers, as (pairs, 2), of nearly equal and of nearly opposite pairs."""
    none = torch.empty(0, 2, dtype=torch.long, device=cosine.device)
    if cosine.numel() == 0:
        return none, none
    least, most = (float(bound) for bound in cosine.aminmax())
    equal = (cosine > 1 - limits.equal).nonzero() if most > 1 - limits.equal else none
    opposite = (cosine < limits.opposite - 1).nonzero() if least < limits.opposite - 1 else none
    return equal, opposite


def half_squared_distance(
    rows: Float[Tensor, "samples features"], columns: Float[Tensor, "others features"], pairs: Int[Tensor, "pairs 2"]
) -> Float[Tensor, " pairs"]:
    """‖x − x′‖²/2 of the `pairs`: 1 − ρ for unit vectors."""
    step = max(1, _ENTRIES_AT_ONCE // rows.shape[1])
    parts = [(rows[part[:, 0]] - columns[part[:, 1]]).square().sum(dim=1) / 2 for part in pairs.split(step)]
    return torch.cat(parts) if parts else rows.new_empty(0)


def _replaced(distances: Tensor, pairs: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """`distances` with those of the `pairs` computed from difference vectors."""
    if len(pairs) == 0:
        return distances
    # dense distances have no second derivative, so a gradient with respect to the inputs takes them only if it must
    most = _MANY_WITH_GRADIENT // rows.shape[1] if distances.requires_grad else _MANY * distances.numel()
    if len(pairs) <= most:
        return distances.index_put(tuple(pairs.T), half_squared_distance(rows, columns, pairs))
    exact = torch.cdist(rows, columns, compute_mode="donot_use_mm_for_euclid_dist").square() / 2
    mask = torch.zeros_like(distances, dtype=torch.bool)
    mask[tuple(pairs.T)] = True
    return torch.where(mask, exact, distances)
