"""Singular values of a large random matrix A, and of I + A: what a skip does to a layer at initialisation.

Figure 1 of 'On skip connections and normalisation layers in deep optimisation' (MacDonald et al. 2023), in the limit of
infinite width. A has independent entries of mean 0 and variance scale²/n (PyTorch's linear layers: scale² = 1/3).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.optimize
import torch

from skiplens.core.axes import Float, Tensor
from skiplens.core.errors import InvalidInputError

NODES = 400
"""Of the quadrature; with the square roots at the edges substituted away it is exact to rounding for smooth means."""


@dataclass(frozen=True)
class SingularValueLaw:
    """The limiting law of the singular values of A, or of I + A.

    Examples:
        >>> round(SingularValueLaw(scale=0.5, has_skip=True).mean_of(lambda sigma: sigma), 6)
        1.0625
    """

    scale: float
    has_skip: bool = True

    def __post_init__(self) -> None:
        """Refuse a matrix without noise."""
        if not 0 < self.scale < math.inf:
            raise InvalidInputError(f"scale is {self.scale}; a positive number was wanted: entries have scale²/n.")

    @property
    def support(self) -> tuple[float, float]:
        """Smallest and largest singular value."""
        s = self.scale
        if not self.has_skip:
            return 0.0, 2 * s
        return (_edge(s, -1) if s < 1 else 0.0), _edge(s, 1)

    def density(self, sigma: Float[Tensor, " points"]) -> Float[Tensor, " points"]:
        """The density at some singular values, zero outside of the support."""
        z, s = sigma.double(), self.scale
        if not self.has_skip:
            return (4 * s * s - z.square()).clamp_min(0).sqrt() / (math.pi * s * s) * (z >= 0)
        # (δ₁ + δ₋₁)/2 ⊞ semicircle: G = ω/(ω² − 1) with ω³ − z ω² + (s² − 1) ω + z = 0
        companion = torch.zeros(*z.shape, 3, 3, dtype=torch.float64, device=z.device)
        companion[..., 1, 0] = companion[..., 2, 1] = 1
        companion[..., 0, 2], companion[..., 1, 2], companion[..., 2, 2] = -z, 1 - s * s, z
        omega = torch.linalg.eigvals(companion)
        G = omega / (omega.square() - 1)
        return -2 / math.pi * G.imag.min(-1).values * (z >= 0)

    def mean_of(self, function: Callable[[Tensor], Tensor], above: float = 0.0) -> float:
        """The mean of a function of the singular values, of those above a number only if one is given."""
        low, high = self.support
        middle, half = (low + high) / 2, (high - low) / 2
        start = math.asin(max(-1.0, min(1.0, (above - middle) / half)))
        nodes, weights = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(NODES))
        angle = (start + math.pi / 2) / 2 + (math.pi / 2 - start) / 2 * nodes
        sigma = middle + half * angle.sin()  # roots at the edges become smooth in the angle
        heights = self.density(sigma) * function(sigma) * half * angle.cos()
        return float((heights * weights).sum() * (math.pi / 2 - start) / 2)

    def share_above(self, sigma: float) -> float:
        """The share of singular values above a number."""
        return self.mean_of(torch.ones_like, above=sigma)

    def quantile(self, share: float) -> float:
        """The number below which a share of the singular values lies."""
        if not 0 < share < 1:
            raise InvalidInputError(f"share is {share}; a number between 0 and 1 was wanted.")
        return float(scipy.optimize.brentq(lambda x: 1 - share - self.share_above(x), *self.support, xtol=1e-14))


def _edge(s: float, sign: int) -> float:
    """Where dz/dω = 0, with v = ω²."""
    v = (2 + s * s + sign * s * math.sqrt(8 + s * s)) / 2
    return math.sqrt(v) * abs(1 + s * s / (v - 1))
