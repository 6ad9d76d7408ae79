"""The look-up: a short polynomial between many nodes, a handful of memory passes per entry."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from skiplens.core.axes import Float

_FOCUSES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003)


@dataclass(frozen=True)
class _Precision:
    """How a look-up is made for a dtype.

    Attributes:
        degree: Of the polynomials.
        segments: Numbers of them that are tried; up to 512 KiB of coefficients stay in a core's cache.
        wanted: Error at which the search stops, relative to the largest value.
        least: Keeps opposite inputs from a division by zero; q is then 1 to rounding.
    """

    degree: int
    segments: tuple[int, ...]
    wanted: float
    least: float


_PRECISIONS = {
    # less than the rounding of a float32 cosine moves the kernel
    torch.float32: _Precision(1, (2**12, 2**14, 2**16), 3e-7, 1e-14),
    torch.float64: _Precision(3, (2**10, 2**12, 2**14), 1e-13, 1e-30),
}


@dataclass(frozen=True, eq=False)
class Lookup:
    """k between equally spaced places q = t/(t + f) in [0, 1], where t = tan(θ/2) = √((1 − ρ)/(1 + ρ)).

    q is analytic in the angle at both ends and costs a square root and two divisions, with no inverse cosine.

    Attributes:
        coefficients: For each power of the place in a segment, that of each segment; a last one holds k at q = 1.
        focus: f; a smaller one puts more nodes near equal inputs.
        error: Largest error seen between the nodes, relative to the largest value.
    """

    coefficients: tuple[Float[Tensor, " nodes"], ...]
    focus: float
    error: float

    def to(self, device: torch.device) -> "Lookup":
        """The same table on `device`."""
        return Lookup(tuple(part.to(device) for part in self.coefficients), self.focus, self.error)

    def replace(self, cosine: Float[Tensor, "samples other_samples"]) -> Float[Tensor, "samples other_samples"]:
        """The kernel at each entry; the memory of `cosine` is used up."""
        other = (cosine + 1).clamp_min_(_PRECISIONS[cosine.dtype].least)
        tangent = torch.sub(1, cosine, out=cosine).clamp_min_(0).div_(other).sqrt_()
        torch.add(tangent, self.focus, out=other)
        place = tangent.div_(other).mul_(len(self.coefficients[0]) - 1)
        node = place.to(torch.int32).view(-1)
        place.frac_()  # subtracting the nodes, which are of another type, would take four times as long
        *lower, value = (part.index_select(0, node).view_as(place) for part in self.coefficients)
        for part in reversed(lower):
            value = part.addcmul_(value, place)
        return value


def lookup_of(kernel: Callable[[Tensor], Tensor], dtype: torch.dtype) -> Lookup:
    """The smallest look-up of a function of the angle that is good to rounding, or else the most accurate one."""
    precision = _PRECISIONS[dtype]
    best: Lookup | None = None
    for segments in precision.segments:
        for focus in _FOCUSES:
            lookup = _with_focus(kernel, segments, focus, dtype)
            if best is None or lookup.error < best.error:
                best = lookup
        if best is not None and best.error <= precision.wanted:
            break
    assert best is not None
    return best


def _with_focus(kernel: Callable[[Tensor], Tensor], segments: int, focus: float, dtype: torch.dtype) -> Lookup:
    """A look-up that takes the kernel's values at both ends of a segment and, if its degree asks, in between."""
    degree = _PRECISIONS[dtype].degree
    q = torch.linspace(0, 1, 2 * degree * segments + 1, dtype=torch.float64)
    k = kernel(2 * torch.atan2(focus * q, 1 - q))
    places = torch.arange(2 * degree + 1, dtype=torch.float64) / (2 * degree)
    powers = places.unsqueeze(1) ** torch.arange(degree + 1)
    coefficients = k[::2].unfold(0, degree + 1, degree) @ torch.linalg.inv(powers[::2]).T
    halfway = k[1::2].reshape(segments, degree)
    largest = float(k.abs().max()) or 1.0
    error = float((coefficients @ powers[1::2].T - halfway).abs().max()) / largest
    last = torch.cat([k[-1:], k.new_zeros(degree)]).unsqueeze(0)
    return Lookup(tuple(torch.cat([coefficients, last]).to(dtype).T.contiguous().unbind()), focus, error)
