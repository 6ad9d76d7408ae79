"""Kernel matrices from angular kernels: one matrix product and one look-up per entry, tile by tile."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from skiplens.base.axes import Float, Int
from skiplens.base.memory import free_bytes, fresh_empty, readable, require_fits
from skiplens.kernels.angular import AngularKernel, NearLimits
from skiplens.kernels.arc_cosine import Correlation, correlation_of_cosine
from skiplens.kernels.inputs import Directions

_TILE_ENTRIES = {"cpu": 2**18, "cuda": 2**24}  # a tile and its few temporaries stay in the cache, or fill the GPU

_HEIGHT_STEP = 32  # matrix products are slower by up to a tenth when the rows do not fill the processor's vectors

_MANY_NEAR = 1 / 64

_BYTES_WITH_GRADIENT = 160  # about twenty float64 intermediates per entry stay alive until the backward pass


@dataclass(frozen=True, eq=False)
class Lookup:
    """k between equally spaced places q = t/(t + f) in [0, 1], where t = tan(θ/2) = √((1 − ρ)/(1 + ρ)).

    q is analytic in the angle at both ends and costs a square root and two divisions, with no inverse cosine.

    Attributes:
        coefficients: For each power of the place in a segment, that of each segment; a last one holds k at q = 1.
        focus: f; a smaller one puts more nodes near equal inputs.
        error: Largest error seen between the nodes, relative to the largest value.
    """

    coefficients: tuple[Float[Tensor, " nodes"], ...]
    focus: float
    error: float

    def to(self, device: torch.device) -> "Lookup":
        """The same table on `device`."""
        return Lookup(tuple(part.to(device) for part in self.coefficients), self.focus, self.error)

    def replace(self, cosine: Float[Tensor, "samples other_samples"]) -> Float[Tensor, "samples other_samples"]:
        """The kernel at each entry; the memory of `cosine` is used up."""
        other = (cosine + 1).clamp_min_(_PRECISIONS[cosine.dtype].least)
        tangent = torch.sub(1, cosine, out=cosine).clamp_min_(0).div_(other).sqrt_()
        torch.add(tangent, self.focus, out=other)
        place = tangent.div_(other).mul_(len(self.coefficients[0]) - 1)
        node = place.to(torch.int32).view(-1)
        place.frac_()  # subtracting the nodes, which are of another type, would take four times as long
        *lower, value = (part.index_select(0, node).view_as(place) for part in self.coefficients)
        for part in reversed(lower):
            value = part.addcmul_(value, place)
        return value


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


_ENTRIES_AT_ONCE = 2**20

_MANY_WITH_GRADIENT = 2**26  # differences kept for the backward pass: half a GiB

_MANY = 1 / 64  # a gathered pair costs about as much as 64 pairs of a dense distance


def precise_correlation(
    rows: Float[Tensor, "samples features"], columns: Float[Tensor, "other_samples features"], limits: NearLimits
) -> Correlation:
    """The correlations of all rows with all columns, accurate also where they are within `limits` of ±1."""
    cosine = rows @ columns.T
    below_one, above_minus_one = correlation_of_cosine(cosine)
    with torch.no_grad():
        equal, opposite = near_pairs(cosine, limits)
    below_one = _replaced(below_one, equal, rows, columns)
    above_minus_one = _replaced(above_minus_one, opposite, rows, -columns)
    return Correlation(below_one, above_minus_one)


def near_pairs(cosine: Float[Tensor, "samples other_samples"], limits: NearLimits) -> tuple[Tensor, Tensor]:
    """Row and column numbers, as (pairs, 2), of nearly equal and of nearly opposite pairs."""
    if cosine.numel() == 0:
        none = torch.empty(0, 2, dtype=torch.long, device=cosine.device)
        return none, none
    least, most = (float(bound) for bound in cosine.aminmax())
    equal = (cosine > 1 - limits.equal) if most > 1 - limits.equal else _nothing(cosine)
    opposite = (cosine < limits.opposite - 1) if least < limits.opposite - 1 else _nothing(cosine)
    return equal.nonzero(), opposite.nonzero()


def half_squared_distance(
    rows: Float[Tensor, "samples features"],
    columns: Float[Tensor, "other_samples features"],
    pairs: Int[Tensor, "pairs 2"],
) -> Float[Tensor, " pairs"]:
    """‖x − x′‖²/2 of the `pairs`: 1 − ρ for unit vectors."""
    step = max(1, _ENTRIES_AT_ONCE // rows.shape[1])
    parts = [(rows[part[:, 0]] - columns[part[:, 1]]).square().sum(dim=1) / 2 for part in pairs.split(step)]
    return torch.cat(parts) if parts else rows.new_empty(0)


def _replaced(distances: Tensor, pairs: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """`distances` with those of the `pairs` computed from difference vectors."""
    if len(pairs) == 0:
        return distances
    # dense distances have no second derivative, so a gradient by the inputs takes them only if it must
    most = _MANY_WITH_GRADIENT // rows.shape[1] if distances.requires_grad else _MANY * distances.numel()
    if len(pairs) <= most:
        return distances.index_put(tuple(pairs.T), half_squared_distance(rows, columns, pairs))
    exact = torch.cdist(rows, columns, compute_mode="donot_use_mm_for_euclid_dist").square() / 2
    mask = torch.zeros_like(distances, dtype=torch.bool).index_put(
        tuple(pairs.T), torch.ones((), device=rows.device).bool()
    )
    return torch.where(mask, exact, distances)


def _nothing(cosine: Tensor) -> Tensor:
    return torch.zeros(0, 0, dtype=torch.bool, device=cosine.device)


_FOCUSES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003)


@dataclass(frozen=True)
class _Precision:
    """How a look-up is made for a dtype.

    Attributes:
        degree: Of the polynomials.
        segments: Numbers of them that are tried; up to 512 KiB of coefficients stay in a core's cache.
        wanted: Error at which the search stops, relative to the largest value.
        least: Keeps opposite inputs from a division by zero; q is then 1 to rounding.
    """

    degree: int
    segments: tuple[int, ...]
    wanted: float
    least: float


_PRECISIONS = {
    # less than the rounding of a float32 cosine moves the kernel
    torch.float32: _Precision(1, (2**12, 2**14, 2**16), 3e-7, 1e-14),
    torch.float64: _Precision(3, (2**10, 2**12, 2**14), 1e-13, 1e-30),
}


def lookup_of(kernel: Callable[[Tensor], Tensor], dtype: torch.dtype) -> Lookup:
    """The smallest look-up of a function of the angle that is good to rounding, or else the most accurate one."""
    precision = _PRECISIONS[dtype]
    best: Lookup | None = None
    for segments in precision.segments:
        for focus in _FOCUSES:
            lookup = _with_focus(kernel, segments, focus, dtype)
            if best is None or lookup.error < best.error:
                best = lookup
        if best is not None and best.error <= precision.wanted:
            break
    assert best is not None
    return best


def _with_focus(kernel: Callable[[Tensor], Tensor], segments: int, focus: float, dtype: torch.dtype) -> Lookup:
    """A look-up that takes the kernel's values at both ends of a segment and, if its degree asks, in between."""
    degree = _PRECISIONS[dtype].degree
    q = torch.linspace(0, 1, 2 * degree * segments + 1, dtype=torch.float64)
    k = kernel(2 * torch.atan2(focus * q, 1 - q))
    places = torch.arange(2 * degree + 1, dtype=torch.float64) / (2 * degree)
    powers = places.unsqueeze(1) ** torch.arange(degree + 1)
    coefficients = k[::2].unfold(0, degree + 1, degree) @ torch.linalg.inv(powers[::2]).T
    halfway = k[1::2].reshape(segments, degree)
    largest = float(k.abs().max()) or 1.0
    error = float((coefficients @ powers[1::2].T - halfway).abs().max()) / largest
    last = torch.cat([k[-1:], k.new_zeros(degree)]).unsqueeze(0)
    return Lookup(tuple(torch.cat([coefficients, last]).to(dtype).T.contiguous().unbind()), focus, error)
