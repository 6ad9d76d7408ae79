"""All eigenvalues of a diagonal matrix plus a symmetric one of low rank, in O(size² · rank) instead of O(size³)."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from skiplens.base.axes import Float
from skiplens.base.progress import Progress, silent, track

_ROUNDINGS = 8
"""What is smaller than this many roundings of the largest entry is taken for zero, as LAPACK's dlaed2 does."""


def updated_eigenvalues(
    diagonal: Float[Tensor, " size"],
    factors: Float[Tensor, "size rank"],
    core: Float[Tensor, "rank rank"],
    progress: Progress = silent,
) -> Float[Tensor, " size"]:
    """The eigenvalues of diag(diagonal) + factors · core · factorsᵀ (core symmetric), ascending.

    One secular equation for each eigenvalue of the update; its error is a few roundings of the largest eigenvalue for
    each. Only a few rows of the size × size matrices that occur exist at a time.

    Examples:
        >>> ones = torch.ones(3, 1, dtype=torch.float64)
        >>> updated_eigenvalues(torch.zeros(3, dtype=torch.float64), ones, torch.eye(1, dtype=torch.float64)).tolist()
        [0.0, 0.0, 3.0]
    """
    Q, R = torch.linalg.qr(factors)
    strengths, directions = torch.linalg.eigh(R @ core @ R.T)
    scale = diagonal.abs().max() + strengths.abs().max()
    kept = strengths.abs() > torch.finfo(diagonal.dtype).eps * scale
    values, vectors = _sorted(diagonal, Q @ directions[:, kept])
    rhos = strengths[kept].tolist()
    for rho in track(rhos, "adding the coupling of samples", len(rhos), progress):
        values, vectors = _plus(values, vectors, rho)
    return values.sort().values


def _plus(values: Tensor, vectors: Tensor, rho: float) -> tuple[Tensor, Tensor]:
    """Eigenvalues with ρ times the outer product of the first vector added; the others in the eigenvectors' basis."""
    if rho < 0:  # the secular equation wants ρ > 0: turn everything round
        values, vectors = _plus(-values.flip(0), vectors.flip(0), -rho)
        return -values.flip(0), vectors.flip(0)
    tolerance = _ROUNDINGS * torch.finfo(values.dtype).eps * float(values.abs().max() + rho)
    values, vectors = _merge_equal(values, vectors, tolerance)
    vector, others = vectors[:, 0], vectors[:, 1:]
    moving = (rho * vector.abs() > tolerance).nonzero().flatten()
    if not len(moving):
        return values, others
    roots = secular_roots(values[moving], vector[moving].square(), rho)
    values, others = values.clone(), others.clone()
    others[moving] = rotated(roots, refined_squares(roots), vector[moving], others[moving])
    values[moving] = roots.values
    return _sorted(values, others)


