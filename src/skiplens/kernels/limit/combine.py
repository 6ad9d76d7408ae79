"""Sums, products and other changes of coordinates that are functions of Gaussian variables."""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from operator import add, mul
from typing import Any

import torch
from torch import Tensor

from skiplens.base.errors import InvalidInputError
from skiplens.kernels.limit import signals
from skiplens.kernels.limit.gaussian import expanded, piecewise_linear
from skiplens.kernels.limit.several import Given, Several, comparable, joined
from skiplens.kernels.limit.signals import (
    Concatenation,
    Data,
    Logits,
    Mixed,
    Moments,
    Pair,
    Signal,
    Unit,
    dependent,
)


def of_one(unit: Unit, function: Callable[[Tensor], Tensor]) -> Unit:
    """Another function of the same Gaussian variable."""
    return replace(unit, slope=None, function=function, scale=1.0, wave=None)


def negated(unit: Unit) -> Unit:
    """The same coordinate as one of the Gaussian variable −z."""
    of = several(unit)
    return Unit(unit.moments, terms=tuple((-c, z) for c, z in unit.terms), source=of and of.across())


def several(signal: Signal) -> Several | None:
    """The coordinate as a function of Gaussian variables, where that is known."""
    if isinstance(signal, Unit):
        variable = Unit(signal.latent, terms=signal.terms, source=signal.source)
        return Several((variable,), lambda at: signal(at[id(signal.latent)]))
    return signal.several if isinstance(signal, Mixed) else None


def applied(signal: Signal, function: Callable[..., Tensor], vector: Tensor | None = None, *pairs: Pair) -> Mixed:
    """A function of a coordinate, of entries of a vector and of numbers that each input has."""
    inner = several(signal)
    if inner is None:
        raise InvalidInputError("its input is a mixture that is not Gaussian; put a matrix before it")
    vectors = () if vector is None else (vector,)

    def outer(at: Given) -> Tensor:
        values = inner.function(at)
        entries = (at[id(part)].view(-1, *(1,) * (values.ndim - 2)) for part in vectors)
        return function(values, *entries, *(at[id(pair)] for pair in pairs))

    read, numbers = (*inner.vectors, *vectors), (*inner.numbers, *pairs)
    return Mixed(None, several=replace(inner, function=outer, vectors=read, numbers=numbers))


def _together(one: Signal, other: Signal, combine: Callable[[Tensor, Tensor], Tensor]) -> Several | None:
    """A function of two coordinates as one of all their Gaussian variables."""
    a, b = comparable(several(one), several(other))
    return None if a is None or b is None else joined([a, b], combine)


def pairing(one: Signal, other: Signal) -> Moments | None:
    """E u(x) v(y), E u(x) v(x) and E u(y) v(y) of two coordinates, and the tangent kernel of the two; None for 0."""
    left, right = one.moments, other.moments
    if one is other:
        return left
    a, b = comparable(several(one), several(other))
    if isinstance(one, Unit) and isinstance(other, Unit) and not (a and a.axes):
        if (joint := signals.covariance(one, other)) is not None:
            return _pair_of_units(one, other, joint)
    elif isinstance(one, Data) and isinstance(other, Data) and one.left.shape[1:] == other.left.shape[1:]:
        return signals.paired_data(one, other)
    elif dependent(left, right):
        if a is None or b is None:
            raise InvalidInputError(signals.DEPENDENT)
        return replace(a.paired(b, _linear(one, other))[0], mean=(0.0, 0.0))
    products = left.outer(left.mean, right.mean)
    if not any(isinstance(part, Tensor) or part for part in products):
        return None
    blocks = zip(left.second, products, strict=True)
    second = tuple(None if block is None else torch.zeros_like(block) + part for block, part in blocks)
    return replace(left, second=second, tangent=torch.zeros_like(left.tangent), mean=(0.0, 0.0))


def _linear(*signals: Signal) -> bool:
    return all(isinstance(signal, Unit) and signal.gaussian for signal in signals)


def _pair_of_units(one: Unit, other: Unit, joint: Moments) -> Moments:
    """Of functions of one Gaussian variable each."""
    if one.gaussian and other.gaussian:
        return signals.weighted_sum([(one.scale * other.scale, joint)])
    (a, b), (c, d), second = one.latent.variances, other.latent.variances, list[Any]()
    for block, ends in zip(joint.second, ((a, d), (a, c), (b, d)), strict=True):
        if block is None:
            second.append(None)
            continue
        (rows, columns), rho = signals.correlated(block, ends, len(joint.grid))
        if one.slope is None or other.slope is None:
            found = expanded(rho, rows, columns, one.plain, other.plain)[0]
        else:
            found = piecewise_linear(rho, rows, columns, one.slope, other.slope)
        second.append(one.scale * other.scale * found.second[0])
        if len(second) == 1:
            tangent = one.scale * other.scale * found.slopes * joint.tangent
    return replace(joint, second=tuple(second), tangent=tangent, mean=(0.0, 0.0))


