"""Unit vectors: uniform on the sphere, along a great circle, or with chosen angles between all pairs."""

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.core.errors import InvalidInputError


def random_unit_vectors(
    samples: int, features: int, generator: torch.Generator, dtype: torch.dtype | None = None
) -> Float[Tensor, "samples features"]:
    """Vectors drawn uniformly from the unit sphere."""
    drawn = torch.randn(samples, features, generator=generator, device=generator.device, dtype=dtype)
    return drawn / torch.linalg.vector_norm(drawn, dim=1, keepdim=True)


def vectors_on_circle(
    angles: Float[Tensor, " samples"], features: int, generator: torch.Generator
) -> Float[Tensor, "samples features"]:
    """Unit vectors along one random great circle, the i-th at `angles[i]` from the circle's start.

    Two of them are |angles[i] − angles[j]| apart (up to π), so a first angle of 0 gives vectors at chosen angles to the
    first one. Device and dtype are those of `angles`, and the generator's device must be the same.
    """
    if features < 2:
        raise InvalidInputError(f"A circle needs at least 2 features; got {features}.")
    frame = _orthonormal(2, features, generator, angles.dtype)
    return torch.stack([angles.cos(), angles.sin()], dim=1) @ frame


def vectors_at_angles(
    angles: Float[Tensor, "samples samples"], features: int, generator: torch.Generator
) -> Float[Tensor, "samples features"]:
    """Unit vectors with the angle `angles[i, j]` between vectors i and j, turned at random.

    Raises an error if there are no such vectors (the cosines must form a positive semi-definite matrix with unit
    diagonal) or if they need more dimensions than `features`.
    """
    cosines = angles.cos()
    tolerance = len(angles) * torch.finfo(angles.dtype).eps
    if not torch.allclose(cosines, cosines.T, rtol=0, atol=tolerance) or not torch.all(angles.diagonal() == 0):
        raise InvalidInputError("Angles between pairs must be a symmetric matrix with zeros on its diagonal.")
    eigenvalues, vectors = torch.linalg.eigh(cosines)
    if eigenvalues[0] < -tolerance * eigenvalues[-1]:
        raise InvalidInputError(
            f"No vectors have these angles: their cosines form a matrix with the eigenvalue {eigenvalues[0]:.3g}. "
            "Three angles, for one, must satisfy the triangle inequality."
        )
    rank = int((eigenvalues > tolerance * eigenvalues[-1]).sum())
    if rank > features:
        raise InvalidInputError(f"Vectors with these angles need {rank} dimensions; got features={features}.")
    coordinates = vectors[:, -rank:] * eigenvalues[-rank:].sqrt()
    placed = coordinates @ _orthonormal(rank, features, generator, angles.dtype)
    return placed / torch.linalg.vector_norm(placed, dim=1, keepdim=True)


def _orthonormal(rows: int, features: int, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    drawn = torch.randn(features, rows, generator=generator, device=generator.device, dtype=dtype)
    return torch.linalg.qr(drawn).Q.T
