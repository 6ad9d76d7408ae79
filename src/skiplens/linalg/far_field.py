"""Sums over many poles at many points: near poles one by one, far ones through a polynomial.

The points lie in a window between two poles. What poles at least a window's width away add to a sum is analytic there:
a polynomial of degree 20 through Chebyshev nodes meets it to 6^-20, which is the rounding of float64.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from skiplens.core.axes import Float, Tensor

_NODES = 21


@dataclass(frozen=True)
class Window:
    """An interval from one pole to a later one, in coordinates that count from its lower end.

    Attributes:
        rows: The poles that it starts with, one for each interval between neighbours.
        low: Its lower end, the first of these poles.
        width: Its length.
        near: The poles that lie less than one width away from it.
    """

    rows: slice
    low: float
    width: float
    near: slice

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

    def far(self, poles: Float[Tensor, " size"]) -> Iterator[tuple[slice, Float[Tensor, "nodes some"]]]:
        """The poles before and behind the near ones, and d_j − x_k for all nodes x_k."""
        for side in (slice(0, self.near.start), slice(self.near.stop, len(poles))):
            if side.start < side.stop:
                yield side, (poles[side] - self.low) - self.nodes(poles)[:, None]


def windows(fence: Float[Tensor, " fence"]) -> list[Window]:
    """Windows over all intervals between neighbours in `fence`, whose last entry is the end and no pole."""
    count = len(fence) - 1
    step = _rows(count, fence.device)
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


def _rows(count: int, device: torch.device) -> int:
    """Intervals of a window, so that far poles (nodes × all) cost about as much as near ones (5 × rows × 3 rows)."""
    balanced = math.isqrt(max(1, _NODES * count // 15)) + 1
    return max(64, balanced) if device.type == "cpu" else max(512, balanced)
