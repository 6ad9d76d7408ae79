"""Made-up data: Gaussian classes (Littwin & Wolf 2016, figure 1d, e), vectors on spheres, shuffled batches."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from skiplens.base import Float, InvalidInputError, refuse_if
from skiplens.data.loading import ImageBatches
from skiplens.data.preprocessing import Standardisation
from skiplens.graph.batch import Batch

Difference = Literal["means", "covariances"]


@dataclass(frozen=True, eq=False)
class GaussianClasses:
    """Classes k with the law N(means[k], factors[k] factors[k]ᵀ), all equally likely."""

    means: Float[Tensor, "classes features"]
    factors: Float[Tensor, "classes features features"]

    def draw(self, samples: int, generator: torch.Generator) -> Batch:
        """Fresh samples (samples, features) with their classes, drawn uniformly."""
        classes, features = self.means.shape
        device, dtype = self.means.device, self.means.dtype
        labels = torch.randint(classes, (samples,), generator=generator, device=device)
        noise = torch.randn(samples, features, generator=generator, device=device, dtype=dtype)
        return Batch(self.means[labels] + torch.einsum("sij,sj->si", self.factors[labels], noise), labels)


def gaussian_classes(
    generator: torch.Generator,
    differ_in: Difference = "means",
    classes: int = 50,
    features: int = 20,
    dtype: torch.dtype | None = None,
) -> GaussianClasses:
    """Random Gaussian classes with covariances Q diag(u²) Qᵀ, Q from the QR factors of a Gaussian matrix.

    `"means"`: means drawn from N(0, I) and u uniform in [0.5, 1.5]. `"covariances"`: all means 0 and u = exp(N(0, 1)).
    The device is the generator's.
    """
    if differ_in not in ("means", "covariances"):
        raise InvalidInputError(f"Classes can differ in 'means' or 'covariances'; got {differ_in!r}.")

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, device=generator.device, dtype=dtype)

    Q = torch.linalg.qr(normal(classes, features, features)).Q
    if differ_in == "means":
        means = normal(classes, features)
        u = 0.5 + torch.rand(classes, features, generator=generator, device=generator.device, dtype=dtype)
    else:
        means, u = Q.new_zeros(classes, features), normal(classes, features).exp()
    return GaussianClasses(means, Q * u[:, None, :])


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
    refuse_if(features < 2, f"A circle needs at least 2 features; got {features}.")
    return torch.stack([angles.cos(), angles.sin()], dim=1) @ _orthonormal(2, features, generator, angles.dtype)


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
    refuse_if(rank > features, f"Vectors with these angles need {rank} dimensions; got features={features}.")
    coordinates = vectors[:, -rank:] * eigenvalues[-rank:].sqrt()
    placed = coordinates @ _orthonormal(rank, features, generator, angles.dtype)
    return placed / torch.linalg.vector_norm(placed, dim=1, keepdim=True)


def _orthonormal(rows: int, features: int, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    drawn = torch.randn(features, rows, generator=generator, device=generator.device, dtype=dtype)
    return torch.linalg.qr(drawn).Q.T


@dataclass(frozen=True, eq=False)
class ShuffledBatches:
    """The same images in a new order each time they are gone through, standardised, as float32.

    The order is drawn from torch's generator, as a shuffling `DataLoader` draws it: a training run seeds that for each
    epoch.
    """

    images: ImageBatches
    standardisation: Standardisation

    def __len__(self) -> int:
        """The number of batches."""
        return len(self.images)

    def __iter__(self) -> Iterator[Batch]:
        """Each batch; the last may be short."""
        order = self.images.order[: self.images.samples]
        shuffled = order[torch.randperm(len(order))]
        for images, labels in self.images.source.stream(shuffled, self.images.options.batch_size):
            yield Batch(self.standardisation(images, torch.float32), labels)


@dataclass(frozen=True, eq=False)
class CentredBatches:
    """The middle of each image, 7/8 of its side, standardised, as float32: what random parts are tested with."""

    images: ImageBatches
    standardisation: Standardisation

    def __iter__(self) -> Iterator[Batch]:
        """Each batch, in the same order every time."""
        order = self.images.order[: self.images.samples]
        for images, labels in self.images.source.stream(order, self.images.options.batch_size):
            kept = images.shape[-1] * 7 // 8
            start = (images.shape[-1] - kept) // 2
            middle = images[..., start : start + kept, start : start + kept]
            yield Batch(self.standardisation(middle, torch.float32), labels)
