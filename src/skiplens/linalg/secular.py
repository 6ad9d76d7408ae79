"""All eigenvalues of a diagonal matrix plus one outer product: the roots of the secular equation."""

from dataclasses import dataclass

import torch

from skiplens.core.axes import Float, Tensor

_MOST_STEPS = 80
"""Steps until a root must be found: halving a bracket so often leaves nothing of it."""


@dataclass(frozen=True)
class SecularRoots:
    """The roots of 1 + ρ Σ z_j² / (d_j − λ) = 0, each as a pole plus an offset, which keeps all digits of λ − d_j.

    Attributes:
        poles: d, ascending and distinct.
        origins: For each root the index of the pole it is counted from.
        offsets: The root minus that pole.
    """

    poles: Float[Tensor, " size"]
    origins: Tensor
    offsets: Float[Tensor, " size"]

    @property
    def values(self) -> Float[Tensor, " size"]:
        """The roots, ascending."""
        return self.poles[self.origins] + self.offsets

    def gaps(self, roots: slice) -> Float[Tensor, "some size"]:
        """d_j − λ_i for some of the roots i and all poles j."""
        base, offset = self.poles[self.origins[roots]], self.offsets[roots]
        return (self.poles - base[:, None]) - offset[:, None]


def secular_roots(poles: Float[Tensor, " size"], squares: Float[Tensor, " size"], rho: float) -> SecularRoots:
    """The eigenvalues of diag(poles) + ρ z zᵀ, z² = squares > 0, ρ > 0, poles ascending and distinct.

    Root i lies between pole i and the next. Each step interpolates the function by the two poles around the root, the
    weight of the nearer one fixed (Li 1993, LAPACK working note 89); a step that leaves the bracket halves it instead.
    """
    origins, offsets = torch.empty_like(poles, dtype=torch.int64), torch.empty_like(poles)
    # Beyond the last root, a pole without weight: the last interval is then like the others.
    reach = 1.01 * rho * squares.sum() + torch.finfo(poles.dtype).tiny
    fence = torch.cat([poles, poles[-1:] + reach])
    weights = torch.cat([rho * squares, squares.new_zeros(1)])
    for rows in row_chunks(len(poles), len(poles), poles.device):
        search = _Search(fence, weights, torch.arange(rows.start, rows.stop, device=poles.device))
        origins[rows], offsets[rows] = search.run()
    # The last root may be counted from the fence; the last pole is as good an origin there, for nothing lies beyond.
    beyond = origins == len(poles)
    offsets = torch.where(beyond, offsets + reach, offsets)
    return SecularRoots(poles, origins.clamp(max=len(poles) - 1), offsets)


def refined_squares(roots: SecularRoots) -> Float[Tensor, " size"]:
    """ρ ẑ², for which the computed roots are exact: eigenvectors made from ẑ are orthogonal to working precision."""
    poles, size = roots.poles, len(roots.poles)
    base = poles[roots.origins]
    index = torch.arange(size, device=poles.device)
    upper = torch.cat([poles[1:], poles[-1:]])
    squares = torch.empty_like(poles)
    for rows in row_chunks(size, size, poles.device):
        own = poles[rows][:, None]
        numerator = (base - own) + roots.offsets
        denominator = torch.where(index < index[rows][:, None], poles, upper) - own
        denominator[:, -1] = 1  # the last root has no partner among the poles
        # Row i pairs root j with pole j before i and with pole j + 1 from i on, so each ratio is near one.
        denominator = torch.where((index[rows][:, None] == size - 1) & (index == size - 1), 1, denominator)
        squares[rows] = (numerator / denominator).prod(1)
    return squares.clamp_min(0)


def rotated(
    roots: SecularRoots,
    squares: Float[Tensor, " size"],
    vector: Float[Tensor, " size"],
    others: Float[Tensor, "size k"],
) -> Float[Tensor, "size k"]:
    """Qᵀ `others`, Q the eigenvectors (column i ∝ ẑ_j / (d_j − λ_i)), with the signs of `vector` for ẑ = ±√squares."""
    z = squares.sqrt().copysign(vector)
    weighted, turned = z[:, None] * others, torch.empty_like(others)
    for rows in row_chunks(len(z), len(z), z.device):
        inverse = roots.gaps(rows).reciprocal_()
        products = inverse @ weighted
        turned[rows] = products / (inverse.square_() @ squares).sqrt()[:, None]
    return turned


def row_chunks(rows: int, columns: int, device: torch.device) -> list[slice]:
    """Runs of rows such that one run of a rows × columns matrix stays in the cache (or fills a GPU)."""
    entries = 2**17 if device.type == "cpu" else 2**26
    step = max(1, entries // max(1, columns))
    return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]


class _Search:
    """All roots of a run of rows: brackets, offsets, and which are not found yet."""

    def __init__(self, fence: Tensor, weights: Tensor, rows: Tensor) -> None:
        self.fence, self.weights, self.rows = fence, weights, rows
        half = (fence[rows + 1] - fence[rows]) / 2
        value, _ = self._evaluate(rows, half, rows)
        left = value >= 0
        self.origins = torch.where(left, rows, rows + 1)
        self.low = torch.where(left, torch.zeros_like(half), -half)
        self.high = torch.where(left, half, torch.zeros_like(half))
        self.offsets = self._guess(value, 2 * half, left)

    def _guess(self, value: Tensor, width: Tensor, left: Tensor) -> Tensor:
        """The root when all poles but the two around it count as in the middle between these."""
        lower, upper = self.weights[self.rows], self.weights[self.rows + 1]
        c = value - 2 * (upper - lower) / width
        sign = torch.where(left, 1.0, -1.0)
        a, b = c * width + sign * (lower + upper), torch.where(left, lower, upper) * width
        root = (a.square() - sign * 4 * b * c).abs().sqrt()
        stable, other = 2 * b / (a + sign * root), (a - sign * root) / (2 * c) * sign
        guess = torch.where(sign * a > 0, stable, other)
        inside = (guess > self.low) & (guess < self.high)
        return torch.where(inside, guess, (self.low + self.high) / 2)

    def run(self) -> tuple[Tensor, Tensor]:
        """The origin and the offset of each root."""
        active = torch.arange(len(self.rows), device=self.rows.device)
        for _ in range(_MOST_STEPS):
            active = active[self._step(active)]
            if not len(active):
                break
        return self.origins, self.offsets

    def _step(self, active: Tensor) -> Tensor:
        """One step for the `active` rows; True where another one is needed."""
        rows, origins, offset = self.rows[active], self.origins[active], self.offsets[active]
        value, slope = self._evaluate(origins, offset, rows)
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

    def _evaluate(self, origins: Tensor, offset: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The function and its derivative at the poles `origins` plus `offset`."""
        inverse = ((self.fence - self.fence[origins][:, None]) - offset[:, None]).reciprocal_()
        value = 1 + inverse @ self.weights
        return value, inverse.square_() @ self.weights

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