def _sorted(values: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
    ordered, order = values.sort()
    return ordered, vectors[order]


def _merge_equal(values: Tensor, vectors: Tensor, tolerance: float) -> tuple[Tensor, Tensor]:
    """Make nearly equal eigenvalues equal and turn their eigenvectors: one of each group meets the first vector.

    Groups are cells of width `tolerance` counted from the start of a run of small gaps. A Householder reflection in
    each group moves its part of the first vector into the first member; the others then keep their eigenvalue.
    """
    near = torch.cat([values.new_zeros(1, dtype=torch.bool), values.diff() <= tolerance])
    if not bool(near.any()):
        return values, vectors
    index = torch.arange(len(values), device=values.device)
    start = torch.where(near, 0, index).cummax(0).values
    cell = ((values - values[start]) / tolerance).floor()
    fresh = (~near) | (cell.diff(prepend=cell[:1] - 1) != 0)
    group = fresh.cumsum(0) - 1
    heads = fresh.nonzero().flatten()
    return values[heads][group], _reflected(vectors, group, heads)


def _reflected(vectors: Tensor, group: Tensor, heads: Tensor) -> Tensor:
    """Each group's rows reflected so that column 0 is zero but in the group's head."""
    first, count = vectors[:, 0], len(heads)
    norms = first.new_zeros(count).index_add_(0, group, first.square()).sqrt()
    mirror = first.clone()
    mirror[heads] += norms.copysign(first[heads])
    lengths = first.new_zeros(count).index_add_(0, group, mirror.square())
    along = vectors.new_zeros(count, vectors.shape[1]).index_add_(0, group, mirror[:, None] * vectors)
    factor = torch.where(lengths > 0, 2 / lengths.clamp_min(torch.finfo(first.dtype).tiny), 0)
    reflected = vectors - mirror[:, None] * (factor[:, None] * along)[group]
    reflected[:, 0] = 0
    reflected[heads, 0] = -norms.copysign(first[heads])
    alone = torch.bincount(group, minlength=count)[group] == 1
    return torch.where(alone[:, None], vectors, reflected)


# One outer product: the roots of the secular equation.

_MOST_STEPS = 80  # steps until a root must be found: halving a bracket so often leaves nothing of it


@dataclass(frozen=True)
class SecularRoots:
    """The roots of 1 + ρ Σ z_j² / (d_j − λ) = 0, each as a pole plus an offset, which keeps all digits of λ − d_j."""

    fence: Float[Tensor, " fence"]  # the poles d, ascending and distinct, and an end behind the last root
    origins: Tensor  # for each root the index of the pole it is counted from
    offsets: Float[Tensor, " size"]  # the root minus that pole

    @property
    def poles(self) -> Float[Tensor, " size"]:
        """The poles without the end."""
        return self.fence[:-1]

    @property
    def values(self) -> Float[Tensor, " size"]:
        """The roots, ascending."""
        return self.fence[self.origins] + self.offsets

    def minus(self, places: Tensor, which: slice) -> Tensor:
        """Each of some roots minus a place (the last axis are the roots), without loss where they nearly meet."""
        return (self.fence[self.origins[which]] - places) + self.offsets[which]


def secular_roots(poles: Float[Tensor, " size"], squares: Float[Tensor, " size"], rho: float) -> SecularRoots:
    """The eigenvalues of diag(poles) + ρ z zᵀ, z² = squares > 0, ρ > 0, poles ascending and distinct.

    Root i lies between pole i and the next. Each step interpolates the function by the two poles around the root, the
    weight of the nearer one fixed (Li 1993, LAPACK working note 89); a step that leaves the bracket halves it instead.
    """
    rounding = torch.finfo(poles.dtype)
    # Behind the last root, and a number that differs from the last pole.
    reach = 1.01 * rho * squares.sum() + 64 * rounding.eps * poles.abs().max() + rounding.tiny
    fence = torch.cat([poles, poles[-1:] + reach])
    weights = torch.cat([rho * squares, squares.new_zeros(1)])  # the end of the fence is a pole without weight
    found = [_Search(fence, weights, window).run() for window in windows(fence)]
    return SecularRoots(fence, torch.cat([pair[0] for pair in found]), torch.cat([pair[1] for pair in found]))


def refined_squares(roots: SecularRoots) -> Float[Tensor, " size"]:
    """ρ ẑ², for which the computed roots are exact: eigenvectors made from ẑ are orthogonal to working precision.

    ρ ẑ_i² = Π_j (λ_j − d_i) / Π_{j≠i} (d_j − d_i) (Gu & Eisenstat 1994). Before i root j is paired with pole j, from i
    on with pole j + 1, so that each ratio is near one.
    """
    return torch.cat([_squares_in(roots, window) for window in windows(roots.fence)]).clamp_min(0)


@dataclass(frozen=True)
class Window:
    """An interval from one pole to a later one, in coordinates that count from its lower end."""

    rows: slice  # the poles that it starts with, one for each interval between neighbours
    low: float  # its lower end, the first of these poles
    width: float  # its length
    near: slice  # the poles that lie less than one width away from it

    def nodes(self, like: Tensor) -> Float[Tensor, " nodes"]:
        """Chebyshev nodes of the window, counted from its lower end."""
        return self.width / 2 * (1 + torch.cos(_angles(like)))

    def coefficients(self, values: Float[Tensor, "nodes columns"]) -> Float[Tensor, "nodes columns"]:
        """Chebyshev coefficients of the polynomials with these values at the nodes."""
        order = torch.arange(_NODES, dtype=values.dtype, device=values.device)
        cosines = torch.cos(order[:, None] * _angles(values)) * (2 / _NODES)
        cosines[0] /= 2
        return cosines @ values

    def evaluate(
        self, coefficients: Float[Tensor, "nodes columns"], places: Float[Tensor, " places"]
    ) -> Float[Tensor, "places columns"]:
        """The polynomials at places counted from the lower end."""
        scaled = (places * (2 / self.width) - 1).clamp(-1, 1)
        order = torch.arange(_NODES, dtype=places.dtype, device=places.device)
        return torch.cos(torch.arccos(scaled)[:, None] * order) @ coefficients

    def far_field(
        self, poles: Float[Tensor, " size"], simple: Float[Tensor, "size k"], double: Float[Tensor, " size"]
    ) -> Float[Tensor, "nodes columns"]:
        """Coefficients of Σ simple_j / (d_j − x) over the far poles d_j, then of Σ double_j / (d_j − x)²."""
        values = simple.new_zeros(_NODES, simple.shape[1] + 1)
        for side in (slice(0, self.near.start), slice(self.near.stop, len(poles))):
            if side.start < side.stop:
                inverse = ((poles[side] - self.low) - self.nodes(poles)[:, None]).reciprocal_()
                values[:, :-1] += inverse @ simple[side]
                values[:, -1] += inverse.square_() @ double[side]
        return self.coefficients(values)


def _squares_in(roots: SecularRoots, window: Window) -> Tensor:
    poles, last = roots.poles, len(roots.poles) - 1
    own = poles[window.rows][:, None]
    # The root before the first near pole may lie anywhere up to it, so it counts as near.
    near = slice(max(0, window.near.start - 1), window.near.stop)
    index = torch.arange(len(poles), device=poles.device)
    rows = index[window.rows][:, None]
    partners = torch.where(index[near] < rows, poles[near], roots.fence[1:][near]) - own
    # The last root has no partner; its factor λ_last − d_i stays as it is.
    partners = torch.where(index[near] == last, 1, partners)
    product = (roots.minus(own, near) / partners).prod(1)
    nodes = window.low + window.nodes(poles)
    logarithm = torch.zeros_like(nodes)
    before, behind = slice(0, near.start), slice(near.stop, len(poles))
    for side, shift in ((before, 0), (behind, 1)):
        if side.start < side.stop:
            local = (roots.fence[shift:][side] - window.low) - window.nodes(poles)[:, None]
            gaps = roots.minus(roots.fence[shift:][side], side)
            ratios = 1 + gaps / local
            if side.stop == len(poles) and shift:
                ratios[:, -1] = roots.minus(nodes, slice(last, last + 1))
            logarithm = logarithm + ratios.prod(1).log()
    places = poles[window.rows] - window.low
    return product * window.evaluate(window.coefficients(logarithm[:, None]), places)[:, 0].exp()


def rotated(
    roots: SecularRoots,
    squares: Float[Tensor, " size"],
    vector: Float[Tensor, " size"],
    others: Float[Tensor, "size k"],
) -> Float[Tensor, "size k"]:
    """Qᵀ `others`, Q the eigenvectors (column i ∝ ẑ_j / (d_j − λ_i)), with the signs of `vector` for ẑ = ±√squares."""
    weighted = squares.sqrt().copysign(vector)[:, None] * others
    return torch.cat([_rotated_in(roots, squares, weighted, window) for window in windows(roots.fence)])


def _rotated_in(roots: SecularRoots, squares: Tensor, weighted: Tensor, window: Window) -> Tensor:
    base, offset = roots.fence[roots.origins[window.rows]], roots.offsets[window.rows]
    inverse = ((roots.poles[window.near] - base[:, None]) - offset[:, None]).reciprocal_()
    products, lengths = inverse @ weighted[window.near], inverse.square_() @ squares[window.near]
    rest = window.evaluate(window.far_field(roots.poles, weighted, squares), (base - window.low) + offset)
    return (products + rest[:, :-1]) / (lengths + rest[:, -1]).sqrt()[:, None]


class _Search:
    """All roots of a window: brackets, offsets, and which are not found yet."""

    def __init__(self, fence: Tensor, weights: Tensor, window: Window) -> None:
        self.fence, self.weights, self.window = fence, weights, window
        self.rows = torch.arange(window.rows.start, window.rows.stop, device=fence.device)
        self.far = window.far_field(fence[:-1], weights[:-1, None], weights[:-1])  # function, derivative
        half = (fence[self.rows + 1] - fence[self.rows]) / 2
        value, _ = self._evaluate(self.rows, half)
        left = value >= 0
        self.origins = torch.where(left, self.rows, self.rows + 1)
        self.low = torch.where(left, torch.zeros_like(half), -half)
        self.high = torch.where(left, half, torch.zeros_like(half))
        self.offsets = self._guess(value, 2 * half, left)

    def run(self) -> tuple[Tensor, Tensor]:
        """The origin and the offset of each root."""
        active = torch.arange(len(self.rows), device=self.rows.device)
        for _ in range(_MOST_STEPS):
            active = active[self._step(active)]
            if not len(active):
                break
        return self.origins, self.offsets

    def _guess(self, value: Tensor, width: Tensor, left: Tensor) -> Tensor:
        """The root when all poles but the two around it count as in the middle between these."""
        lower, upper = self.weights[self.rows], self.weights[self.rows + 1]
        c = value - 2 * (upper - lower) / width
        sign = torch.where(left, 1.0, -1.0).to(width)
        a, b = c * width + sign * (lower + upper), torch.where(left, lower, upper) * width
        root = (a.square() - sign * 4 * b * c).abs().sqrt()
        stable, other = 2 * b / (a + sign * root), (a - sign * root) / (2 * c) * sign
        guess = torch.where(sign * a > 0, stable, other)
        inside = (guess > self.low) & (guess < self.high)
        return torch.where(inside, guess, (self.low + self.high) / 2)

    def _step(self, active: Tensor) -> Tensor:
        """One step for the `active` rows; True where another one is needed."""
        rows, origins, offset = self.rows[active], self.origins[active], self.offsets[active]
        value, slope = self._evaluate(origins, offset)
        low = torch.where(value < 0, offset, self.low[active])
        high = torch.where(value < 0, self.high[active], offset)
        step = self._interpolated(rows, origins, offset, value, slope)
        eps = torch.finfo(offset.dtype).eps
        # Convergence is quadratic: a step that changes half of the digits makes all of them right.
        last = (value == 0) | (step.abs() <= 0.1 * eps**0.5 * offset.abs())
        new = torch.where(value == 0, offset, offset + step)
        new = torch.where(last | ((new > low) & (new < high)), new, (low + high) / 2)
        self.low[active], self.high[active], self.offsets[active] = low, high, new
        return ~last & ((high - low) > 2 * eps * torch.maximum(low.abs(), high.abs()))

    def _evaluate(self, origins: Tensor, offset: Tensor) -> tuple[Tensor, Tensor]:
        """The function and its derivative at the poles `origins` plus `offset`."""
        near, base = self.window.near, self.fence[origins]
        inverse = ((self.fence[near] - base[:, None]) - offset[:, None]).reciprocal_()
        far = self.window.evaluate(self.far, (base - self.window.low) + offset)
        value = 1 + far[:, 0] + inverse @ self.weights[near]
        return value, far[:, 1] + inverse.square_() @ self.weights[near]

    def _interpolated(self, rows: Tensor, origins: Tensor, offset: Tensor, value: Tensor, slope: Tensor) -> Tensor:
        """The step to the root of c + a/(δ_i − η) + b/(δ_{i+1} − η), which fits value, slope and the nearer weight."""
        base = self.fence[origins]
        left, right = (self.fence[rows] - base) - offset, (self.fence[rows + 1] - base) - offset
        width = self.fence[rows + 1] - self.fence[rows]
        at_left = value - right * slope + width * self.weights[rows] / left.square()
        at_right = value - left * slope - width * self.weights[rows + 1] / right.square()
        c = torch.where(origins == rows, at_left, at_right)
        a = (left + right) * value - left * right * slope
        b = left * right * value
        root = (a.square() - 4 * b * c).abs().sqrt()
        step = torch.where(a <= 0, (a - root) / (2 * c), 2 * b / (a + root))
        newton = -value / slope
        return torch.where((value * step < 0) & step.isfinite(), step, newton)


_NODES = 21


def windows(fence: Float[Tensor, " fence"]) -> list[Window]:
    """Windows over all intervals between neighbours in `fence`, whose last entry is the end and no pole."""
    count = len(fence) - 1
    # Intervals of a window, so that far poles (nodes × all) cost about as much as near ones (5 × rows × 3 rows).
    step = max(64 if fence.device.type == "cpu" else 512, math.isqrt(max(1, _NODES * count // 15)) + 1)
    starts = torch.arange(0, count, step, device=fence.device)
    stops = (starts + step).clamp(max=count)
    low, high = fence[starts], fence[stops]
    first = torch.searchsorted(fence[:-1], low - (high - low))
    last = torch.searchsorted(fence[:-1], high + (high - low), right=True)
    columns = (starts, stops, low, high - low, first, last)
    return [
        Window(slice(int(a), int(b)), bottom, width, slice(int(p), int(q)))
        for a, b, bottom, width, p, q in zip(*(column.tolist() for column in columns), strict=True)
    ]


def _angles(like: Tensor) -> Tensor:
    index = torch.arange(_NODES, dtype=like.dtype, device=like.device)
    return (index + 0.5) * (math.pi / _NODES)
