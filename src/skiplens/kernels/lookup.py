"""The float32 look-up: straight lines between many nodes, a handful of memory passes per entry."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from skiplens.core.axes import Float

_WANTED = 3e-7  # of the largest value: less than the rounding of a float32 cosine moves it
_SEGMENTS = (2**12, 2**14, 2**16)  # 32, 128 and 512 KiB of nodes and slopes: they stay in a core's cache
_LEAST = 1e-14  # keeps opposite inputs from a division by zero; q is then 1 to rounding
_FOCUSES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003)


@dataclass(frozen=True, eq=False)
class LinearLookup:
    """k at equally spaced places q = t/(t + f) in [0, 1], where t = tan(θ/2) = √((1 − ρ)/(1 + ρ)).

    q is analytic in the angle at both ends and costs a square root and two divisions, with no inverse cosine.

    Attributes:
        values: k at the nodes, and once more the last one, in float32.
        slopes: The difference from each node to the next, 0 after the last one.
        focus: f; a smaller one puts more nodes near equal inputs.
        error: Largest error halfway between nodes, relative to the largest value.
    """

    values: Float[Tensor, " nodes"]
    slopes: Float[Tensor, " nodes"]
    focus: float
    error: float

    def to(self, device: torch.device) -> "LinearLookup":
        """The same table on `device`."""
        return LinearLookup(self.values.to(device), self.slopes.to(device), self.focus, self.error)

    def replace(self, cosine: Float[Tensor, "samples other_samples"]) -> Float[Tensor, "samples other_samples"]:
        """The kernel at each entry; the memory of `cosine` is used up."""
        other = (cosine + 1).clamp_min_(_LEAST)
        tangent = torch.sub(1, cosine, out=cosine).clamp_min_(0).div_(other).sqrt_()
        torch.add(tangent, self.focus, out=other)
        place = tangent.div_(other).mul_(len(self.values) - 1)
        node = place.to(torch.int32)
        place.frac_()  # subtracting the nodes, which are of another type, would take four times as long
        flat = node.view(-1)
        slope = self.slopes.index_select(0, flat).view_as(place)
        value = torch.index_select(self.values, 0, flat, out=other.view(-1)).view_as(place)
        return value.addcmul_(slope, place)


def linear_lookup(kernel: Callable[[Tensor], Tensor]) -> LinearLookup:
    """The smallest look-up that is good to float32 rounding, or the most accurate one, of a function of the angle."""
    best: LinearLookup | None = None
    for segments in _SEGMENTS:
        for focus in _FOCUSES:
            lookup = _with_focus(kernel, segments, focus)
            if best is None or lookup.error < best.error:
                best = lookup
        if best is not None and best.error <= _WANTED:
            break
    assert best is not None
    return best


def _with_focus(kernel: Callable[[Tensor], Tensor], segments: int, focus: float) -> LinearLookup:
    q = torch.linspace(0, 1, 2 * segments + 1, dtype=torch.float64)
    k = kernel(2 * torch.atan2(focus * q, 1 - q))
    nodes, halfway = k[::2], k[1::2]
    largest = float(k.abs().max()) or 1.0
    error = float((halfway - (nodes[1:] + nodes[:-1]) / 2).abs().max()) / largest
    slopes = torch.cat([nodes.diff(), nodes.new_zeros(1)])
    return LinearLookup(nodes.float(), slopes.float(), focus, error)
