"""Coordinates that are functions of several Gaussian variables: their moments are means over quasi-random points.

A function of variables at one position is averaged for each pair of positions alone. A matrix between positions, which
is shared by all channels and taken as it is, makes one of all positions together: a channel is then a function of a
Gaussian vector with an entry for each position, and its tangent kernel is E J T J′ᵀ with the Jacobians J at the points.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, reduce
from itertools import combinations, product
from operator import add
from typing import Any, NamedTuple

import torch
from torch import Tensor

from skiplens.base import Float, InvalidInputError
from skiplens.kernels.limit.draws import FEWER, POINTS, over_nets, root_of, scatter
from skiplens.kernels.limit.gaussian import LARGEST_ERROR
from skiplens.kernels.limit.signals import (
    BY_COORDINATE,
    Axes,
    Moments,
    Pair,
    Unit,
    UnpairedError,
    covariance,
    dependent,
    same_positions,
    sides,
)

# By the id of a variable, a vector or a pair of numbers what it is, (pairs, points, *grid); and what was made of them
Given = dict[int, Any]
_ENDS = (0, 1), (0, 0), (1, 1)  # the inputs of the pairs (x, y), (x, x) and (y, y)


@dataclass(frozen=True, eq=False)
class Several:
    """A function of several Gaussian variables, of entries of vectors and of numbers that each input has."""

    latents: tuple[Unit, ...]  # Gaussian themselves
    function: Callable[[Given], Tensor]
    vectors: tuple[Float[Tensor, " coordinates"], ...] = ()
    numbers: tuple[Pair, ...] = ()
    rough: float = 0.0  # the error of taking its variables for Gaussian
    axes: Callable[[], Axes] | None = None  # of the value, where it is one of all positions together

    @property
    def grid(self) -> tuple[int, ...]:
        """The positions that a value has."""
        return tuple(size for axis in self.axes() for kind, size in axis if kind == "p") if self.axes else ()

    @cached_property
    def expected(self) -> tuple[Moments, float]:
        """The moments of the coordinate, and their estimated error."""
        found, error = self.paired(self)
        error = max(error, self.rough)
        require_directions(self.rough, error)
        if found.same:
            found.itself(found.second[0]).copy_(found.variances[0].squeeze(1))
        return found, error

    def paired(self, other: "Several", linear: bool = False) -> tuple[Moments, float]:
        """E f(x) g(y), E f(x) g(x) and E f(y) g(y), the tangent kernel, and the means of f; and the error.

        Without points where both are `linear`.
        """
        like, both = self.latents[0].latent, (self, other)
        blocks = [None if part is None else _Block(both, which) for which, part in enumerate(like.second)]
        found = [block and (block.multiplied() if linear else block.drawn()) for block in blocks]
        second, means = tuple(part and part.second for part in found), tuple(part and part.mean for part in found[1:])
        roots = frozenset[object]().union(*(unit.latent.roots for of in both for unit in of.latents))
        roots |= BY_COORDINATE if self.vectors or other.vectors else frozenset()
        tangent, error = found[0].tangent, max(part.error for part in found if part)  # type: ignore[union-attr]
        axes = self.axes() if self.axes else like.axes
        return replace(like, second=second, tangent=tangent, mean=means, roots=roots, axes=axes), error

    def across(self) -> "Several | None":
        """The same of variables at all positions, of which other values may be functions too; None if not known."""
        if self.axes:
            return self
        like, sources = self.latents[0].latent, [(unit.latent, unit.source) for unit in self.latents if unit.source]

        def function(at: Given) -> Tensor:
            for latent, source in sources:
                at[id(latent)] = at[id(latent)] if id(latent) in at else source.function(at)
            return self.function(at)

        own = replace(self, latents=tuple(unit for unit in self.latents if not unit.source))
        return replace(_union([*(source for _, source in sources), own], function), axes=lambda: like.axes)

    def then(self, change: Callable[[Moments], Moments]) -> "Several":
        """Of all positions, behind a linear map of these, which takes values as it takes means."""

        def carried(values: Any) -> Moments:
            like = self.latents[0].latent
            blank = like.tangent.new_zeros(()).expand(1, 1, *self.grid, *self.grid)
            axes = self.axes() if self.axes else like.axes
            return change(replace(like, second=(blank, None, None), tangent=blank, mean=(values, 0.0), axes=axes))

        def function(at: Given) -> Tensor:
            values: Tensor = carried(self.function(at)).mean[0]
            return values

        return replace(self, function=function, axes=cache(lambda: carried(0.0).axes))


def require_directions(rough: float, error: float) -> None:
    """Refuse batch norm in training mode beside a sum or gate where it would be wrong."""
    if not error <= LARGEST_ERROR:
        words = f"many directions, not about {1 / rough:.0f}: it would be wrong by about {100 * error:.0f} %"
        raise InvalidInputError(f"beside a sum or gate batch norm needs {words}; take a larger example, or eval()")


def comparable(*parts: Several | None) -> list[Several | None]:
    """Functions of variables of which the covariance is known: of all positions where it is not at one."""
    latents = [unit for part in parts if part is not None for unit in part.latents]
    known = all(
        a.latent is b.latent or (a.terms and b.terms) or not dependent(a.latent, b.latent)
        for a, b in combinations(latents, 2)
    )
    wide = not known or any(part is not None and part.axes for part in parts)
    return [part and part.across() for part in parts] if wide else list(parts)


def joined(parts: list[Several], combine: Callable[..., Tensor]) -> Several:
    """A function of several coordinates."""

    def function(at: Given) -> Tensor:
        if id(function) not in at:  # several others may be functions of this one
            at[id(function)] = combine(*(part.function(at) for part in parts))
        return at[id(function)]

    return _union(parts, function)


def _union(parts: list[Several], function: Callable[[Given], Tensor]) -> Several:
    latents = {id(unit.latent): unit for part in parts for unit in part.latents}
    vectors, numbers = (tuple(entry for kind in kinds for entry in kind) for kinds in _kinds(parts))
    rough = max(part.rough for part in parts)
    return Several(tuple(latents.values()), function, vectors, numbers, rough, parts[0].axes)


def _kinds(parts: list[Several]) -> tuple[list[Any], list[Any]]:
    return [part.vectors for part in parts], [part.numbers for part in parts]


def evaluated(
    of: Several, variables: Sequence[Tensor], places: Tensor, numbers: Sequence[Any] = (), slopes: bool = True
) -> tuple[Tensor, list[Tensor]]:
    """A function at all points, (pairs, points, positions), and its Jacobian for each variable."""
    given: Given = {id(vector): vector.to(places)[(places * len(vector)).long()] for vector in of.vectors}
    given |= {id(pair): number for pair, number in zip(of.numbers, numbers, strict=True)}
    with torch.enable_grad():
        leaves = [part.detach().requires_grad_(slopes) for part in variables]
        values = of.function(given | {id(unit.latent): leaf for unit, leaf in zip(of.latents, leaves, strict=True)})
        values = values.reshape(*values.shape[:2], -1)
        rows = [
            torch.autograd.grad(values[..., p].sum(), leaves, None, True, allow_unused=True, materialize_grads=True)
            for p in range(values.shape[2] if slopes else 0)
        ]
    flat = [[part.reshape(*part.shape[:2], -1) for part in row] for row in rows]
    return values.detach(), [torch.stack(row, dim=2) for row in zip(*flat, strict=True)]


class _Found(NamedTuple):
    """Of f at one input and g at another, at their positions."""

    second: Tensor  # E f g
    mean: Tensor  # E f
    tangent: Tensor
    error: float


class _Block(NamedTuple):
    """All pairs of the inputs (x, y), (x, x) or (y, y): each with all their positions, or two of these at a time."""

    ends: tuple[Several, Several]
    which: int

    @property
    def wide(self) -> bool:
        """Whether the functions are of all positions together."""
        return self.ends[0].axes is not None

    @property
    def like(self) -> Tensor:
        """A block of the first variable."""
        block: Tensor = self.ends[0].latents[0].latent.second[self.which]
        return block

    @property
    def lead(self) -> torch.Size:
        """The axes of the pairs."""
        return self.like.shape[: 2 if self.wide else None]

    @property
    def units(self) -> list[tuple[int, Unit]]:
        """The variables at both ends, each with its end."""
        return [(end, unit) for end, of in enumerate(self.ends) for unit in of.latents]

    @property
    def grids(self) -> list[tuple[int, ...]]:
        """The positions that each variable has in a pair."""
        return [unit.latent.grid if self.wide else () for _, unit in self.units]

    def spread(self, pair: Pair, end: int) -> Any:
        """Numbers of the input at this end, (pairs, 1, *grid)."""
        inputs = _ENDS[self.which]
        both = pair[inputs[0]], pair[inputs[1]]
        if not self.wide:
            both = sides(both, self.like, len(self.units[0][1].latent.grid))
        if not isinstance(part := both[end], Tensor):
            return part
        grid = part.shape[2:] if self.wide else ()
        return part.expand(*self.lead, *grid).reshape(-1, 1, *grid)

    def covariance(self, i: int, j: int, tangent: bool = False) -> Tensor | None:
        """Of two variables, or the tangent kernel of the two, (pairs, positions, positions); None for 0."""
        (end, one), (beside, other) = self.units[i], self.units[j]
        part = covariance(one, other) if end <= beside else covariance(other, one)
        if part is None:
            return None
        size = math.prod(self.grids[i]), math.prod(self.grids[j])
        if not self.wide and end == beside:
            return self.spread(part.variances, end)[..., None]
        block = part.tangent if tangent else part.second[self.which if end != beside else 1 + _ENDS[self.which][end]]
        if self.wide and (block is None or math.prod(block.shape[2:]) != size[0] * size[1]):
            raise UnpairedError
        block = block.expand(*self.lead, *block.shape[len(self.lead) :])
        return block.reshape(-1, *size) if end <= beside else block.reshape(-1, *size[::-1]).mT

    def cross(self, tangent: bool) -> dict[tuple[int, int], Tensor]:
        """Covariances, or tangent kernels, of each variable at one end with each at the other."""
        split = len(self.ends[0].latents)
        pairs = product(range(split), range(split, len(self.units)))
        found = {(i, j - split): self.covariance(i, j, tangent) for i, j in pairs}
        return {place: part for place, part in found.items() if part is not None}

    def values(self, variables: Sequence[Tensor], places: Tensor, some: slice, slopes: bool) -> list[Any]:
        """What is `evaluated` at both ends."""
        split = len(self.ends[0].latents)
        numbers = [[self.spread(pair, end) for pair in of.numbers] for end, of in enumerate(self.ends)]
        own = [[part[some] if isinstance(part, Tensor) else part for part in parts] for parts in numbers]
        each = variables[:split], variables[split:]
        return [evaluated(of, v, places, n, slopes) for of, v, n in zip(self.ends, each, own, strict=True)]

    def multiplied(self) -> _Found:
        """Of linear functions: products of their matrices with covariances."""
        origin = [self.like.new_zeros(math.prod(self.lead), 1, *grid) for grid in self.grids]
        (f, left), (_, right) = self.values(origin, self.like.new_zeros(1), slice(None), True)
        kinds = self.cross(tangent=False), self.cross(tangent=True) if self.which == 0 else {}
        second, tangent = (_through(left, parts, right, f) for parts in kinds)
        return self.shaped(second, f[:, 0], tangent, 0.0)

    def drawn(self) -> _Found:
        """Means over points."""
        tangents, count = self.cross(tangent=True) if self.which == 0 else {}, range(len(self.units))
        sizes, split = [math.prod(grid) for grid in self.grids], len(self.ends[0].latents)
        zero = self.like.new_zeros(math.prod(self.lead), 1, 1)
        blocks = [[self.covariance(i, j) for j in count] for i in count]
        filled = [
            [zero.expand(-1, sizes[i], sizes[j]) if b is None else b for j, b in enumerate(row)]
            for i, row in enumerate(blocks)
        ]
        roots = root_of(torch.cat([torch.cat(row, dim=2) for row in filled], dim=1))
        outputs = max(math.prod(of.grid) for of in self.ends)

        def means(some: slice, net: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
            parts = zip((net[0] @ roots[some]).split(sizes, dim=-1), self.grids, strict=True)
            views = [part.reshape(*part.shape[:2], *grid) for part, grid in parts]
            (f, left), (g, right) = self.values(views, net[1], some, bool(tangents))
            own, size = {place: part[some] for place, part in tangents.items()}, torch.zeros_like(f[:, 0, 0])
            for (i, j), part in own.items():
                a, b = (each.square().sum(dim=3).mean(dim=1).amax(dim=1) for each in (left[i], right[j]))
                size += (a * b).sqrt() * part.abs().amax(dim=(1, 2))
            a, b = (each.square().mean(dim=1).amax(dim=1) for each in (f, g))
            return f.mT @ g / f.shape[1], f.mean(dim=1), _through(left, own, right, f), (a * b).sqrt(), size

        points = FEWER if self.ends[0].latents[0].latent.full and not self.wide else POINTS
        ends = sum(sizes[:split]), sum(sizes[split:])
        each = over_nets(means, roots, ends, points, outputs if tangents else 1)
        second, mean, tangent, *largest = (part.mean(dim=0) for part in each)
        return self.shaped(second, mean, tangent, scatter(zip((each[0], each[2]), largest, strict=True)))

    def shaped(self, second: Tensor, mean: Tensor, tangent: Tensor, error: float) -> _Found:
        """With the inputs and positions on axes of their own."""
        one, other = (of.grid for of in self.ends)
        second, tangent = (part.expand_as(second).reshape(*self.lead, *one, *other) for part in (second, tangent))
        mean = mean.view(*self.lead, *one)
        return _Found(
            second, mean if self.wide else same_positions(mean, 2, len(self.units[0][1].latent.grid)), tangent, error
        )


def _through(left: list[Tensor], blocks: dict[tuple[int, int], Tensor], right: list[Tensor], like: Tensor) -> Tensor:
    """The mean over points of Σ_ij J_i B_ij J_jᵀ, (pairs, positions, positions)."""
    parts = [torch.einsum("kapi,kij,kaqj->kpq", left[i], part, right[j]) for (i, j), part in blocks.items()]
    return reduce(add, parts) / like.shape[1] if parts else like.new_zeros(len(like), like.shape[2], 1)
