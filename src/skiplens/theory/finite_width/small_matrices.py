"""Random samples × samples matrices, one per network: Gaussian, Wishart and Haar, with the factors of Gram matrices.

They are kept in float64: they cost little, and what they hold decides the law of everything wide.
"""

from dataclasses import dataclass

import torch

from skiplens.core.axes import Float, Tensor

_SMALLEST = 1e-30  # keeps the factor of a dead layer (all gates closed) invertible; its images stay zero


@dataclass(frozen=True)
class Draws:
    """Where random numbers come from: a generator, and the number of networks that are drawn at once.

    Attributes:
        generator: Source of all numbers; its device is the device of everything drawn.
        networks: Networks drawn at once.
        inputs: Inputs of each network.
        dtype: Of what has an axis of the network's width.
    """

    generator: torch.Generator
    networks: int
    inputs: int
    dtype: torch.dtype

    def wide_normal(self, width: int, columns: int | None = None) -> Float[Tensor, "networks width columns"]:
        """Independent standard normal numbers, one row per unit."""
        shape = (self.networks, width, self.inputs if columns is None else columns)
        return torch.randn(shape, generator=self.generator, dtype=self.dtype, device=self.generator.device)

    def normal(self, rows: int, columns: int | None = None) -> Float[Tensor, "networks rows columns"]:
        """Independent standard normal numbers in float64."""
        shape = (self.networks, rows, self.inputs if columns is None else columns)
        return torch.randn(shape, generator=self.generator, dtype=torch.float64, device=self.generator.device)

    def chi(self, degrees: Tensor) -> Float[Tensor, "networks degrees"]:
        """Independent chi-distributed numbers, a column for each number of degrees of freedom (0 or less gives 0)."""
        shape = (degrees.clamp(min=1).double() / 2).to(self.generator.device).expand(self.networks, -1).contiguous()
        # torch.distributions draws gamma numbers with this function too, but lets no generator through.
        gamma = torch._standard_gamma(shape, generator=self.generator)
        return torch.where(degrees.to(gamma.device) > 0, (2 * gamma).sqrt(), torch.zeros_like(gamma))

    def wishart_factor(self, degrees: int) -> Float[Tensor, "networks inputs inputs"]:
        """Upper triangular T with TᵀT of the law of GᵀG, G normal with `degrees` rows (Bartlett's decomposition)."""
        p = self.inputs
        rows = torch.arange(p, device=self.generator.device)
        upper = self.normal(p).triu(1) * (rows < degrees)[:, None]
        return upper + torch.diag_embed(self.chi(degrees - rows))


def gram(vectors: Float[Tensor, "networks width columns"]) -> Float[Tensor, "networks columns columns"]:
    """Inner products of the columns, in float64."""
    return (vectors.mT @ vectors).double()


def factor(
    gram: Float[Tensor, "networks inputs inputs"], dtype: torch.dtype
) -> Float[Tensor, "networks inputs inputs"]:
    """Upper triangular R with RᵀR = gram up to the rounding of `dtype`, in which the Gram matrix was computed.

    Gram matrices may be singular (equal inputs, few features). Shrinking the off-diagonal by a few roundings makes the
    factor exist and leaves the diagonal as it is.
    """
    diagonal = torch.diag_embed(gram.diagonal(dim1=-2, dim2=-1))
    shrink = 4 * gram.shape[-1] * torch.finfo(torch.float64).eps if dtype == torch.float64 else 2e-6
    floor = _SMALLEST * torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    for _ in range(6):
        lower, failed = torch.linalg.cholesky_ex(gram + shrink * (diagonal - gram) + floor)
        if not bool(failed.any()):
            break
        shrink *= 10
    return lower.mT
