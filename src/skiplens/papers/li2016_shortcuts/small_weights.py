"""Theorem 1: the explicit network with small weights that takes separated points to their targets.

Every input walks on the unit sphere to its target, around where the others are (lemma 2), in small steps; each step is
one residual unit that moves its point and leaves all others where they are (lemma 1). The weights' norms fall like
1/√units.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from skiplens.base import DidNotConverge, Float, InvalidInputError, refuse_if

_FIT = 1e-9  # the construction is exact; rounding leaves less than this unless it is magnified
_SMALLEST = 1e-6  # distance of points below which the margin rho²/8 of a unit comes near to float64's rounding
_ROWS_AT_ONCE = 2**22  # entries of a block of distances: 32 MiB
_OPPOSITE = 1e-12  # sine of an angle that counts as straight on: its direction would be rounding

UnitKind = Literal["saturated", "printed"]
Point = Float[Tensor, " width"]
Points = Float[Tensor, "samples width"]


@dataclass(frozen=True, eq=False)
class SmallWeightNetwork:
    """Units that each move one point and leave all others where they are (lemma 1).

    A unit is stored by where its point is (`sources`) and by how far it goes (`moves`). With the margin γ = rho²/8 and
    a step of length δ, the printed unit has one active hidden neuron and ‖W_1‖ = ‖W_2‖ = √(δ/γ). It magnifies rounding
    exponentially; the saturated unit has two, whose difference is flat at the point, and twice those norms.
    """

    sources: Float[Tensor, "units width"]
    moves: Float[Tensor, "units width"]
    margin: float
    kind: UnitKind

    @property
    def units(self) -> int:
        """Number of residual units (R)."""
        return len(self.sources)

    def norms(self) -> Float[Tensor, " units"]:
        """The Frobenius norm of each W_1, which is also that of W_2."""
        scale = 2.0 if self.kind == "saturated" else 1.0
        return scale * (self.moves.norm(dim=1) / self.margin).sqrt()

    def matrices(
        self, first: int = 0, last: int | None = None
    ) -> tuple[Float[Tensor, "units width width"], Float[Tensor, "units width"], Float[Tensor, "units width width"]]:
        """W_1, b and W_2 of the units h + W_2 relu(W_1 h + b) from `first` up to, not including, `last`."""
        sources, moves = self.sources[first:last], self.moves[first:last]
        count, width = sources.shape
        W_1, b, W_2 = (sources.new_zeros(count, *shape) for shape in ((width, width), (width,), (width, width)))
        for place, (gain, threshold, weight) in enumerate(self._hidden(moves)):
            W_1[:, place] = gain[:, None] * sources
            b[:, place] = -gain * threshold
            W_2[:, :, place] = weight[:, None] * moves
        if self.kind == "printed":
            b[:] = b[:, :1]  # lemma 1 prints a scalar, added to every hidden neuron; the others have no way out
        return W_1, b, W_2

    def __call__(self, inputs: Points) -> Points:
        """The outputs of the network."""
        width = self.sources.shape[1]
        if inputs.ndim != 2 or inputs.shape[1] != width:
            raise InvalidInputError(f"The network takes (samples, {width}); got {tuple(inputs.shape)}.")
        hidden = zip(*self._hidden(self.moves), strict=True)
        gains, thresholds, weights = (torch.stack(part, dim=1) for part in hidden)
        h = inputs.to(self.sources.dtype)
        for a, move, c, theta, w in zip(self.sources, self.moves, gains, thresholds, weights, strict=True):
            active = torch.relu(c * ((h @ a)[:, None] - theta))
            h = h + (active @ w)[:, None] * move
        return h

    def _hidden(self, moves: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
        """For each active hidden neuron: its gain c, its threshold θ and its output weight; it fires at a · h > θ."""
        gamma, delta = self.margin, moves.norm(dim=1)
        if self.kind == "printed":
            c = (delta / gamma).sqrt()
            return [(c, torch.full_like(c, 1 - gamma), 1 / (delta * gamma).sqrt())]
        c = (2 * delta / gamma).sqrt()
        up = 2 / (c * gamma)
        return [(c, torch.full_like(c, 1 - gamma), up), (c, torch.full_like(c, 1 - gamma / 2), -up)]


@dataclass(frozen=True, eq=False)
class Interpolation:
    """The network that takes every input to its target, and what its construction met."""

    network: SmallWeightNetwork
    separation: float  # rho
    path_lengths: Float[Tensor, " samples"]
    fit_error: float  # the largest distance of an output from its target

    @property
    def norm_constant(self) -> float:
        """The limit of largest norm times √units as the steps shrink: the norms fall like 1/√depth."""
        factor = 2.0 if self.network.kind == "saturated" else 1.0
        return factor * math.sqrt(8 * self.path_lengths.sum().item()) / self.separation


def small_weight_network(
    inputs: Points,
    targets: Float[Tensor, "targets target_width"],
    step: float | None = None,
    units: int | None = None,
    kind: UnitKind = "saturated",
    verify: bool = True,
) -> Interpolation:
    """The explicit network of theorem 1: every input walks to its target in small steps, one unit per step.

    All points must be of norm 1, at least 3-dimensional, and distinct; samples that share a label need
    `surrogate_targets`. Computed in float64. Either the longest `step` is given or the number of `units`, which are
    shared so that the longest step is as short as possible. The kind printed, that of lemma 1, has half the norms of
    the saturated one, but rounding grows exponentially. A network that does not fit is an error if it is to `verify`.
    """
    start, end = unit_points(inputs, "inputs"), unit_points(targets, "targets")
    if start.shape != end.shape:
        shapes = f"{tuple(start.shape)} and {tuple(end.shape)}"
        raise InvalidInputError(f"Inputs and targets must have the same shape; got {shapes}.")
    refuse_if(kind not in ("saturated", "printed"), f"kind must be saturated or printed; got {kind!r}.")
    rho = require_separated(start, end) if len(start) > 1 else 2.0
    paths = []
    for sample in range(len(start)):  # those before it are at their targets by then, those after it at home
        others = torch.cat([end[:sample], start[sample + 1 :]])
        paths.append(sphere_path(start[sample], end[sample], others, cap_angle=2 * math.asin(rho / 4)))
    lengths = torch.tensor([path.length for path in paths], dtype=torch.float64)
    counts = _counts(lengths, step, units)
    walks = [path.walk(count) for path, count in zip(paths, counts, strict=True) if count]
    sources = torch.cat([start[:0], *(walk[:-1] for walk in walks)])
    moves = torch.cat([start[:0], *(walk.diff(dim=0) for walk in walks)])
    network = SmallWeightNetwork(sources, moves, margin=rho**2 / 8, kind=kind)
    error = (network(start) - end).norm(dim=1).max().item()
    if verify and not error <= _FIT:
        raise DidNotConverge(
            f"The network misses a target by {error:.3g}: rounding grew along its {network.units} {kind} units. "
            "Use kind='saturated', fewer units, or verify=False to look at it."
        )
    return Interpolation(network, rho, lengths, error)


def _counts(lengths: Tensor, step: float | None, units: int | None) -> list[int]:
    """The number of steps on each path."""
    if (step is None) == (units is None):
        raise InvalidInputError(f"Give either the longest step or the number of units; got step={step}, units={units}.")
    if step is not None:
        refuse_if(not (math.isfinite(step) and step > 0), f"The step must be a positive length; got {step!r}.")
        return torch.ceil(lengths / step).long().tolist()
    assert units is not None
    moving = int((lengths > 0).sum())
    if isinstance(units, bool) or int(units) != units or units < moving:
        raise InvalidInputError(f"{moving} points have to move, so at least {moving} units are needed; got {units!r}.")
    if not moving:
        return [0] * len(lengths)
    counts = torch.floor(units * lengths / lengths.sum()).clamp(min=(lengths > 0).double())
    while counts.sum() > units:  # paths much shorter than the rest were given a whole unit
        counts[torch.where(counts > 1, lengths / (counts - 1), torch.inf).argmin()] -= 1
    while counts.sum() < units:
        counts[(lengths / counts.clamp(min=1)).argmax()] += 1
    return counts.long().tolist()


def norm_bound(units: int, samples: int, separation: float) -> float:
    """√((8π m / (R rho)) ((m − 1)/2 + 1/rho)), which the printed units' norms stay below for R ≫ m (eq. 6, corrected).

    The bracket belongs under the root and R is the number of units; the paper prints it outside.
    """
    rho = separation
    return math.sqrt(8 * math.pi * samples / (units * rho) * ((samples - 1) / 2 + 1 / rho))


def length_bound(samples: int, separation: float) -> float:
    """The longest way that lemma 2 allows one point: π (1 + rho (m − 1)/2)."""
    return math.pi * (1 + separation * (samples - 1) / 2)


def units_bound(samples: int, separation: float, step: float) -> int:
    """The number of units that is always enough for steps of this length (eq. 19)."""
    return samples * math.ceil(length_bound(samples, separation) / step)


def surrogate_targets(inputs: Points, targets: Points, distance: float, generator: torch.Generator) -> Points:
    """Unit vectors within `distance` of the targets, pairwise distinct and off the inputs.

    A network that reaches them is within `distance`²/2 of zero loss. Each label's samples are laid out like the seeds
    of a sunflower around it, in a random plane; of several layouts the one with the largest separation is taken.
    """
    start, labels = unit_points(inputs, "inputs"), unit_points(targets, "targets")
    refuse_if(not 0 < distance < 1, f"The distance of surrogates must lie between 0 and 1; got {distance!r}.")
    layouts = [_layout(labels, distance, generator) for _ in range(32)]
    return max(layouts, key=lambda layout: separation(start, layout).distance)


def _layout(labels: Tensor, distance: float, generator: torch.Generator) -> Tensor:
    """One sunflower per label, in the plane of two random directions orthogonal to the label."""
    classes, members = labels.unique(dim=0, return_inverse=True)
    surrogates = torch.empty_like(labels)
    for number, label in enumerate(classes):
        mine = members == number
        seeds = torch.arange(int(mine.sum()), dtype=labels.dtype, device=labels.device)
        turn = seeds * (math.pi * (3 - math.sqrt(5)))  # the golden angle
        lean = 2 * math.asin(distance / 2) * ((seeds + 0.5) / len(seeds)).sqrt()
        draws = torch.randn(2, len(label), dtype=labels.dtype, device=generator.device, generator=generator)
        basis, _ = torch.linalg.qr(torch.cat([label[None], draws.to(labels.device)]).T)
        sideways = turn.cos()[:, None] * basis[:, 1] + turn.sin()[:, None] * basis[:, 2]
        surrogates[mine] = lean.cos()[:, None] * label + lean.sin()[:, None] * sideways
    return surrogates


class Separation(NamedTuple):
    """The smallest distance rho between points of different samples, and who they are."""

    distance: float
    first: str
    second: str


def separation(inputs: Points, targets: Points) -> Separation:
    """The smallest distance rho between any two inputs, two targets, or an input and another sample's target.

    A sample's own input and target may be near: it only has to walk from one to the other.
    """
    samples, points = len(inputs), torch.cat([inputs, targets])
    sample = torch.arange(len(points), device=points.device) % samples
    best, pair, at_once = torch.inf, (0, 0), max(1, _ROWS_AT_ONCE // len(points))
    for first in range(0, len(points), at_once):
        rows = slice(first, first + at_once)
        distances = torch.cdist(points[rows], points, compute_mode="donot_use_mm_for_euclid_dist")
        distances.masked_fill_(sample[rows, None] == sample, torch.inf)
        if distances.min().item() < best:
            row, column = divmod(int(distances.argmin()), len(points))
            best, pair = distances.min().item(), (first + row, column)
    first_name, second_name = (f"input {at}" if at < samples else f"target {at - samples}" for at in pair)
    return Separation(best, first_name, second_name)


def unit_points(points: Points, name: str) -> Points:
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


def require_separated(inputs: Points, targets: Points) -> float:
    """The separation rho, refused if two points of different samples coincide."""
    found = separation(inputs, targets)
    if found.distance >= _SMALLEST:
        return found.distance
    advice = "Remove repeated inputs, or move targets off the inputs with surrogate_targets."
    if found.first.startswith("target") and found.second.startswith("target"):
        advice = (
            "Samples that share a label cannot be fitted exactly with small weights, because small units are "
            "injective: use surrogate_targets, which are near the labels and distinct."
        )
    raise InvalidInputError(
        f"{found.first} and {found.second} are {found.distance:.3g} apart; "
        f"theorem 1 needs points at least {_SMALLEST:g} apart. {advice}"
    )


@dataclass(frozen=True, eq=False)
class SpherePath:
    """Circular arcs one after the other: centre + cos(t) · start + sin(t) · side, for t from 0 to the arc's angle."""

    centres: Float[Tensor, "arcs width"]
    starts: Float[Tensor, "arcs width"]
    sides: Float[Tensor, "arcs width"]
    angles: Float[Tensor, " arcs"]
    end: Point

    @property
    def length(self) -> float:
        """The length of the path."""
        return (self.starts.norm(dim=1) * self.angles).sum().item()

    def walk(self, steps: int) -> Float[Tensor, "points width"]:
        """The start, then the points after each of `steps` steps of equal length; the last is the end, exactly."""
        radii = self.starts.norm(dim=1)
        passed = torch.nn.functional.pad((radii * self.angles).cumsum(0), (1, 0))
        way = torch.linspace(0, 1, steps + 1, dtype=radii.dtype, device=radii.device) * passed[-1]
        arc = torch.searchsorted(passed, way, right=True).sub(1).clamp(0, len(radii) - 1)
        turn = ((way - passed[arc]) / radii[arc])[:, None]
        points = self.centres[arc] + turn.cos() * self.starts[arc] + turn.sin() * self.sides[arc]
        points = points / points.norm(dim=1, keepdim=True)
        points[-1] = self.end
        return points


def sphere_path(start: Point, end: Point, obstacles: Float[Tensor, "others width"], cap_angle: float) -> SpherePath:
    """The shortest great arc from `start` to `end`, with a detour along the edge of every cap it would cross.

    The caps around the obstacles have the half-angle `cap_angle`; they must not overlap nor hold start or end.
    """
    side, angle = _towards(start, end)
    enter, leave, centres = _blocked(start, side, angle, obstacles, cap_angle)
    edges = torch.cat([enter.new_zeros(1), torch.stack([enter, leave], dim=1).flatten(), enter.new_full((1,), angle)])
    arcs = []
    on_arc = edges.cos()[:, None] * start + edges.sin()[:, None] * side
    for place, (begin, stop) in enumerate(zip(edges[::2], edges[1::2], strict=True)):
        along = begin.cos() * side - begin.sin() * start
        arcs.append((torch.zeros_like(start), on_arc[2 * place], along, stop - begin))
        if place < len(centres):
            arcs.append(_detour(on_arc[2 * place + 1], on_arc[2 * place + 2], centres[place], cap_angle))
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
