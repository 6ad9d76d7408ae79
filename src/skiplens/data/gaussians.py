"""The task of 'The Loss Surface of Residual Networks', Figure 1(d, e): tell Gaussian classes apart."""

from dataclasses import dataclass
from typing import Literal

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.core.errors import InvalidInputError
from skiplens.data.batch import Batch

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
