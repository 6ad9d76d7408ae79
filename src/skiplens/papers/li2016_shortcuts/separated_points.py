"""How far the points that theorem 1 moves stay from each other, and what is asked of them."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from skiplens.base.axes import Float
from skiplens.base.errors import InvalidInputError

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


_OPPOSITE = 1e-12  # sine of an angle that counts as straight on: its direction would be rounding


@dataclass(frozen=True, eq=False)
class SpherePath:
    """Circular arcs one after the other: centre + cos(t) · start + sin(t) · side, for t from 0 to the arc's angle."""

    centres: Float[Tensor, "arcs width"]
    starts: Float[Tensor, "arcs width"]
    sides: Float[Tensor, "arcs width"]
    angles: Float[Tensor, " arcs"]
    end: Float[Tensor, " width"]

    @property
    def lengths(self) -> Float[Tensor, " arcs"]:
        """The length of each arc."""
        return self.starts.norm(dim=1) * self.angles

    @property
    def length(self) -> float:
        """The length of the path."""
        return self.lengths.sum().item()

    def walk(self, steps: int) -> Float[Tensor, "points width"]:
        """The start, then the points after each of `steps` steps of equal length; the last is the end, exactly."""
        lengths = self.lengths
        passed = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
        way = torch.linspace(0, 1, steps + 1, dtype=lengths.dtype, device=lengths.device) * passed[-1]
        arc = torch.searchsorted(passed, way, right=True).sub(1).clamp(0, len(lengths) - 1)
        turn = ((way - passed[arc]) / self.starts[arc].norm(dim=1))[:, None]
        points = self.centres[arc] + turn.cos() * self.starts[arc] + turn.sin() * self.sides[arc]
        points = points / points.norm(dim=1, keepdim=True)
        points[-1] = self.end
        return points


def sphere_path(
    start: Float[Tensor, " width"],
    end: Float[Tensor, " width"],
    obstacles: Float[Tensor, "others width"],
    cap_angle: float,
) -> SpherePath:
    """The shortest great arc from `start` to `end`, with a detour along the edge of every cap it would cross.

    Args:
        start: A unit vector outside all caps.
        end: A unit vector outside all caps.
        obstacles: The centres of the caps; the caps must not overlap.
        cap_angle: The half-angle of each cap.
    """
    side, angle = _towards(start, end)
    enter, leave, centres = _blocked(start, side, angle, obstacles, cap_angle)
    edges = torch.cat([enter.new_zeros(1), torch.stack([enter, leave], dim=1).flatten(), enter.new_full((1,), angle)])
    arcs = []
    for place, (begin, stop) in enumerate(zip(edges[::2], edges[1::2], strict=True)):
        here, along = begin.cos() * start + begin.sin() * side, begin.cos() * side - begin.sin() * start
        arcs.append((torch.zeros_like(start), here, along, stop - begin))
        if place < len(centres):
            after = leave[place].cos() * start + leave[place].sin() * side
            before = enter[place].cos() * start + enter[place].sin() * side
            arcs.append(_detour(before, after, centres[place], cap_angle))
    centre, starts, sides, angles = (torch.stack(column) for column in zip(*arcs, strict=True))
    return SpherePath(centre, starts, sides, angles, end)


def _blocked(
    start: Tensor, side: Tensor, angle: float, obstacles: Tensor, cap_angle: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Where the great arc enters and leaves each cap on its way, in order, with the caps' centres."""
    along, across = obstacles @ start, obstacles @ side
    height = torch.hypot(along, across)
    middle = torch.atan2(across, along) % (2 * math.pi)
    met = (height > math.cos(cap_angle)) & (middle < angle)
    half = torch.acos((math.cos(cap_angle) / height[met]).clamp(max=1.0))
    order = middle[met].argsort()
    middle, half = middle[met][order], half[order]
    return middle - half, middle + half, obstacles[met][order]


def _detour(before: Tensor, after: Tensor, centre: Tensor, cap_angle: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The shorter arc from `before` to `after` along the edge of the cap."""
    axis = centre * math.cos(cap_angle)
    start, stop = before - axis, after - axis
    radius = start.norm()
    side = stop - (stop @ start) / radius**2 * start
    angle = torch.atan2(radius * side.norm(), stop @ start)
    if side.norm() < _OPPOSITE * radius:  # the great arc goes through the centre: both ways round are equally long
        side = _orthogonal_to(torch.stack([centre, start / radius]))
    return axis, start, side / side.norm() * radius, angle


def _towards(start: Tensor, end: Tensor) -> tuple[Tensor, float]:
    """The unit tangent at `start` that points towards `end`, any one if they are equal or opposite; and the angle."""
    tangent = end - (end @ start) * start
    angle = math.atan2(tangent.norm().item(), (end @ start).item())
    if tangent.norm() < _OPPOSITE:
        return _orthogonal_to(start[None]), 0.0 if torch.equal(start, end) else angle
    return tangent / tangent.norm(), angle


def _orthogonal_to(directions: Tensor) -> Tensor:
    """A unit vector orthogonal to a few orthonormal ones: the axis that they use least, made orthogonal twice."""
    vector = torch.zeros_like(directions[0])
    vector[directions.square().sum(0).argmin()] = 1.0
    for _ in range(2):
        vector = vector - directions.T @ (directions @ vector)
    return vector / vector.norm()
