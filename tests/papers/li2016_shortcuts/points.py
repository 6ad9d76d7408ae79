"""The two test cases of the theory note."""

import math

import torch
from torch import Tensor


def fibonacci() -> tuple[Tensor, Tensor]:
    """FIB: twelve points of a spherical spiral; six inputs walk to the six others."""
    i = torch.arange(12, dtype=torch.float64)
    z, angle = 1 - (2 * i + 1) / 12, i * math.pi * (3 - math.sqrt(5))
    radius = (1 - z**2).sqrt()
    points = torch.stack([radius * angle.cos(), radius * angle.sin(), z], dim=1)
    return points[:6], points.flip(0)[:6]


def centre_hit() -> tuple[Tensor, Tensor]:
    """HIT: the first way leads straight through the second point."""
    e = torch.eye(3, dtype=torch.float64)
    return torch.stack([e[0], (e[0] + e[1]) / math.sqrt(2)]), e[1:]


def random_points(count: int, width: int, generator: torch.Generator) -> Tensor:
    points = torch.randn(count, width, generator=generator)
    return points / points.norm(dim=1, keepdim=True)
