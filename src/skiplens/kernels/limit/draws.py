"""Expectations of functions of several correlated Gaussian variables: means over quasi-random points.

They have no closed form: relu(relu(u) + v) needs an integral over four variables for two inputs. The points are
scrambled Sobol nets, the same for all pairs of inputs; how far nets scatter around their mean tells the error.
"""

import math
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from functools import cache

import torch
from torch import Tensor

from skiplens.base import Float, InvalidInputError, refuse_if
from skiplens.kernels.limit.gaussian import LARGEST_ERROR

POINTS, FEWER, NETS = 512, 128, 8  # of one net; for all pairs of positions; nets
MOST_DRAWN: ContextVar[float] = ContextVar("MOST_DRAWN", default=math.inf)  # numbers that may be drawn yet
_AT_ONCE = 2**21  # numbers that are held for some of the pairs together


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
