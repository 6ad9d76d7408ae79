"""What a search needs of an energy on the sphere ‖w‖² = Λ, and the geometry of that sphere."""

import math
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from skiplens.core.axes import Float
from skiplens.core.errors import InvalidInputError


@runtime_checkable
class Landscape(Protocol):
    """An energy of points in R^Λ."""

    @property
    def dimension(self) -> int:
        """Λ, the number of spins."""

    def energy_and_gradient(
        self, points: Float[Tensor, "points spins"]
    ) -> tuple[Float[Tensor, " points"], Float[Tensor, "points spins"]]:
        """H and its Euclidean gradient at each point."""


def random_points(
    count: int, dimension: int, generator: torch.Generator, dtype: torch.dtype = torch.float64
) -> Float[Tensor, "points spins"]:
    """Points drawn uniformly from the sphere ‖w‖² = Λ, on the generator's device."""
    points = torch.randn(count, dimension, generator=generator, device=generator.device, dtype=dtype)
    return onto_sphere(points)


def onto_sphere(points: Float[Tensor, "points spins"]) -> Float[Tensor, "points spins"]:
    """The points scaled to ‖w‖² = Λ."""
    return points * (math.sqrt(points.shape[1]) / points.norm(dim=1, keepdim=True))


def tangent_part(
    vectors: Float[Tensor, "points spins"], points: Float[Tensor, "points spins"]
) -> Float[Tensor, "points spins"]:
    """What is left of the vectors without their part along the points: the Riemannian gradient of a gradient."""
    along = (vectors * points).sum(1, keepdim=True) / points.square().sum(1, keepdim=True)
    return vectors - along * points


def check_points(points: Tensor, dimension: int) -> Tensor:
    """Points of the right shape, or an error."""
    if points.ndim != 2 or points.shape[1] != dimension or not points.is_floating_point():
        raise InvalidInputError(
            f"Points must be a floating-point tensor of shape (points, {dimension}); got {points.dtype} of shape "
            f"{tuple(points.shape)}. For a single point add an axis: point[None]."
        )
    return points
