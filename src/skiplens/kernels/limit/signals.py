"""What an infinitely wide layer holds: moments of one coordinate and its tangent kernel, for all pairs of inputs.

All coordinates of a layer are alike. One is a function of Gaussian variables, the `roots`, of which each matrix draws a
new one. Two values without a common root are independent.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from skiplens.base.axes import Float
from skiplens.base.errors import InvalidInputError
from skiplens.kernels.limit.gaussian import expanded, piecewise_linear

Pair = tuple[Any, Any]  # for the inputs x, (samples, 1), and for the inputs y, (1, other samples); or a number twice
Triple = tuple[Any, Any, Any]  # for the pairs (x, y), (x, x) and (y, y)


def _outer(one: Pair, other: Pair) -> Triple:
    return one[0] * other[1], one[0] * other[0], one[1] * other[1]


def _total(*triples: Any) -> Any:
    return tuple(sum(parts) for parts in zip(*triples, strict=True))


@dataclass(frozen=True, eq=False)
class Moments:
    """Moments of one coordinate u at the inputs x and y, and its tangent kernel."""

    second: Triple  # E u(x) u(y), E u(x)², E u(y)²
    tangent: Float[Tensor, "samples other_samples"]
    roots: frozenset[object]
    mean: Pair = (0.0, 0.0)  # E u(x), E u(y)
    same: bool = False  # whether x and y are the same inputs, so that the diagonal pairs an input with itself

    def changed(self, by: Pair, shift: Pair) -> "Moments":
        """The moments of by·u + shift, with numbers for each input."""
        mean = self.mean[0] * by[0], self.mean[1] * by[1]
        second = tuple(part * factor for part, factor in zip(self.second, _outer(by, by), strict=True))
        total = _total(second, _outer(mean, shift), _outer(shift, mean), _outer(shift, shift))
        tangent = self.tangent * by[0] * by[1]
        return replace(self, second=total, tangent=tangent, mean=(mean[0] + shift[0], mean[1] + shift[1]))

    def plus(self, other: "Moments") -> "Moments":
        """The moments of the sum with an independent coordinate; no cross term of the tangent kernels stays."""
        second = _total(self.second, other.second, _outer(self.mean, other.mean), _outer(other.mean, self.mean))
        mean = self.mean[0] + other.mean[0], self.mean[1] + other.mean[1]
        return Moments(second, self.tangent + other.tangent, self.roots | other.roots, mean, self.same)

    def correlation(self) -> Tensor:
        """E u(x) u(y) over the root of both variances; exactly 1 for an input with itself, 0 for a zero input."""
        cross, left, right = self.second
        scale = (left * right).sqrt()
        rho = torch.where(scale > 0, cross / scale, 0.0).clamp(-1, 1)
        if self.same:
            rho.diagonal().copy_((left > 0).squeeze(1))
        return rho


@dataclass(frozen=True, eq=False)
class Data:
    """Values that are known, one row per input: whatever is computed from the inputs before the first matrix."""

    left: Float[Tensor, "samples ..."]
    right: Float[Tensor, "other_samples ..."]
    same: bool

    @cached_property
    def moments(self) -> Moments:
        """Averages over the features."""
        cross = self.left @ self.right.T / self.left.shape[1]
        left, right = (part.square().mean(dim=1, keepdim=True) for part in (self.left, self.right))
        mean = self.left.mean(dim=1, keepdim=True), self.right.mean(dim=1, keepdim=True).T
        if self.same:
            cross.diagonal().copy_(left.squeeze(1))
        return Moments((cross, left, right.T), torch.zeros_like(cross), frozenset({"inputs"}), mean, self.same)


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
        return self.expected[0].changed((self.scale, self.scale), (0.0, 0.0))

    @cached_property
    def expected(self) -> tuple[Moments, float]:
        """The moments of f(z), and their estimated error relative to equal inputs; 0 for closed forms."""
        z, error = self.latent, 0.0
        if self.slope == 1:
            return z, error
        rho, (_, left, right) = z.correlation(), z.second
        if self.function is None:
            found = piecewise_linear(rho, left, right, self.slope or 0.0)
        else:
            found, error = expanded(rho, left, right, self.function)
        if z.same:
            found.second[0].diagonal().copy_(found.second[1].squeeze(1))
        return replace(z, second=found.second, mean=found.mean, tangent=z.tangent * found.slopes), error

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
        second = _total(*([share * part for part in moments.second] for share, moments in shares))
        mean = _total(*([share * part for part in moments.mean] for share, moments in shares))
        (tangent,) = _total(*([share * moments.tangent] for share, moments in shares))
        roots = frozenset[object]().union(*(moments.roots for _, moments in shares))
        return Moments(second, tangent, roots, mean, shares[0][1].same)


Signal = Data | Mixed | Unit | Concatenation


def sum_of(one: Signal, other: Signal) -> Signal:
    """The sum of two signals that are independent of each other or functions of the same variable."""
    if isinstance(one, Unit) and isinstance(other, Unit) and one.latent is other.latent:
        if one.function is None and one.slope == other.slope:
            return replace(one, scale=one.scale + other.scale)
        return Unit(one.latent, None, lambda z: one(z) + other(z))
    if any(isinstance(part, Concatenation) for part in (one, other)) or one.moments.roots & other.moments.roots:
        raise InvalidInputError(
            "it is the sum of two values that depend on the same random numbers in different ways, or of a "
            "concatenation, which have no rule yet; put a matrix between them"
        )
    total = one.moments.plus(other.moments)
    return Unit(total) if all(isinstance(part, Unit) and part.slope == 1 for part in (one, other)) else Mixed(total)


def product_of(one: Signal, other: Signal) -> Signal:
    """The product of two functions of the same variable."""
    if isinstance(one, Unit) and isinstance(other, Unit) and one.latent is other.latent:
        return Unit(one.latent, None, lambda z: one(z) * other(z))
    raise InvalidInputError("it is a product of values that are not functions of one value, which has no rule yet")


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
