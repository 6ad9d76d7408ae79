"""Random probe vectors with identity covariance, drawn from a generator that the caller hands over."""

import math
from collections.abc import Callable

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.core.errors import InvalidInputError
from skiplens.core.nearest import did_you_mean
from skiplens.linalg.operator import SymmetricOperator


def rademacher(size: int, count: int, generator: torch.Generator) -> Float[Tensor, "size probes"]:
    """Columns of independent signs: the least variance for Hutchinson's estimate among independent entries."""
    bits = torch.randint(0, 2, (size, count), generator=generator, device=generator.device)
    return (2 * bits - 1).to(torch.float64)


def gaussian(size: int, count: int, generator: torch.Generator) -> Float[Tensor, "size probes"]:
    """Columns of independent standard normal numbers."""
    return torch.randn((size, count), generator=generator, device=generator.device, dtype=torch.float64)


def sphere(size: int, count: int, generator: torch.Generator) -> Float[Tensor, "size probes"]:
    """Columns uniform on the sphere of radius √size."""
    columns = gaussian(size, count, generator)
    return columns * (math.sqrt(size) / columns.norm(dim=0, keepdim=True))


Distribution = Callable[[int, int, torch.Generator], Tensor]
DISTRIBUTIONS: dict[str, Distribution] = {"rademacher": rademacher, "gaussian": gaussian, "sphere": sphere}


def draw(
    operator: SymmetricOperator, count: int, distribution: str, generator: torch.Generator
) -> Float[Tensor, "size probes"]:
    """Probes that `operator` can multiply: its size, dtype and device; drawn in float64 on the generator's device."""
    if distribution not in DISTRIBUTIONS:
        raise InvalidInputError(
            f"There are no probes called {distribution!r}. {did_you_mean(distribution, DISTRIBUTIONS)}"
        )
    return DISTRIBUTIONS[distribution](operator.size, count, generator).to(operator.device, operator.dtype)
