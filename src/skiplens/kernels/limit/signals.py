"""What an infinitely wide layer holds: moments of one coordinate and its tangent kernel, for all pairs of inputs.

All coordinates of a layer are alike. One is a function of Gaussian variables, the `roots`, of which each matrix draws a
new one. Two values without a common root are independent. Images and sequences have positions too, the `grid`. A block
of moments is (samples, other samples, *grid) where only equal positions are paired, and (samples, other samples, *grid,
*grid) where something later adds up different ones.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from operator import add, mul
from typing import Any

import torch
from torch import Tensor

from skiplens.base import Float, InvalidInputError, refuse_if
from skiplens.kernels.limit import gaussian
from skiplens.kernels.limit.gaussian import Expectations, bend_blocks, expanded, piecewise_linear

Pair = tuple[Any, ...]  # for the inputs x, (samples, 1, *grid), and y, (1, other samples, *grid); or a number twice
Triple = tuple[Any, ...]  # blocks of the pairs (x, y), (x, x) and (y, y); None where nothing will read it
# of each axis of a value its parts: s(amples), c(oordinates), p(ositions)
Axes = tuple[tuple[tuple[str, int], ...], ...]
DEPENDENT = (
    "it joins values that depend on the same random numbers in a way that has no rule; put a matrix between them"
)
BY_COORDINATE = frozenset({("vectors",)})  # the root of all vectors that differ from coordinate to coordinate
ROWS: Axes = ((("s", -1),), (("c", -1),))


class UnpairedError(InvalidInputError):
    """Positions are not paired that a rule reads; they are in a second walk, if nothing has flattened them before."""

    def __init__(self) -> None:
        super().__init__("it reads all pairs of positions, of which some were flattened before, which has no rule yet")


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


def correlated(block: Tensor, ends: Pair, count: int) -> tuple[Pair, Tensor]:
    """The variances at both ends of a block, in shapes that broadcast to it, and its correlations."""
    rows, columns = sides(ends, block, count)
    scale = (rows * columns).sqrt()
    return (rows, columns), torch.where(scale > 0, block / scale, 0.0).clamp(-1, 1)


def combined(combine: Callable[[Any, Any], Any], *blocks: Any) -> Any:
    """Blocks added or multiplied; different positions, and what is missing, are left out where one has none."""
    if any(block is None for block in blocks):
        return None
    kept = [block for block in blocks if isinstance(block, Tensor) or block or combine is mul] or [0.0]
    count = min((block.ndim for block in kept if isinstance(block, Tensor)), default=2) - 2
    return reduce(combine, (same_positions(part, 2, count) if isinstance(part, Tensor) else part for part in kept))


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
        return tuple(None if block is None else mul(*sides((a, b), block, count)) for block, a, b in ends)

    def changed(self, by: Pair, shift: Pair) -> "Moments":
        """The moments of by·u + shift, with numbers for each input."""
        mean = self.mean[0] * by[0], self.mean[1] * by[1]
        factors = self.outer(by, by)
        second = [None if part is None else part * factor for part, factor in zip(self.second, factors, strict=True)]
        moved = any(isinstance(part, Tensor) or part for part in shift)
        shifts = [self.outer(mean, shift), self.outer(shift, mean), self.outer(shift, shift)] if moved else []
        total = tuple(combined(add, *blocks) for blocks in zip(second, *shifts, strict=True))
        mean = mean[0] + shift[0], mean[1] + shift[1]
        return replace(self, second=total, tangent=self.tangent * factors[0], mean=mean)

    def correlation(self, which: int = 0) -> Tensor:
        """E u(x) u(y) over the root of both variances; exactly 1 for an input with itself, 0 for a zero input."""
        left, right = self.variances
        block, ends = self.second[which], ((left, right), (left, left), (right, right))[which]
        rho = correlated(block, ends, len(self.grid))[1]
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
        return paired_data(self, self)


def paired_data(one: Data, other: Data) -> Moments:
    """Averages over the features of products of two values at x and y; means are those of the first."""
    shape, needs = list(one.left.shape), one.needs
    (a, b), (c, d) = ([part.movedim(of.channel, -1) for part in (of.left, of.right)] for of in (one, other))
    grid, features = a.shape[1:-1], a.shape[-1]
    a, b, c, d = (part.reshape(len(part), -1, features) / features**0.5 for part in (a, b, c, d))
    parts = [(("c" if axis == one.channel else "p", shape[axis]),) for axis in range(1, len(shape))]
    cross = _products(a, d, needs[0] == 2).unflatten(2, grid) if grid else _products(a, d, False)[:, :, 0]
    if needs[0] == 2 and grid:
        cross = cross.unflatten(-1, grid)
    own = []
    for part, beside in ((a, c), (b, d)):
        variance = (part * beside).sum(dim=2)
        if needs[1] == 2 and grid:
            block = (part @ beside.mT).view(len(part), *grid, *grid)
            same_positions(block, 1, len(grid)).copy_(variance.view(len(part), *grid))
        else:
            block = variance.view(len(part), *grid)
        own.append(block)
    means = [part.mean(dim=2).view(len(part), *grid) * features**0.5 for part in (a, b)]
    second = cross, own[0].unsqueeze(1), own[1].unsqueeze(0)
    mean, axes = (means[0].unsqueeze(1), means[1].unsqueeze(0)), ((("s", -1),), *parts)
    found = Moments(second, cross.new_zeros(()).expand_as(cross), frozenset({("inputs",)}), mean, one.same, axes)
    if one.same:
        found.itself(cross).copy_(found.variances[0].squeeze(1))
    return found


def _products(x: Tensor, y: Tensor, full: bool) -> Tensor:
    """Inner products of (samples, positions, features) at equal positions or, if `full`, at all pairs of them."""
    if not full:
        return (x.transpose(0, 1) @ y.permute(1, 2, 0)).permute(1, 2, 0).contiguous()
    found = x.flatten(0, 1) @ y.flatten(0, 1).T
    return found.view(*x.shape[:2], *y.shape[:2]).transpose(1, 2).contiguous()


@dataclass(frozen=True, eq=False)
class Source:
    """The Gaussian variable that a matrix draws, and how it goes together with others of the same weights."""

    weight: str
    moments: Moments
    signal: "Signal"  # what the matrix reads
    pair: Callable[["Signal", "Signal"], Moments]  # what the weights make of two values
    asked: list[bool]  # grows if anybody wants to know
    known: dict[int, Moments] = field(default_factory=dict)  # by the id of the other one

    def covariance(self, other: "Source") -> Moments | None:
        """E z(x) z′(y) and so on, with the tangent kernel of the two; None where they are independent."""
        self.asked.append(True)
        if self is other:
            return self.moments
        if self.weight == other.weight and id(other) not in self.known:
            self.known[id(other)] = self.pair(self.signal, other.signal)
        return self.known.get(id(other))


@dataclass(frozen=True, eq=False)
class Unit:
    """scale·f(z) of one Gaussian variable z of mean 0; Gaussian itself if `slope` is 1."""

    latent: Moments  # of z
    slope: float | None = 1.0  # f(z) = z for z > 0 and slope·z below; None where f is `function`
    function: Callable[[Tensor], Tensor] | None = None
    scale: float = 1.0
    terms: tuple[tuple[float, Source], ...] = ()  # z as a sum, where that is remembered
    wave: tuple[float, float] | None = None  # frequency and phase of a `function` that is a sine
    source: Any = None  # z as a function of others at all positions, for what is joined with these

    @property
    def gaussian(self) -> bool:
        """Whether the coordinate is Gaussian itself."""
        return self.slope == 1

    @cached_property
    def moments(self) -> Moments:
        """The moments of the coordinate."""
        moments = self.expected[0]
        return moments if self.scale == 1 else moments.changed((self.scale, self.scale), (0.0, 0.0))

    @cached_property
    def expected(self) -> tuple[Moments, float]:
        """The moments of f(z), and their estimated error relative to equal inputs; 0 for closed forms."""
        z, error = self.latent, 0.0
        if self.gaussian:
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
        if self.wave:
            return gaussian.sinusoid(rho, rows, columns, *self.wave), 0.0
        return expanded(rho, rows, columns, self.function)

    def plain(self, z: Tensor) -> Tensor:
        """The function at a value of z."""
        return torch.where(z > 0, z, (self.slope or 0.0) * z) if self.function is None else self.function(z)

    def __call__(self, z: Tensor) -> Tensor:
        """The coordinate at a value of z."""
        return self.scale * self.plain(z)


def covariance(one: Unit, other: Unit) -> Moments | None:
    """Of the Gaussian variables of two coordinates at x and y; None where they are independent."""
    if one.latent is other.latent:
        return one.latent
    if not dependent(one.latent, other.latent):
        return None
    refuse_if(not one.terms or not other.terms, DEPENDENT)
    pairs = [(a * b, p.covariance(q)) for a, p in one.terms for b, q in other.terms]
    found = [(factor, part) for factor, part in pairs if part is not None]
    return weighted_sum(found) if found else None


@dataclass(frozen=True, eq=False)
class Mixed:
    """A coordinate that is no function of one Gaussian variable: its moments, or of what others it is a function.

    A matrix takes it as it is; a nonlinearity needs to know the function.
    """

    known: Moments | None
    error: float = 0.0  # of what is known
    several: Any = None  # `Several` Gaussian variables

    @cached_property
    def expected(self) -> tuple[Moments, float]:
        """The moments of the coordinate, and their estimated error."""
        assert self.known is not None or self.several is not None
        return (self.known, self.error) if self.known is not None else self.several.expected

    @property
    def moments(self) -> Moments:
        """The moments of the coordinate."""
        return self.expected[0]


@dataclass(frozen=True, eq=False)
class Concatenation:
    """Coordinates of several kinds beside each other, each kind with its number of coordinates."""

    parts: tuple[tuple[int, "Signal"], ...]

    @cached_property
    def moments(self) -> Moments:
        """Averages over all coordinates."""
        total = sum(width for width, _ in self.parts)
        return weighted_sum([(width / total, part.moments) for width, part in self.parts])


@dataclass(frozen=True, eq=False)
class Logits:
    """Products of queries and keys, (…, queries, keys), or their softmax; only attention reads them."""

    query: "Signal"
    key: "Signal"
    scale: float  # of the products
    size: int  # of a head
    tied: float | None  # keys over queries where they are multiples of each other
    before: float  # the number by which queries and keys were multiplied
    mask: Any = 0.0  # what is added
    weights: bool = False  # behind the softmax

    @property
    def moments(self) -> Moments:
        """There are none: logits of different positions have no one variance."""
        raise InvalidInputError(
            "it reads logits or weights of attention, for which only multiples, masks, a softmax over the keys and the "
            "product with values have rules"
        )

    def masked(self, added: Any) -> "Logits":
        """With numbers added, one for each query and key, or for all."""
        return replace(self, mask=self.mask + added) if not self.weights else self.moments  # type: ignore[return-value]


Signal = Data | Mixed | Unit | Concatenation | Logits


def weighted_sum(shares: list[tuple[float, Moments]]) -> Moments:
    """Sums of moments, and of tangent kernels, times numbers."""

    def total(blocks: Any) -> Any:
        parts = zip(shares, blocks, strict=True)
        return combined(add, *(None if block is None else share * block for (share, _), block in parts))

    second = tuple(map(total, zip(*(moments.second for _, moments in shares), strict=True)))
    mean = tuple(map(total, zip(*(moments.mean for _, moments in shares), strict=True)))
    roots = frozenset[object]().union(*(moments.roots for _, moments in shares))
    tangent = total([moments.tangent for _, moments in shares])
    return replace(shares[0][1], second=second, tangent=tangent, roots=roots, mean=mean)


def dependent(one: Moments, other: Moments) -> bool:
    """Whether two values share random numbers: a root is a node, then the (start, stop, size) of pieces taken of it."""
    return any(_overlap(a, b) for a in one.roots for b in other.roots)


def _overlap(one: Any, other: Any) -> bool:
    for a, b in zip(one, other, strict=False):
        if a != b:  # two pieces of one axis overlap or not; of two nodes nothing is shared
            return isinstance(a, tuple) and isinstance(b, tuple) and (a[2] != b[2] or (a[0] < b[1] and b[0] < a[1]))
    return True
