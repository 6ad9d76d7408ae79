"""Build the small-weight network of theorem 1 for a separated data set, and check that it fits."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from skiplens.base.axes import Float
from skiplens.base.errors import DidNotConverge, InvalidInputError
from skiplens.papers.li2016_shortcuts.separated_points import (
    SpherePath,
    require_separated,
    separation,
    sphere_path,
    unit_points,
)

_FIT = 1e-9  # the construction is exact; rounding leaves less than this unless it is magnified

UnitKind = Literal["saturated", "printed"]


class BiasedUnits(NamedTuple):
    """Units h + W_2 relu(W_1 h + b) with all their entries."""

    first: Float[Tensor, "units width width"]
    bias: Float[Tensor, "units width"]
    second: Float[Tensor, "units width width"]


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

    @property
    def width(self) -> int:
        """Number of features."""
        return self.sources.shape[1]

    def norms(self) -> Float[Tensor, " units"]:
        """The Frobenius norm of each W_1, which is also that of W_2."""
        scale = 2.0 if self.kind == "saturated" else 1.0
        return scale * (self.moves.norm(dim=1) / self.margin).sqrt()

    @property
    def largest_norm(self) -> float:
        """The largest Frobenius norm of any weight matrix."""
        return self.norms().max().item() if self.units else 0.0

    @property
    def log_lipschitz_bound(self) -> float:
        """Log of Π (1 + ‖W_1‖ ‖W_2‖): distances grow at most by its exponential."""
        return torch.log1p(self.norms().square()).sum().item()

    @property
    def is_injective(self) -> bool:
        """Whether every unit has ‖W_1‖ ‖W_2‖ < 1, so that it cannot merge two points."""
        return self.largest_norm < 1

    def matrices(self, first: int = 0, last: int | None = None) -> BiasedUnits:
        """The weights and biases of the units from `first` up to, not including, `last`."""
        sources, moves = self.sources[first:last], self.moves[first:last]
        count, width = sources.shape
        W_1, b, W_2 = (sources.new_zeros(count, *shape) for shape in ((width, width), (width,), (width, width)))
        hidden = self._hidden(moves)
        for place, (gain, threshold, weight) in enumerate(hidden):
            W_1[:, place] = gain[:, None] * sources
            b[:, place] = -gain * threshold
            W_2[:, :, place] = weight[:, None] * moves
        if self.kind == "printed":
            b[:] = b[:, :1]  # lemma 1 prints a scalar, added to every hidden neuron; the others have no way out
        return BiasedUnits(W_1, b, W_2)

    def __call__(self, inputs: Float[Tensor, "samples width"]) -> Float[Tensor, "samples width"]:
        """The outputs of the network."""
        if inputs.ndim != 2 or inputs.shape[1] != self.width:
            raise InvalidInputError(f"The network takes (samples, {self.width}); got {tuple(inputs.shape)}.")
        hidden = self._hidden(self.moves)
        gains, thresholds, weights = (torch.stack(part, dim=1) for part in zip(*hidden, strict=True))
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
    separation: float
    """rho."""
    path_lengths: Float[Tensor, " samples"]
    fit_error: float
    """The largest distance of an output from its target."""

    @property
    def norm_constant(self) -> float:
        """The limit of largest norm times √units as the steps shrink: the norms fall like 1/√depth."""
        factor = 2.0 if self.network.kind == "saturated" else 1.0
        return factor * math.sqrt(8 * self.path_lengths.sum().item()) / self.separation


def small_weight_network(
    inputs: Float[Tensor, "samples width"],
    targets: Float[Tensor, "targets target_width"],
    step: float | None = None,
    units: int | None = None,
    kind: UnitKind = "saturated",
    verify: bool = True,
) -> Interpolation:
    """The explicit network of theorem 1: every input walks to its target in small steps, one unit per step.

    All points must be of norm 1, at least 3-dimensional, and distinct; samples that share a label need
    `surrogate_targets`. Computed in float64. The weights' norms fall like 1/√units.

    Args:
        inputs: Unit vectors in rows.
        targets: Unit vectors in rows.
        step: The longest step, or
        units: the number of units, which are shared so that the longest step is as short as possible.
        kind: saturated (stable) or printed (as in lemma 1: half the norms, but rounding grows exponentially).
        verify: Whether a network that does not fit is an error; otherwise see `fit_error`.
    """
    start, end = unit_points(inputs, "inputs"), unit_points(targets, "targets")
    if start.shape != end.shape:
        raise InvalidInputError(
            f"Inputs and targets must have the same shape; got {tuple(start.shape)} and {tuple(end.shape)}."
        )
    if kind not in ("saturated", "printed"):
        raise InvalidInputError(f"kind must be saturated or printed; got {kind!r}.")
    rho = require_separated(start, end) if len(start) > 1 else 2.0
    paths = list(_paths(start, end, rho))
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


def _paths(start: Tensor, end: Tensor, rho: float) -> Iterator[SpherePath]:
    """One path per sample around where the others are at that time: before it at their targets, after it at home."""
    cap_angle = 2 * math.asin(rho / 4)
    for sample in range(len(start)):
        others = torch.cat([end[:sample], start[sample + 1 :]])
        yield sphere_path(start[sample], end[sample], others, cap_angle)


def _counts(lengths: Tensor, step: float | None, units: int | None) -> list[int]:
    """The number of steps on each path."""
    if (step is None) == (units is None):
        raise InvalidInputError(f"Give either the longest step or the number of units; got step={step}, units={units}.")
    if step is not None:
        if not (math.isfinite(step) and step > 0):
            raise InvalidInputError(f"The step must be a positive length; got {step!r}.")
        return torch.ceil(lengths / step).long().tolist()
    assert units is not None
    return _shared(lengths, units)


def _shared(lengths: Tensor, units: int) -> list[int]:
    """So many units in all, shared so that the longest step is as short as it can be."""
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


def printed_amplification(separation: float, length: float) -> float:
    """How much the printed units magnify an error along the moving point: about (8/rho²) sinh(κ·length)/κ.

    κ = √(8/rho² − 1): exponential in length over separation, so that float64 fails near rho = 0.1.
    """
    kappa = math.sqrt(8 / separation**2 - 1)
    return 8 / separation**2 / kappa * math.sinh(kappa * length)


_GOLDEN_ANGLE = math.pi * (3 - math.sqrt(5))

_ATTEMPTS = 32


def surrogate_targets(
    inputs: Float[Tensor, "samples width"],
    targets: Float[Tensor, "samples width"],
    distance: float,
    generator: torch.Generator,
) -> Float[Tensor, "samples width"]:
    """Unit vectors within `distance` of the targets, pairwise distinct and off the inputs.

    A network that reaches them is within `distance`²/2 of zero loss. Each label's samples are laid out like the seeds
    of a sunflower around it, in a random plane; of several layouts the one with the largest separation is taken.

    Args:
        inputs: Unit vectors in rows.
        targets: Unit vectors in rows, some of them equal.
        distance: How far from its label a surrogate may be, below 1.
        generator: For the planes.
    """
    start, labels = unit_points(inputs, "inputs"), unit_points(targets, "targets")
    if not 0 < distance < 1:
        raise InvalidInputError(f"The distance of surrogates must lie between 0 and 1; got {distance!r}.")
    layouts = [_layout(labels, distance, generator) for _ in range(_ATTEMPTS)]
    return max(layouts, key=lambda layout: separation(start, layout).distance)


def _layout(labels: Tensor, distance: float, generator: torch.Generator) -> Tensor:
    """One sunflower per label."""
    classes, members = labels.unique(dim=0, return_inverse=True)
    surrogates = torch.empty_like(labels)
    for number, label in enumerate(classes):
        mine = members == number
        seeds = torch.arange(int(mine.sum()), dtype=labels.dtype, device=labels.device)
        turn = seeds * _GOLDEN_ANGLE
        lean = 2 * math.asin(distance / 2) * ((seeds + 0.5) / len(seeds)).sqrt()
        plane = _tangent_plane(label, generator)
        sideways = turn.cos()[:, None] * plane[0] + turn.sin()[:, None] * plane[1]
        surrogates[mine] = lean.cos()[:, None] * label + lean.sin()[:, None] * sideways
    return surrogates


def _tangent_plane(point: Tensor, generator: torch.Generator) -> Tensor:
    """Two random orthonormal directions orthogonal to the point, in rows."""
    draws = torch.randn(2, len(point), dtype=point.dtype, device=generator.device, generator=generator)
    basis, _ = torch.linalg.qr(torch.cat([point[None], draws.to(point.device)]).T)
    return basis.T[1:]
