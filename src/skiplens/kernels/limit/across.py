"""Functions of Gaussian variables at all positions together, as a matrix between positions makes of nonlinearities.

Such a matrix is shared by all channels and has few entries beside those between channels, so it is taken as it is. Then
a channel is a function of a Gaussian vector with an entry for each position. Its moments are means over quasi-random
points in as many dimensions, and its tangent kernel is E J T J′ᵀ with the Jacobians J at the points.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, reduce
from itertools import product
from operator import add
from typing import Any, NamedTuple

import torch
from torch import Tensor

from skiplens.kernels.limit.draws import POINTS, over_nets, root_of, scatter
from skiplens.kernels.limit.signals import Axes, Moments, Several, Unit, UnpairedError, covariance

_ENDS = (0, 1), (0, 0), (1, 1)  # the inputs of the pairs (x, y), (x, x) and (y, y)


@dataclass(frozen=True, eq=False)
class Across(Several):
    """A function of Gaussian variables at all positions; its values are (pairs, points, *grid)."""

    axes: Callable[[], Axes] = tuple  # of the value

    @property
    def grid(self) -> tuple[int, ...]:
        """Of the value."""
        return tuple(size for axis in self.axes() for kind, size in axis if kind == "p")

    def spread(self, entries: Sequence[Tensor]) -> list[Tensor]:
        """Entries of vectors, one for each point, beside its values."""
        return [entry.view(-1, *(1,) * len(self.grid)) for entry in entries]

    def then(self, change: Callable[[Moments], Moments]) -> "Across":
        """Behind a linear map of the positions, which takes values as it takes means."""

        def carried(values: Any) -> Moments:
            like = self.latents[0].latent
            blank = like.tangent.new_zeros(()).expand(1, 1, *self.grid, *self.grid)
            second, mean = (blank, None, None), (values, 0.0)
            return change(replace(like, second=second, tangent=blank, mean=mean, axes=self.axes()))

        def function(z: Any, entries: Any, own: Any) -> Tensor:
            values: Tensor = carried(self.function(z, entries, own)).mean[0]
            return values

        return replace(self, function=function, axes=cache(lambda: carried(0.0).axes))

    def paired(self, other: Several, linear: bool = False) -> tuple[Moments, float]:
        """E f(x) g(y), E f(x) g(x) and E f(y) g(y), the tangent kernel, and the means of f; and the error.

        Without points where both are `linear`.
        """
        assert isinstance(other, Across)
        like, both = self.latents[0].latent, (self, other)
        blocks = [None if part is None else _Block(both, which) for which, part in enumerate(like.second)]
        found = [block and (block.multiplied() if linear else block.drawn()) for block in blocks]
        second, means = tuple(part and part.second for part in found), tuple(part and part.mean for part in found[1:])
        roots = frozenset[object]().union(*(unit.latent.roots for of in both for unit in of.latents))
        tangent, error = found[0].tangent, max(part.error for part in found if part)  # type: ignore[union-attr]
        return replace(like, second=second, tangent=tangent, mean=means, roots=roots, axes=self.axes()), error


class _Found(NamedTuple):
    """Of f at one input and g at another, at all pairs of positions."""

    second: Tensor  # E f g
    mean: Tensor  # E f
    tangent: Tensor
    error: float


class _Block(NamedTuple):
    """All pairs of positions of the pairs of inputs (x, y), (x, x) or (y, y)."""

    sides: tuple[Across, Across]
    which: int

    @property
    def lead(self) -> torch.Size:
        """The numbers of inputs at both ends."""
        return self.sides[0].latents[0].latent.second[self.which].shape[:2]

    @property
    def units(self) -> list[tuple[int, Unit]]:
        """The variables at both ends, each with its end."""
        return [(end, unit) for end, side in enumerate(self.sides) for unit in side.latents]

    @property
    def sizes(self) -> list[int]:
        """Of the variables, their numbers of positions."""
        return [math.prod(unit.latent.grid) for _, unit in self.units]

    def entry(self, i: int, j: int) -> Moments | None:
        """Of two variables; those of the first end are at the rows of what it holds."""
        (end, one), (beside, other) = self.units[i], self.units[j]
        return covariance(one, other) if end <= beside else covariance(other, one)

    def covariance(self, i: int, j: int) -> Tensor:
        """Of two variables at all their positions, (pairs, positions, positions)."""
        end, beside, part = self.units[i][0], self.units[j][0], self.entry(i, j)
        size = self.sizes[i], self.sizes[j]
        if part is None:
            return self.units[i][1].latent.tangent.new_zeros(math.prod(self.lead), *size)
        block = part.second[self.which if end != beside else 1 + _ENDS[self.which][end]]
        if block is None or math.prod(block.shape[2:]) != size[0] * size[1]:
            raise UnpairedError
        block = block.expand(*self.lead, *block.shape[2:])
        return block.reshape(-1, *size) if end <= beside else block.reshape(-1, *size[::-1]).mT

    def cross(self, tangent: bool) -> dict[tuple[int, int], Tensor]:
        """Covariances, or tangent kernels, of each variable at one end with each at the other."""
        split, found = len(self.sides[0].latents), {}
        for i, j in product(range(split), range(split, len(self.units))):
            if (part := self.entry(i, j)) is not None:
                size, block = (self.sizes[i], self.sizes[j]), self.covariance(i, j)
                found[i, j - split] = part.tangent.reshape(-1, *size) if tangent else block
        return found

    def multiplied(self) -> _Found:
        """Of linear functions: products of their matrices with covariances."""
        kinds = [self.cross(tangent=False), self.cross(tangent=True) if self.which == 0 else {}]
        like = self.units[0][1].latent.tangent
        origin = [like.new_zeros(math.prod(self.lead), 1, *unit.latent.grid) for _, unit in self.units]
        split, place = len(self.sides[0].latents), like.new_zeros(1)
        (f, of_f), (_, of_g) = (
            self.values(end, part, place, slice(None), True)
            for end, part in enumerate((origin[:split], origin[split:]))
        )
        second, tangent = (_through(of_f, parts, of_g, f) for parts in kinds)
        return self.shaped(second, f[:, 0], tangent, 0.0)

    def drawn(self) -> _Found:
        """Means over points."""
        tangents, count = self.cross(tangent=True) if self.which == 0 else {}, range(len(self.units))
        roots = root_of(torch.cat([torch.cat([self.covariance(i, j) for j in count], dim=2) for i in count], dim=1))
        sizes, split = self.sizes, len(self.sides[0].latents)
        left, outputs = sum(sizes[:split]), [math.prod(side.grid) for side in self.sides]

        def means(some: slice, net: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
            parts = zip((net[0] @ roots[some]).split(sizes, dim=-1), self.units, strict=True)
            views = [part.reshape(*part.shape[:2], *unit.latent.grid) for part, (_, unit) in parts]
            (f, of_f), (g, of_g) = (
                self.values(end, part, net[1], some, bool(tangents))
                for end, part in enumerate((views[:split], views[split:]))
            )
            own, size = {place: part[some] for place, part in tangents.items()}, torch.zeros_like(f[:, 0, 0])
            for (i, j), part in own.items():
                a, b = (each.square().sum(dim=3).mean(dim=1).amax(dim=1) for each in (of_f[i], of_g[j]))
                size += (a * b).sqrt() * part.abs().amax(dim=(1, 2))
            a, b = (each.square().mean(dim=1).amax(dim=1) for each in (f, g))
            second, tangent = f.mT @ g / f.shape[1], _through(of_f, own, of_g, f)
            return second, f.mean(dim=1), tangent, (a * b).sqrt(), size

        held = max(outputs) if tangents else 1
        each = over_nets(means, roots, (left, sum(sizes) - left), POINTS, held)
        second, mean, tangent, *largest = (part.mean(dim=0) for part in each)
        return self.shaped(second, mean, tangent, scatter(zip((each[0], each[2]), largest, strict=True)))

    def shaped(self, second: Tensor, mean: Tensor, tangent: Tensor, error: float) -> _Found:
        """With the inputs and positions on axes of their own."""
        one, other = (side.grid for side in self.sides)
        second, tangent = (part.expand_as(second).reshape(*self.lead, *one, *other) for part in (second, tangent))
        return _Found(second, mean.view(*self.lead, *one), tangent, error)

    def values(
        self, end: int, variables: list[Tensor], places: Tensor, some: slice, slopes: bool
    ) -> tuple[Tensor, list[Tensor]]:
        """A function at all points, (pairs, points, positions), and its Jacobian for each variable."""
        of, which = self.sides[end], _ENDS[self.which][end]

        def spread(part: Any) -> Any:
            if not isinstance(part, Tensor):
                return part
            return part.expand(*self.lead, *part.shape[2:]).reshape(-1, 1, *part.shape[2:])[some]

        entries = [vector.to(places)[(places * len(vector)).long()] for vector in of.vectors]
        with torch.enable_grad():
            leaves = [part.detach().requires_grad_(slopes) for part in variables]
            values = of.function(leaves, entries, [spread(pair[which]) for pair in of.numbers])
            values = values.reshape(*values.shape[:2], -1)
            rows = [
                torch.autograd.grad(values[..., p].sum(), leaves, None, True, allow_unused=True, materialize_grads=True)
                for p in range(values.shape[2] if slopes else 0)
            ]
        flat = [[part.reshape(*part.shape[:2], -1) for part in row] for row in rows]
        return values.detach(), [torch.stack(row, dim=2) for row in zip(*flat, strict=True)]


def _through(left: list[Tensor], blocks: dict[tuple[int, int], Tensor], right: list[Tensor], like: Tensor) -> Tensor:
    """The mean over points of Σ_ij J_i B_ij J_jᵀ, (pairs, positions, positions)."""
    parts = [torch.einsum("kapi,kij,kaqj->kpq", left[i], part, right[j]) for (i, j), part in blocks.items()]
    total = reduce(add, parts) if parts else like.new_zeros(len(like), like.shape[2], 1)
    return total / like.shape[1]
