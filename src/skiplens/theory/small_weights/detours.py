"""Lemma 2: a way on the unit sphere from one point to another around the caps of all other points."""

import math
from dataclasses import dataclass

import torch

from skiplens.core.axes import Float, Tensor

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
