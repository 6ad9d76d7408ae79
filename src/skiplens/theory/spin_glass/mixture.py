"""The mixture of a spherical spin glass: how much of each interaction order it has."""

from dataclasses import dataclass

import torch
from torch import Tensor

from skiplens.core.axes import Float
from skiplens.core.errors import InvalidInputError
from skiplens.theory.path_weights import path_weights
from skiplens.theory.path_weights.arguments import check_shortest


@dataclass(frozen=True, eq=False)
class Mixture:
    """ν(t) = Σ_r ε_r² t^r, the covariance of a mixed spherical spin glass per spin.

    Attributes:
        weights: ε_r for r = 1..p, float64; they are normalised so that ν(1) = 1.

    Examples:
        >>> Mixture.pure(3).curvature_ratio
        2.0
    """

    weights: Float[Tensor, " orders"]

    def __post_init__(self) -> None:
        """Normalise, or say what is wrong with the weights."""
        weights = torch.as_tensor(self.weights, dtype=torch.float64)
        norm = weights.norm()
        if weights.ndim != 1 or not len(weights) or not bool(torch.isfinite(norm)) or norm == 0:
            raise InvalidInputError(
                f"A mixture needs a list of finite weights, one for each order from 1, not all of them zero; "
                f"got shape {tuple(weights.shape)} with norm {norm.item():g}."
            )
        object.__setattr__(self, "weights", weights / norm)

    @classmethod
    def pure(cls, order: int) -> "Mixture":
        """The model in which all interactions have the given order."""
        if order < 1:
            raise InvalidInputError(f"The order of interactions must be at least 1; got {order}.")
        return cls(torch.eye(order, dtype=torch.float64)[-1])

    @classmethod
    def of_network(cls, depth: int, depth_ratio: float, shortest: int = 1) -> "Mixture":
        """The mixture of a residual network: ε_r(β), with the linear term (shortest=1) or without (shortest=2)."""
        weights = path_weights(depth, depth_ratio).clone()
        weights[: check_shortest(shortest) - 1] = 0
        return cls(weights)

    @property
    def order(self) -> int:
        """p, the highest order."""
        return len(self.weights)

    @property
    def squares(self) -> Float[Tensor, " orders"]:
        """ε_r², which add up to 1."""
        return self.weights.square()

    @property
    def slope(self) -> float:
        """v′ = ν′(1) = E r, the variance of a component of the gradient."""
        return float(self.squares @ self._lengths())

    @property
    def curvature(self) -> float:
        """v″ = ν″(1) = E r(r − 1), the variance of an entry of the Hessian."""
        return float(self.squares @ (self._lengths() * (self._lengths() - 1)))

    @property
    def spread(self) -> float:
        """α² = v″ + v′ − v′² = Var r; 0 for a pure model."""
        return float(self.squares @ (self._lengths() - self.slope).square())

    @property
    def curvature_ratio(self) -> float:
        """B = v″/v′, the one number on which the count of critical points depends."""
        return self.curvature / self.slope

    def covariance(self, overlap: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """ν(t) for overlaps t = ⟨w, w′⟩/Λ: E H(w) H(w′) = Λ ν(t)."""
        total = torch.zeros_like(overlap)
        for square in self.squares.flip(0).tolist():
            total = (total + square) * overlap
        return total

    def _lengths(self) -> Tensor:
        return torch.arange(1, self.order + 1, dtype=torch.float64, device=self.weights.device)
