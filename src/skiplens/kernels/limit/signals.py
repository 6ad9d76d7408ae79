"""What an infinitely wide layer holds: moments of one coordinate and its tangent kernel, for all pairs of inputs.

All coordinates of a layer are alike. One is a function of Gaussian variables, the `roots`, of which each matrix draws a
new one. Two values without a common root are independent. Images and sequences have positions too, the `grid`. A block
of moments is (samples, other samples, *grid) where only equal positions are paired, and (samples, other samples, *grid,
*grid) where something later adds up different ones.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import add, mul
from typing import Any

import torch
from torch import Tensor

from skiplens.base.axes import Float
from skiplens.base.errors import InvalidInputError
from skiplens.kernels.limit.gaussian import Expectations, bend_blocks, expanded, piecewise_linear

Pair = tuple[Any, ...]  # for the inputs x, (samples, 1, *grid), and y, (1, other samples, *grid); or a number twice
Triple = tuple[Any, ...]  # blocks of the pairs (x, y), (x, x) and (y, y); None where nothing will read it
Axes = tuple[
    tuple[tuple[str, int], ...], ...
]  # of each axis of a value its parts: s(amples), c(oordinates), p(ositions)
ROWS: Axes = ((("s", -1),), (("c", -1),))


def same_positions(block: Tensor, lead: int, count: int) -> Tensor:
    """A view of a block (*lead, *grid, *grid) at equal positions, (*lead, *grid); other blocks as they are."""
    if block.ndim == lead + 2 * count:
        for axis in range(count):
            block = block.diagonal(dim1=lead, dim2=lead + count - axis)
    return block


def sides(pair: Pair, like: Tensor, count: int) -> Pair:
    """Numbers of both inputs at their positions, in shapes that broadcast to the block `like`."""
    if not count or like.ndim == 2 + count:
        return pair
    rows, columns = pair
    ones = (None,) * count
    return (
        rows[(..., *ones)] if isinstance(rows, Tensor) else rows,
        columns[(slice(None), slice(None), *ones)] if isinstance(columns, Tensor) else columns,
    )


def _times(block: Tensor | None, one: Any, other: Any, count: int) -> Any:
    """`one` of the first input times `other` of the second, in the form of a block."""
    return None if block is None else mul(*sides((one, other), block, count))


def _total(*blocks: Any) -> Any:
    """The sum of blocks; different positions, and what is missing, are left out where one has none."""
    if any(block is None for block in blocks):
        return None
    tensors = [block for block in blocks if isinstance(block, Tensor)]
    count = min((block.ndim for block in tensors), default=2) - 2
    numbers = [block for block in blocks if not isinstance(block, Tensor) and block]
    return reduce(add, [*(same_positions(block, 2, count) for block in tensors), *numbers] or [0.0])


@dataclass(frozen=True, eq=False)
class Moments:
    """Moments of one coordinate u at the inputs x and y, and its tangent kernel."""

    second: Triple  # E u(x) u(y), E u(x)², E u(y)²
    tangent: Float[Tensor, "samples other_samples ..."]
    roots: frozenset[object]
    mean: Pair = (0.0, 0.0)  # E u(x), E u(y)
    same: bool = False  # whether x and y are the same inputs, so that the diagonal pairs an input with itself
    axes: Axes = ROWS

    @property
    def grid(self) -> tuple[int, ...]:
        """The numbers of positions along each of their axes."""
        return tuple(size for axis in self.axes for kind, size in axis if kind == "p")

    @property
    def full(self) -> bool:
        """Whether different positions are paired too."""
        return bool(self.grid) and self.second[0].ndim == 2 + 2 * len(self.grid)

    @property
    def variances(self) -> Pair:
        """E u(x)² and E u(y)² at each position."""
        count = len(self.grid)
        left, right = self.second[1:]
        return same_positions(left, 2, count), same_positions(right, 2, count)

    def outer(self, one: Pair, other: Pair) -> Triple:
        """Products of numbers at both inputs, in the form of `second`."""
        (cross, left, right), count = self.second, len(self.grid)
        ends = (cross, one[0], other[1]), (left, one[0], other[0]), (right, one[1], other[1])
        found = [_times(block, a, b, count) for block, a, b in ends]
        return found[0], found[1], found[2]

    def changed(self, by: Pair, shift: Pair) -> "Moments":
        """The moments of by·u + shift, with numbers for each input."""
        mean = self.mean[0] * by[0], self.mean[1] * by[1]
        factors = self.outer(by, by)
        second = [None if part is None else part * factor for part, factor in zip(self.second, factors, strict=True)]
        moved = any(isinstance(part, Tensor) or part for part in shift)
        shifts = [self.outer(mean, shift), self.outer(shift, mean), self.outer(shift, shift)] if moved else []
        total = tuple(map(_total, second, *shifts))
        mean = mean[0] + shift[0], mean[1] + shift[1]
        return replace(self, second=total, tangent=self.tangent * factors[0], mean=mean)

    def plus(self, other: "Moments") -> "Moments":
        """The moments of the sum with an independent coordinate; no cross term of the tangent kernels stays."""
        products = self.outer(self.mean, other.mean), self.outer(other.mean, self.mean)
        second = tuple(map(_total, self.second, other.second, *products))
        mean = self.mean[0] + other.mean[0], self.mean[1] + other.mean[1]
        tangent = _total(self.tangent, other.tangent)
        return replace(self, second=second, tangent=tangent, roots=self.roots | other.roots, mean=mean)

    def correlation(self, which: int = 0) -> Tensor:
        """E u(x) u(y) over the root of both variances; exactly 1 for an input with itself, 0 for a zero input."""
        left, right = self.variances
        block, ends = self.second[which], ((left, right), (left, left), (right, right))[which]
        rows, columns = sides(ends, block, len(self.grid))
        scale = (rows * columns).sqrt()
        rho = torch.where(scale > 0, block / scale, 0.0).clamp(-1, 1)
        if self.same and which == 0:
            self.itself(rho).copy_((left > 0).squeeze(1))
        return rho

    def itself(self, block: Tensor) -> Tensor:
        """A view of the entries of a block (x, x) that pair each input and position with itself, (samples, *grid)."""
        return same_positions(block.diagonal(dim1=0, dim2=1).movedim(-1, 0), 1, len(self.grid))

    def mapped(self, blocks: Callable[[Any], Any], means: Callable[[Any], Any], axes: Axes) -> "Moments":
        """The same with other positions: functions of each block, and of each mean."""
        second = tuple(None if part is None else blocks(part) for part in self.second)
        mean = tuple(means(part) if isinstance(part, Tensor) else part for part in self.mean)
        return replace(self, second=second, tangent=blocks(self.tangent), mean=mean, axes=axes)


@dataclass(frozen=True, eq=False)
class Data:
    """Values that are known, one row per input: whatever is computed from the inputs before the first matrix."""

    left: Float[Tensor, "samples ..."]
    right: Float[Tensor, "other_samples ..."]
    same: bool
    channel: int = 1  # the axis of the coordinates; all others are positions
    needs: tuple[int, int] = (1, 1)  # of pairs of inputs, and of an input with itself: 2 for all pairs of positions

    @cached_property
    def moments(self) -> Moments:
        """Averages over the features."""
        (x, y), shape = (part.movedim(self.channel, -1) for part in (self.left, self.right)), list(self.left.shape)
        grid, features = x.shape[1:-1], x.shape[-1]
        x, y = (part.reshape(len(part), -1, features) / features**0.5 for part in (x, y))
        parts = [(("c" if axis == self.channel else "p", shape[axis]),) for axis in range(1, len(shape))]
        cross = _products(x, y, self.needs[0] == 2).unflatten(2, grid) if grid else _products(x, y, False)[:, :, 0]
        if self.needs[0] == 2 and grid:
            cross = cross.unflatten(-1, grid)
        own = []
        for part in (x, y):
            variance = part.square().sum(dim=2)
            if self.needs[1] == 2 and grid:
                block = (part @ part.mT).view(len(part), *grid, *grid)
                same_positions(block, 1, len(grid)).copy_(variance.view(len(part), *grid))
            else:
                block = variance.view(len(part), *grid)
            own.append(block)
        means = [part.mean(dim=2).view(len(part), *grid) * features**0.5 for part in (x, y)]
        second = cross, own[0].unsqueeze(1), own[1].unsqueeze(0)
        mean, axes = (means[0].unsqueeze(1), means[1].unsqueeze(0)), ((("s", -1),), *parts)
        found = Moments(second, torch.zeros_like(cross), frozenset({("inputs",)}), mean, self.same, axes)
        if self.same:
            found.itself(cross).copy_(found.variances[0].squeeze(1))
        return found


def _products(x: Tensor, y: Tensor, full: bool) -> Tensor:
    """Inner products of (samples, positions, features) at equal positions or, if `full`, at all pairs of them."""
    if not full:
        return (x.transpose(0, 1) @ y.permute(1, 2, 0)).permute(1, 2, 0).contiguous()
    found = x.flatten(0, 1) @ y.flatten(0, 1).T
    return found.view(*x.shape[:2], *y.shape[:2]).transpose(1, 2).contiguous()


@dataclass(frozen=True, eq=False)
class Mixed:
    """A coordinate of which only the moments are known; a matrix takes it, a nonlinearity cannot."""

    moments: Moments


@dataclass(frozen=True, eq=False)
class Unit:
    """scale·f(z) of one Gaussian variable z of mean 0; Gaussian itself if `slope` is 1."""

    latent: Moments  # of z
    slope: float | None = 1.0  # f(z) = z for z > 0 and slope·z below; None where f is `function`
    function: Callable[[Tensor], Tensor] | None = None
    scale: float = 1.0

    @cached_property
    def moments(self) -> Moments:
        """The moments of the coordinate."""
        moments = self.expected[0]
        return moments if self.scale == 1 else moments.changed((self.scale, self.scale), (0.0, 0.0))

    @cached_property
    def expected(self) -> tuple[Moments, float]:
        """The moments of f(z), and their estimated error relative to equal inputs; 0 for closed forms."""
        z, error = self.latent, 0.0
        if self.slope == 1:
            return z, error
        count, (left, right) = len(z.grid), z.second[1:]
        if z.full and self.function is None:
            cross, tangent = bend_blocks(z.second[0], z.tangent, self._ends(0), self.slope or 0.0)
            ends = [piecewise_linear(torch.ones(()), part, part, self.slope or 0.0) for part in z.variances]
            flat, means = [part.second[1] for part in ends], [part.mean[0] for part in ends]
            if z.same:  # the angle of an input with itself is 0
                z.itself(tangent).copy_(z.itself(z.tangent) * float(ends[0].slopes))
        else:
            found, error = self._expectations(0)
            cross, tangent, variances = found.second[0], z.tangent * found.slopes, z.variances
            flat = [part.reshape(variance.shape) for part, variance in zip(found.second[1:], variances, strict=True)]
            means = [part.reshape(variance.shape) for part, variance in zip(found.mean, variances, strict=True)]
        own = list(flat)
        for which, block in enumerate((left, right)):
            if block.ndim == 2 + 2 * count and count:
                if self.function is None:
                    own[which] = bend_blocks(block, None, self._ends(which + 1), self.slope or 0.0)[0]
                else:
                    own[which] = self._expectations(which + 1)[0].second[0]
                same_positions(own[which], 2, count).copy_(flat[which])
        if z.same:
            z.itself(cross).copy_(flat[0].squeeze(1))
        return replace(z, second=(cross, *own), mean=tuple(means), tangent=tangent), error

    def _ends(self, which: int) -> Pair:
        """The variances at both ends of a block of the latent moments, in shapes that broadcast to it."""
        z, (left, right) = self.latent, self.latent.variances
        return sides(((left, right), (left, left), (right, right))[which], z.second[which], len(z.grid))

    def _expectations(self, which: int) -> tuple[Expectations, float]:
        """Of f at both ends of a block of the latent moments."""
        (rows, columns), rho = self._ends(which), self.latent.correlation(which)
        if self.function is None:
            return piecewise_linear(rho, rows, columns, self.slope or 0.0), 0.0
        return expanded(rho, rows, columns, self.function)

    def __call__(self, z: Tensor) -> Tensor:
        """The coordinate at a value of z."""
        value = torch.where(z > 0, z, (self.slope or 0.0) * z) if self.function is None else self.function(z)
        return self.scale * value


@dataclass(frozen=True, eq=False)
class Concatenation:
    """Coordinates of several kinds beside each other, each kind with its number of coordinates."""

    parts: tuple[tuple[int, "Signal"], ...]

    @cached_property
    def moments(self) -> Moments:
        """Averages over all coordinates."""
        total = sum(width for width, _ in self.parts)
        shares = [(width / total, part.moments) for width, part in self.parts]

        def average(blocks: Any) -> Any:
            return _total(
                *(None if block is None else share * block for (share, _), block in zip(shares, blocks, strict=True))
            )

        second = tuple(map(average, zip(*(moments.second for _, moments in shares), strict=True)))
        mean = tuple(map(average, zip(*(moments.mean for _, moments in shares), strict=True)))
        roots = frozenset[object]().union(*(moments.roots for _, moments in shares))
        tangent = average([moments.tangent for _, moments in shares])
        return replace(shares[0][1], second=second, tangent=tangent, roots=roots, mean=mean)


Signal = Data | Mixed | Unit | Concatenation


def dependent(one: Moments, other: Moments) -> bool:
    """Whether two values share random numbers: a root is a node, then the (start, stop, size) of pieces taken of it."""
    return any(_overlap(a, b) for a in one.roots for b in other.roots)


def _overlap(one: Any, other: Any) -> bool:
    for a, b in zip(one, other, strict=False):
        if a != b:  # two pieces of one axis overlap or not; of two nodes nothing is shared
            return isinstance(a, tuple) and isinstance(b, tuple) and (a[2] != b[2] or (a[0] < b[1] and b[0] < a[1]))
    return True


def moved(signal: Signal, change: Callable[[Moments], Moments], linear: bool = False) -> Signal:
    """The signal with its positions or roots changed; `linear` where the change adds up positions."""
    if isinstance(signal, Concatenation):
        return Concatenation(tuple((width, moved(part, change, linear)) for width, part in signal.parts))
    if isinstance(signal, Unit) and (not linear or signal.slope == 1):
        return Unit(change(signal.moments)) if linear else replace(signal, latent=change(signal.latent))
    return Mixed(change(signal.moments))


def sum_of(one: Signal, other: Signal) -> Signal:
    """The sum of two signals that are independent of each other or functions of the same variable."""
    if isinstance(one, Unit) and isinstance(other, Unit) and one.latent is other.latent:
        if one.function is None and one.slope == other.slope:
            return replace(one, scale=one.scale + other.scale)
        return Unit(one.latent, None, lambda z: one(z) + other(z))
    if any(isinstance(part, Concatenation) for part in (one, other)) or dependent(one.moments, other.moments):
        raise InvalidInputError(
            "it is the sum of two values that depend on the same random numbers in different ways, or of a "
            "concatenation, which have no rule yet; put a matrix between them"
        )
    total = one.moments.plus(other.moments)
    return Unit(total) if all(isinstance(part, Unit) and part.slope == 1 for part in (one, other)) else Mixed(total)


def product_of(one: Signal, other: Signal) -> Signal:
    """The product of two functions of the same variable, or of two independent ones (a gate)."""
    if isinstance(one, Unit) and isinstance(other, Unit) and one.latent is other.latent:
        return Unit(one.latent, None, lambda z: one(z) * other(z))
    left, right = one.moments, other.moments
    if any(isinstance(part, Data | Concatenation) for part in (one, other)) or dependent(left, right):
        raise InvalidInputError(
            "it is a product of values that are neither functions of one value nor independent, which has no rule yet"
        )
    second = tuple(None if a is None or b is None else a * b for a, b in zip(left.second, right.second, strict=True))
    mean = left.mean[0] * right.mean[0], left.mean[1] * right.mean[1]
    tangent = left.tangent * right.second[0] + left.second[0] * right.tangent
    return Mixed(replace(left, second=second, mean=mean, tangent=tangent, roots=left.roots | right.roots))


def changed(signal: Signal, by: float | Pair, shift: float | Pair = 0.0) -> Signal:
    """The signal times a number, plus a number; both may be different for each input."""
    if isinstance(signal, Concatenation):
        return Concatenation(tuple((width, changed(part, by, shift)) for width, part in signal.parts))
    if isinstance(signal, Unit) and isinstance(by, float) and isinstance(shift, float):
        moved = Unit(signal.latent, None, lambda z: by * signal(z) + shift)
        return moved if shift else replace(signal, scale=signal.scale * by)
    pairs = [(entry, entry) if isinstance(entry, float) else entry for entry in (by, shift)]
    centred = not any(isinstance(part, Tensor) or part for part in pairs[1])
    moments = signal.moments.changed(*pairs)
    return Unit(moments) if isinstance(signal, Unit) and signal.slope == 1 and centred else Mixed(moments)