def _shaped(signal: Signal) -> Moments:
    """Moments of the same shape; those of the signal itself may take long, or be infinite."""
    if isinstance(signal, Concatenation):
        return _shaped(signal.parts[0][1])
    inner = None if isinstance(signal, Mixed) and signal.known is not None else several(signal)
    return signal.moments if inner is None else inner.latents[0].latent


def broadcast(one: Signal, other: Signal) -> Signal:
    """The first signal at all positions of the second where it has one (a gate of channels), or lost an axis of one."""
    own, like = _shaped(one), _shaped(other)
    mine, theirs = ([[part for part in axis if part[0] == "c"] for axis in of.axes] for of in (own, like))
    if any(a in ([], [("c", 1)]) and b not in ([], [("c", 1)]) for a, b in zip(mine, theirs, strict=False)):
        raise InvalidInputError("one draw for all coordinates stays random at any width; give it as many coordinates")
    if len(own.grid) < len(like.grid) and [n for n in own.grid if n != 1] == [n for n in like.grid if n != 1]:

        def placed(part: Tensor) -> Tensor:
            if own.grid and part.ndim == 2 + 2 * len(own.grid):
                return part.reshape(*part.shape[:2], *like.grid, *like.grid)
            return part.expand(*part.shape[:2], *own.grid).reshape(*part.shape[:2], *like.grid)

        return moved(one, lambda inside: inside.mapped(placed, placed, like.axes))
    if math.prod(own.grid) != 1 or math.prod(like.grid) == 1 or mine != theirs:
        return one

    def spread(part: Any, block: Any) -> Any:
        if not isinstance(part, Tensor) or block is None:
            return part
        shape = block.shape[2:]
        return part.reshape(*part.shape[:2], *(1,) * len(shape)).expand(*part.shape[:2], *shape).contiguous()

    def change(inside: Moments) -> Moments:
        second = tuple(map(spread, inside.second, like.second))
        mean = tuple(map(spread, inside.mean, like.variances))
        return replace(inside, second=second, tangent=spread(inside.tangent, like.tangent), mean=mean, axes=like.axes)

    return moved(one, change)


def sum_of(one: Signal, other: Signal) -> Signal:
    """The sum of two coordinates."""
    if isinstance(one, Concatenation) or isinstance(other, Concatenation):
        return _by_parts(one, other, sum_of)
    if isinstance(one, Unit) and isinstance(other, Unit) and one.latent is other.latent:
        if one.function is None and one.slope == other.slope:
            return replace(one, scale=one.scale + other.scale)
        return of_one(one, lambda z: one(z) + other(z))
    both = _together(one, other, add)
    if (
        both and both.axes and not _linear(one, other) and dependent(one.moments, other.moments)
    ):  # once, not in four parts
        return Mixed(None, several=both)
    parts = one.moments, other.moments, pairing(one, other), pairing(other, one)
    total = signals.weighted_sum([(1.0, part) for part in parts if part is not None])
    if isinstance(one, Unit) and isinstance(other, Unit) and one.gaussian and other.gaussian:
        terms = [(unit.scale * factor, source) for unit in (one, other) for factor, source in unit.terms]
        return Unit(total, terms=tuple(terms) if one.terms and other.terms else ())
    return Mixed(total, several=both)


def product_of(one: Signal, other: Signal) -> Signal:
    """The product of two coordinates, a gate."""
    if isinstance(one, Concatenation) or isinstance(other, Concatenation):
        return _by_parts(one, other, product_of)
    if isinstance(one, Unit) and isinstance(other, Unit) and one.latent is other.latent:
        return of_one(one, lambda z: one(z) * other(z))
    left, right, both = one.moments, other.moments, _together(one, other, mul)
    if dependent(left, right) and both is not None:
        return Mixed(None, several=both)
    if any(isinstance(part, Data) for part in (one, other)) or dependent(left, right):
        raise InvalidInputError(
            "it is a product with the inputs' own features, or of values that depend on the same random numbers in a "
            "way that has no rule"
        )
    second = tuple(signals.combined(mul, a, b) for a, b in zip(left.second, right.second, strict=True))
    mean = left.mean[0] * right.mean[0], left.mean[1] * right.mean[1]
    crossed = (left.tangent, right.second[0]), (left.second[0], right.tangent)
    tangent = sum(signals.combined(mul, *pair) for pair in crossed)
    return Mixed(replace(left, second=second, mean=mean, tangent=tangent, roots=left.roots | right.roots), several=both)


