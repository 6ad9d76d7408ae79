"""How far the points that theorem 1 moves stay from each other, and what is asked of them."""

from typing import NamedTuple

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.core.errors import InvalidInputError

SMALLEST = 1e-6  # below it the margin rho²/8 of a unit comes near to float64's rounding
_ROWS_AT_ONCE = 2**22  # entries of a block of distances: 32 MiB


class Separation(NamedTuple):
    """The smallest distance between points of different samples, and who they are."""

    distance: float
    """rho."""
    first: str
    second: str


def separation(inputs: Float[Tensor, "samples width"], targets: Float[Tensor, "samples width"]) -> Separation:
    """The smallest distance rho between any two inputs, two targets, or an input and another sample's target.

    A sample's own input and target may be near: it only has to walk from one to the other.
    """
    samples, points = len(inputs), torch.cat([inputs, targets])
    best, pair = torch.inf, (0, 0)
    for first in range(0, len(points), max(1, _ROWS_AT_ONCE // len(points))):
        rows = points[first : first + max(1, _ROWS_AT_ONCE // len(points))]
        distances = torch.cdist(rows, points, compute_mode="donot_use_mm_for_euclid_dist")
        place = torch.arange(len(rows), device=points.device) + first
        own = (place[:, None] % samples) == (torch.arange(len(points), device=points.device) % samples)
        smallest = distances.masked_fill(own, torch.inf)
        value = smallest.min().item()
        if value < best:
            row, column = divmod(int(smallest.argmin()), len(points))
            best, pair = value, (first + row, column)
    return Separation(best, *(_name(place, samples) for place in pair))


def unit_points(points: Float[Tensor, "samples width"], name: str) -> Float[Tensor, "samples width"]:
    """The points in float64 on the unit sphere, refused unless they are finite, on it, and in three dimensions."""
    if points.ndim != 2 or len(points) == 0 or not points.is_floating_point():
        raise InvalidInputError(
            f"The {name} must be a floating-point matrix (samples, width); got shape {tuple(points.shape)}."
        )
    if points.shape[1] < 3:
        raise InvalidInputError(
            f"The {name} have {points.shape[1]} dimensions; paths that avoid each other need at least 3. "
            "Append a constant feature to inputs and targets and normalise them."
        )
    norms = points.double().norm(dim=1, keepdim=True)
    worst = (norms - 1).abs().max().item()
    if not worst <= 1e3 * torch.finfo(points.dtype).eps:  # also refuses NaN
        raise InvalidInputError(
            f"The {name} must be finite and of norm 1; the worst norm differs from 1 by {worst:.3g}. "
            "Divide each row by its norm."
        )
    return points.double() / norms


def require_separated(inputs: Float[Tensor, "samples width"], targets: Float[Tensor, "samples width"]) -> float:
    """The separation rho, refused if two points of different samples coincide."""
    found = separation(inputs, targets)
    if found.distance >= SMALLEST:
        return found.distance
    both_targets = found.first.startswith("target") and found.second.startswith("target")
    advice = (
        "Samples that share a label cannot be fitted exactly with small weights, because small units are injective: "
        "use surrogate_targets, which are near the labels and distinct."
        if both_targets
        else "Remove repeated inputs, or move targets off the inputs with surrogate_targets."
    )
    raise InvalidInputError(
        f"{found.first} and {found.second} are {found.distance:.3g} apart; "
        f"theorem 1 needs points at least {SMALLEST:g} apart. {advice}"
    )


def _name(place: int, samples: int) -> str:
    return f"input {place}" if place < samples else f"target {place - samples}"
