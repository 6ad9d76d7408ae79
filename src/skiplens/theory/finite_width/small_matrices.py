"""Random samples × samples matrices, one per network: Gaussian, Wishart and Haar, with the factors of Gram matrices.

They are kept in float64: they cost little, and what they hold decides the law of everything wide.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.core.errors import DidNotConverge

_MORE_SLACK = 12  # times ten each: from rounding to anything that is finite
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

    def wide_normal(self, width: int) -> Float[Tensor, "networks inputs width"]:
        """Independent standard normal numbers, one column per unit."""
        return self._normal(self.inputs, width)

    def normal(self, rows: int, columns: int | None = None) -> Float[Tensor, "networks rows columns"]:
        """Independent standard normal numbers, drawn with the digits of `dtype` and kept in float64."""
        return self._normal(rows, self.inputs if columns is None else columns).double()

    def _normal(self, rows: int, columns: int) -> Tensor:
        shape = (self.networks, rows, columns)
        return torch.randn(shape, generator=self.generator, dtype=self.dtype, device=self.generator.device)

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


class SlackFactor(NamedTuple):
    """Upper triangular R with RᵀR = gram + diag(slack), which exists also where equal inputs make the gram singular.

    A forward pass with R is a forward pass with a little independent noise, of variance slack, on what a matrix maps.
    The backward pass knows of that noise, so their joint law is that of some network, and off only by the slack.
    """

    upper: Float[Tensor, "networks inputs inputs"]
    slack: Float[Tensor, "networks inputs"]

    def forward(self) -> Float[Tensor, "networks inputs inputs"]:
        """R with its columns shortened to the norms that the Gram matrix has without slack."""
        norms_squared = self.upper.square().sum(1)
        return self.upper * ((norms_squared - self.slack).clamp(min=0) / norms_squared).sqrt()[:, None]


def slack_factor(gram: Float[Tensor, "networks inputs inputs"], slack: Float[Tensor, "networks inputs"]) -> SlackFactor:
    """The factor of gram + diag(slack), with ten times the slack where rounding has made that indefinite."""
    for _ in range(_MORE_SLACK):
        lower, failed = torch.linalg.cholesky_ex(gram + torch.diag_embed(slack))
        if not bool(failed.any()):
            return SlackFactor(lower.mT, slack)
        slack = torch.where((failed > 0)[:, None], 10 * slack, slack)
    raise DidNotConverge(
        "A Gram matrix of the sampled layers is not finite: the network's values have left the range of its dtype. "
        "Use float64, or a smaller branch_scale or depth."
    )


def relative_slack(
    gram: Float[Tensor, "networks inputs inputs"], dtype: torch.dtype
) -> Float[Tensor, "networks inputs"]:
    """A slack just above the rounding of a Gram matrix that was computed in `dtype`."""
    return slack_share(dtype) * gram.diagonal(dim1=-2, dim2=-1) + _SMALLEST


def slack_share(dtype: torch.dtype) -> float:
    """Slack per squared norm: 1e-14 in float64 and 2e-6 in float32."""
    return 1e-14 if dtype == torch.float64 else 2e-6


def factor(
    gram: Float[Tensor, "networks inputs inputs"], dtype: torch.dtype
) -> Float[Tensor, "networks inputs inputs"]:
    """Upper triangular R with RᵀR = gram up to the rounding of `dtype`, the diagonal as it is."""
    return slack_factor(gram, relative_slack(gram, dtype)).forward()