def _by_parts(one: Signal, other: Signal, combine: Callable[[Signal, Signal], Signal]) -> Signal:
    """Of a concatenation with anything of the same width."""
    sizes = [[width for width, _ in part.parts] for part in (one, other) if isinstance(part, Concatenation)]
    if any(size != sizes[0] for size in sizes):
        raise InvalidInputError("it joins two concatenations of different widths, which has no rule")
    axis = next(number for number, axis in enumerate(one.moments.axes) if any(kind == "c" for kind, _ in axis))
    parts, start = [], 0
    for number, width in enumerate(sizes[0]):
        piece = start, start + width, sum(sizes[0])
        two = (
            part.parts[number][1] if isinstance(part, Concatenation) else pieces(part, axis, piece)
            for part in (one, other)
        )
        parts.append((width, combine(*two)))
        start += width
    return Concatenation(tuple(parts))


def pieces(signal: Signal, axis: int, piece: tuple[int, int, int], kept: bool = True) -> Signal:
    """Some of the coordinates on an axis, alike and independent of the others; without the axis if it is not kept."""

    def change(moments: Moments) -> Moments:
        rest = ((("c", piece[1] - piece[0]),),) if kept else ()
        axes = (*moments.axes[:axis], *rest, *moments.axes[axis + 1 :])
        return replace(moments, axes=axes, roots=frozenset((*root, piece) for root in moments.roots))  # type: ignore[misc]

    return moved(signal, change, carries=False)


def moved(signal: Signal, change: Callable[[Moments], Moments], linear: bool = False, carries: bool = True) -> Signal:
    """The signal with its positions or roots changed; `linear` where the change adds up positions.

    `carries` where the change does to values what it does to means: not where inputs differ or coordinates are picked.
    """
    if isinstance(signal, Concatenation):
        return Concatenation(tuple((width, moved(part, change, linear, carries)) for width, part in signal.parts))

    def behind(of: Several | None) -> Any:
        wide = of and carries and of.across()
        return wide.then(change) if wide else None

    def variable(unit: Unit) -> Unit:
        return Unit(change(unit.latent), source=behind(several(unit)))

    inner = several(signal)
    if isinstance(signal, Unit) and not linear:
        moved_ = variable(inner.latents[0])  # type: ignore[union-attr]
        return replace(signal, latent=moved_.latent, terms=(), source=moved_.source)
    if isinstance(signal, Unit) and signal.gaussian:
        return Unit(change(signal.moments), source=behind(inner))
    pairs = combinations(inner.latents, 2) if inner else ()
    tied = any(dependent(one.latent, other.latent) for one, other in pairs)
    plain = isinstance(signal, Mixed) and type(inner) is Several  # behind batch norm the variables are not all
    known = signal.known if plain else signal.moments  # type: ignore[union-attr]
    if linear or inner is None or inner.axes or inner.vectors or inner.numbers or tied:
        later = inner and inner.axes and carries and getattr(signal, "known", None) is None
        return Mixed(None if later else change(signal.moments), several=behind(inner))
    latents = tuple(map(variable, inner.latents))
    return Mixed(known and change(known), several=Several(latents, inner.function, rough=inner.rough))


def changed(signal: Signal, by: float | Pair, shift: float | Pair = 0.0) -> Signal:
    """The signal times a number, plus a number; both may be different for each input."""
    if isinstance(signal, Concatenation):
        return Concatenation(tuple((width, changed(part, by, shift)) for width, part in signal.parts))
    if isinstance(signal, Logits) and isinstance(by, float) and not signal.weights:
        return replace(signal, scale=signal.scale * by, mask=signal.mask * by + shift)
    if by == 1.0 and shift == 0.0 and isinstance(signal, Mixed):
        return signal
    if isinstance(signal, Unit) and isinstance(by, float) and isinstance(shift, float):
        moved = of_one(signal, lambda z: by * signal(z) + shift)
        return moved if shift else replace(signal, scale=signal.scale * by)
    pairs = [(entry, entry) if isinstance(entry, float) else entry for entry in (by, shift)]
    centred = not any(isinstance(part, Tensor) or part for part in pairs[1])
    moments = signal.moments.changed(*pairs)
    if several(signal) is None:
        return Mixed(moments)
    found = applied(signal, lambda u, scale, offset: scale * u + offset, None, *pairs)
    if isinstance(signal, Unit) and signal.gaussian and centred:
        return Unit(moments, source=found.several.across())
    return replace(found, known=moments)
