"""Build the small-weight network of theorem 1 for a separated data set, and check that it fits."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.core.errors import DidNotConverge, InvalidInputError
from skiplens.theory.small_weights.detours import SpherePath, sphere_path
from skiplens.theory.small_weights.network import SmallWeightNetwork, UnitKind
from skiplens.theory.small_weights.separated_points import require_separated, unit_points

_FIT = 1e-9  # the construction is exact; rounding leaves less than this unless it is magnified


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
