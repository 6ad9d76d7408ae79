"""Expectations of functions of several correlated Gaussian variables: means over quasi-random points.

They have no closed form: relu(relu(u) + v) needs an integral over four variables for two inputs. The points are
scrambled Sobol nets, the same for all pairs of inputs; how far nets scatter around their mean tells the error.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from skiplens.base import Float, InvalidInputError, refuse_if
from skiplens.kernels.limit.gaussian import LARGEST_ERROR

POINTS, FEWER, NETS = 512, 128, 8  # of one net; for all pairs of positions; nets
MOST_DRAWN: ContextVar[float] = ContextVar("MOST_DRAWN", default=math.inf)  # numbers that may be drawn yet
_AT_ONCE = 2**21  # numbers that are held for some of the pairs together
# of the Gaussian variables, the entries of vectors and the numbers of an input
Recipe = Callable[[Sequence[Tensor], Sequence[Tensor], Sequence[Tensor]], Tensor]
Side = tuple[Any, list[Tensor]]  # what has `latents`, `function` and `vectors`, and its numbers, (pairs, 1)


class Drawn(NamedTuple):
    """Of f at one input and g at another, one entry per pair."""

    second: Float[Tensor, " pairs"]  # E f g
    mean: tuple[Tensor, Tensor]  # E f, E g
    slopes: Float[Tensor, "pairs left right"]  # E ∂f/∂u_i ∂g/∂v_j
    error: float  # the standard error of E f g and of slopes, relative to the roots of E f² E g² and of squared slopes


def drawn(covariance: Float[Tensor, "pairs variables variables"], one: Side, other: Side, points: int) -> Drawn:
    """Expectations over the variables of `one`, then of `other`, which have this covariance and mean 0."""
    roots, split = root_of(covariance), (len(one[0].latents), len(other[0].latents))
    each = over_nets(lambda some, net: _means(roots[some], net, one, other, some), roots, split, points)
    second, left, right, slopes, *sizes = (part.mean(dim=0) for part in each)
    return Drawn(second, (left, right), slopes, scatter(zip((each[0], each[3]), sizes, strict=True)))


def over_nets(
    means: Callable[[slice, tuple[Tensor, Tensor]], tuple[Tensor, ...]],
    roots: Float[Tensor, "pairs variables variables"],
    split: tuple[int, int],
    points: int,
    held: int = 1,
) -> list[Tensor]:
    """Means over the points of each net, (nets, pairs, ...), for some pairs at a time.

    `split` is how many of the variables belong to each end of a pair; for each of them a point holds `held` numbers.
    """
    placed = [(part.to(roots), place.to(roots)) for part, place in _nets(*split, points)]
    of_pair = len(placed[0][0]) * roots.shape[-1] * held
    wanted, step, found = len(roots) * NETS * of_pair, max(1, _AT_ONCE // of_pair), []
    MOST_DRAWN.set(MOST_DRAWN.get() - wanted)
    refuse_if(MOST_DRAWN.get() < 0, f"it would take too long: a mean over {wanted:,} numbers")
    for start in range(0, len(roots), step):
        parts = [means(slice(start, start + step), net) for net in placed]
        found.append([torch.stack(kind) for kind in zip(*parts, strict=True)])
    return [torch.cat(kind, dim=1) for kind in zip(*found, strict=True)]


def scatter(parts: Iterable[tuple[Tensor, Tensor]]) -> float:
    """The standard error of means over nets relative to sizes; what is too rough is refused."""
    sizes = [(part, size.max() + torch.finfo(size.dtype).tiny) for part, size in parts]
    error = max(float(part.std(dim=0).max() / size) for part, size in sizes) / NETS**0.5
    if not error <= LARGEST_ERROR:
        raise InvalidInputError(f"points do not tell its kernel: it would be wrong by about {100 * error:.0f} %")
    return error


def root_of(matrix: Tensor) -> Tensor:
    """The symmetric root of covariances."""
    values, vectors = torch.linalg.eigh(matrix)
    return vectors * values.clamp_min(0).sqrt()[..., None, :] @ vectors.mT


@cache
def _nets(left: int, right: int, count: int) -> list[tuple[Tensor, Tensor]]:
    """For each net its normal numbers and the place of an entry in vectors; inputs change places where they can."""
    found = []
    for seed in range(NETS):
        engine = torch.quasirandom.SobolEngine(left + right + 1, scramble=True, seed=seed)
        points = engine.draw(count, dtype=torch.float64)
        places = points[:, -1]
        normal = torch.special.ndtri(points[:, :-1].clamp(1e-12, 1 - 1e-12))
        if left == right:
            normal = torch.cat([normal, normal.roll(left, dims=1)])
            places = torch.cat([places, places])
        found.append((normal, places))
    return found


def _means(roots: Tensor, net: tuple[Tensor, Tensor], one: Side, other: Side, some: slice) -> tuple[Tensor, ...]:
    normal, places = net
    drawn = (normal @ roots).unbind(-1)  # each (pairs, points)
    f, of_f = values_of(one, drawn[: len(one[0].latents)], places, some)
    g, of_g = values_of(other, drawn[len(one[0].latents) :], places, some)
    slopes = torch.einsum("inp,jnp->nij", of_f, of_g) / len(places)
    a, b, c, d = (part.square().mean(dim=-1).view(-1, len(f)).amax(dim=0) for part in (f, g, of_f, of_g))
    return (f * g).mean(dim=1), f.mean(dim=1), g.mean(dim=1), slopes, (a * b).sqrt(), (c * d).sqrt()


def values_of(side: Side, variables: Sequence[Tensor], places: Tensor, some: slice) -> tuple[Tensor, Tensor]:
    """A function at all points, (pairs, points), and its slopes, (variables, pairs, points)."""
    of, numbers = side
    entries = [vector.to(places)[(places * len(vector)).long()] for vector in of.vectors]
    with torch.enable_grad():
        leaves = [part.detach().requires_grad_() for part in variables]
        values = of.function(leaves, entries, [part[some] for part in numbers])
        slopes = torch.autograd.grad(values.sum(), leaves, allow_unused=True, materialize_grads=True)
    return values.detach(), torch.stack(slopes)
