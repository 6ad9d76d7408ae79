"""Distinct targets near shared labels: what small weights can reach when samples share a class."""

import math

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.core.errors import InvalidInputError
from skiplens.theory.small_weights.separated_points import separation, unit_points

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
