"""The map w -> P(w) from a layer's parameters to the matrix that multiplies the data, with both derivatives.

Parameters are a vector; matrices are vectorised row first. A derivative has a row for each entry of the matrix.
`unit_rows`, which weight normalisation makes of a matrix, is also what batch norm and layer norm make of data.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from skiplens.base import Float, InvalidInputError
from skiplens.jacobians.systems.layer import Inputs, Outputs, Weights

CURVATURE = 48 / (25 * math.sqrt(5))  # K2: the largest second derivative of x/sqrt(1 + x²), attained at |x| = 1/2


@dataclass(frozen=True)
class Suprema:
    """Suprema over all parameters of a norm of P, of its derivative and of its second derivative."""

    size: float
    slope: float
    curvature: float

    def times(self, factor: float) -> "Suprema":
        """The suprema of factor · P."""
        return Suprema(factor * self.size, factor * self.slope, factor * self.curvature)


class Parameterisation(ABC):
    """A map from a vector of parameters to a matrix of `outputs` × `inputs`."""

    outputs: int
    inputs: int

    @property
    @abstractmethod
    def parameters(self) -> int:
        """Number of parameters."""

    @property
    def is_normalised(self) -> bool:
        """Whether matrix, derivative and second derivative are bounded for all parameters."""
        found = self.spectral()
        return all(map(math.isfinite, (found.size, found.slope, found.curvature)))

    @abstractmethod
    def matrix(self, weights: Weights) -> Float[Tensor, "outputs inputs"]:
        """P(w)."""

    def derivative(self, weights: Weights) -> Float[Tensor, "entries params"]:
        """DP(w), outputs · inputs rows."""
        return torch.func.jacrev(lambda w: self.matrix(w).flatten())(weights)

    @abstractmethod
    def smallest_derivative(self, weights: Weights) -> float:
        """The square root of λ(DP(w)): σ(DP) where the parameters reach every matrix, 0 where they do not."""

    @abstractmethod
    def spectral(self) -> Suprema:
        """Suprema in the spectral norm of the matrix."""

    @abstractmethod
    def frobenius(self) -> Suprema:
        """Suprema in the Frobenius norm of the matrix."""

    def apply(self, weights: Weights, data: Inputs) -> Outputs:
        """P(w) times the data matrix."""
        return self.matrix(weights) @ data


@dataclass(frozen=True)
class _Matrix(Parameterisation):
    """One parameter for each entry of the matrix, in row-first order."""

    outputs: int
    inputs: int

    def __post_init__(self) -> None:
        """Refuse a matrix without entries."""
        if self.outputs < 1 or self.inputs < 1:
            raise InvalidInputError(
                f"A matrix of {self.outputs} × {self.inputs} was asked for; a layer needs at least one input and one "
                "output."
            )

    @property
    def parameters(self) -> int:
        """One for each entry."""
        return self.outputs * self.inputs

    def frobenius(self) -> Suprema:
        """The same numbers bound the Frobenius norm: rows or entries are bounded one by one."""
        return self.spectral()


@dataclass(frozen=True)
class Free(_Matrix):
    """P(w) = w: the entries themselves, unbounded."""

    def matrix(self, weights: Weights) -> Float[Tensor, "outputs inputs"]:
        """The parameters as a matrix."""
        return weights.reshape(self.outputs, self.inputs)

    def smallest_derivative(self, weights: Weights) -> float:
        """1."""
        return 1.0

    def spectral(self) -> Suprema:
        """Unbounded matrix, derivative 1, no second derivative."""
        return Suprema(math.inf, 1.0, 0.0)


@dataclass(frozen=True)
class _Normalised(_Matrix):
    """A matrix whose rows or entries stay below 1, times `factor`."""

    epsilon: float = 1.0
    factor: float = 1.0

    def __post_init__(self) -> None:
        """Refuse what is no normalisation."""
        super().__post_init__()
        if self.epsilon < 0 or not self.factor > 0:
            raise InvalidInputError(
                f"epsilon is {self.epsilon} and factor is {self.factor}; a normalisation needs epsilon >= 0 (above 0 "
                "for bounded derivatives) and a factor above 0."
            )

    def _suprema(self, size: float) -> Suprema:
        """Without epsilon the derivatives are unbounded at zero."""
        if self.epsilon == 0:
            return Suprema(self.factor * size, math.inf, math.inf)
        return Suprema(size, self.epsilon**-0.5, CURVATURE / self.epsilon).times(self.factor)


@dataclass(frozen=True)
class WeightNormalised(_Normalised):
    """factor · wn(w): each row w of the matrix divided by sqrt(ε + |w|²)."""

    def matrix(self, weights: Weights) -> Float[Tensor, "outputs inputs"]:
        """The normalised rows."""
        return self.factor * unit_rows(self._rows(weights), self.epsilon)

    def smallest_derivative(self, weights: Weights) -> float:
        """The smallest ε (ε + |w|²)^(−3/2) over the rows: along a row the derivative is smallest."""
        squares = self._rows(weights).square().sum(1)
        return self.factor * self.epsilon * float((self.epsilon + squares.max()) ** -1.5)

    def spectral(self) -> Suprema:
        """The square root of the number of rows: they may be parallel."""
        return self._suprema(math.sqrt(self.outputs))

    def _rows(self, weights: Tensor) -> Tensor:
        return weights.reshape(self.outputs, self.inputs)


@dataclass(frozen=True)
class EntryNormalised(_Normalised):
    """factor · en(w): each entry w of the matrix divided by sqrt(ε + w²)."""

    def matrix(self, weights: Weights) -> Float[Tensor, "outputs inputs"]:
        """The normalised entries."""
        entries = weights * (self.epsilon + weights.square()) ** -0.5
        return self.factor * entries.reshape(self.outputs, self.inputs)

    def smallest_derivative(self, weights: Weights) -> float:
        """ε (ε + w²)^(−3/2) at the largest entry w (equation 32)."""
        return self.factor * self.epsilon * float((self.epsilon + weights.abs().max() ** 2) ** -1.5)

    def spectral(self) -> Suprema:
        """The square root of the number of entries: they may all be near 1."""
        return self._suprema(math.sqrt(self.parameters))


def unit_rows(rows: Float[Tensor, "rows entries"], epsilon: float) -> Float[Tensor, "rows entries"]:
    """Each row w as w/sqrt(ε + |w|²)."""
    return rows * (epsilon + rows.square().sum(1, keepdim=True)).rsqrt()
