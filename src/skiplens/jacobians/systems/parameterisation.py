"""The map w -> P(w) from a layer's parameters to the matrix that multiplies the data, with both derivatives.

Parameters are a vector; matrices are vectorised row first. A derivative has a row for each entry of the matrix.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from skiplens.base.axes import Float
from skiplens.base.errors import InvalidInputError


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
    @abstractmethod
    def is_normalised(self) -> bool:
        """Whether matrix, derivative and second derivative are bounded for all parameters."""

    @abstractmethod
    def matrix(self, weights: Float[Tensor, " params"]) -> Float[Tensor, "outputs inputs"]:
        """P(w)."""

    @abstractmethod
    def derivative(self, weights: Float[Tensor, " params"]) -> Float[Tensor, "entries params"]:
        """DP(w), outputs · inputs rows."""

    @abstractmethod
    def second_derivative(self, weights: Float[Tensor, " params"]) -> Float[Tensor, "entries params params"]:
        """D²P(w)."""

    @abstractmethod
    def smallest_derivative(self, weights: Float[Tensor, " params"]) -> float:
        """The square root of λ(DP(w)): σ(DP) where the parameters reach every matrix, 0 where they do not."""

    @abstractmethod
    def spectral(self) -> Suprema:
        """Suprema in the spectral norm of the matrix."""

    @abstractmethod
    def frobenius(self) -> Suprema:
        """Suprema in the Frobenius norm of the matrix."""

    def apply(
        self, weights: Float[Tensor, " params"], data: Float[Tensor, "inputs samples"]
    ) -> Float[Tensor, "outputs samples"]:
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

    @property
    def is_normalised(self) -> bool:
        """False: the matrix can be of any size."""
        return False

    def matrix(self, weights: Float[Tensor, " params"]) -> Float[Tensor, "outputs inputs"]:
        """The parameters as a matrix."""
        return weights.reshape(self.outputs, self.inputs)

    def derivative(self, weights: Float[Tensor, " params"]) -> Float[Tensor, "entries params"]:
        """The identity."""
        return torch.eye(self.parameters, dtype=weights.dtype, device=weights.device)

    def second_derivative(self, weights: Float[Tensor, " params"]) -> Float[Tensor, "entries params params"]:
        """Zero."""
        return weights.new_zeros((self.parameters,) * 3)

    def smallest_derivative(self, weights: Float[Tensor, " params"]) -> float:
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

    @property
    def is_normalised(self) -> bool:
        """Whether epsilon is above 0: without it the derivative is unbounded at zero."""
        return self.epsilon > 0

    def _suprema(self, size: float) -> Suprema:
        if self.epsilon == 0:
            return Suprema(self.factor * size, math.inf, math.inf)
        return Suprema(size, self.epsilon**-0.5, CURVATURE / self.epsilon).times(self.factor)


@dataclass(frozen=True)
class WeightNormalised(_Normalised):
    """factor · wn(w): each row w of the matrix divided by sqrt(ε + |w|²)."""

    def matrix(self, weights: Float[Tensor, " params"]) -> Float[Tensor, "outputs inputs"]:
        """The normalised rows."""
        return self.factor * unit_rows(self._rows(weights), self.epsilon)

    def derivative(self, weights: Float[Tensor, " params"]) -> Float[Tensor, "entries params"]:
        """Block diagonal: one block for each row."""
        return self.factor * torch.block_diag(*unit_rows_derivative(self._rows(weights), self.epsilon))

    def second_derivative(self, weights: Float[Tensor, " params"]) -> Float[Tensor, "entries params params"]:
        """One cube for each row, zero elsewhere."""
        result = weights.new_zeros((self.parameters,) * 3)
        for row, cube in enumerate(unit_rows_second_derivative(self._rows(weights), self.epsilon)):
            place = slice(row * self.inputs, (row + 1) * self.inputs)
            result[place, place, place] = self.factor * cube
        return result

    def smallest_derivative(self, weights: Float[Tensor, " params"]) -> float:
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

    def matrix(self, weights: Float[Tensor, " params"]) -> Float[Tensor, "outputs inputs"]:
        """The normalised entries."""
        return self.factor * unit_entries(weights, self.epsilon).reshape(self.outputs, self.inputs)

    def derivative(self, weights: Float[Tensor, " params"]) -> Float[Tensor, "entries params"]:
        """A diagonal matrix."""
        return self.factor * torch.diag(unit_entries_derivative(weights, self.epsilon))

    def second_derivative(self, weights: Float[Tensor, " params"]) -> Float[Tensor, "entries params params"]:
        """A diagonal cube."""
        result = weights.new_zeros((self.parameters,) * 3)
        place = torch.arange(self.parameters, device=weights.device)
        result[place, place, place] = self.factor * unit_entries_second_derivative(weights, self.epsilon)
        return result

    def smallest_derivative(self, weights: Float[Tensor, " params"]) -> float:
        """The derivative at the largest entry."""
        return self.factor * float(unit_entries_derivative(weights.abs().max(), self.epsilon))

    def spectral(self) -> Suprema:
        """The square root of the number of entries: they may all be near 1."""
        return self._suprema(math.sqrt(self.parameters))


CURVATURE = 48 / (25 * math.sqrt(5))
"""K2: the largest second derivative of x/sqrt(1 + x²), attained at |x| = 1/2."""


def unit_rows(rows: Float[Tensor, "rows entries"], epsilon: float) -> Float[Tensor, "rows entries"]:
    """Each row w as w/sqrt(ε + |w|²)."""
    return rows * (epsilon + rows.square().sum(1, keepdim=True)).rsqrt()


def unit_rows_derivative(rows: Float[Tensor, "rows entries"], epsilon: float) -> Float[Tensor, "rows entries entries"]:
    """For each row the matrix s^(−1/2) (δ_jk − w_j w_k/s), s = ε + |w|² (equation 30)."""
    s = _squares(rows, epsilon)[:, None, None]
    eye = torch.eye(rows.shape[1], dtype=rows.dtype, device=rows.device)
    return s**-0.5 * (eye - torch.einsum("rj,rk->rjk", rows, rows) / s)


def unit_rows_second_derivative(
    rows: Float[Tensor, "rows entries"], epsilon: float
) -> Float[Tensor, "rows entries entries entries"]:
    """For each row s^(−3/2) (3 w_j w_k w_n/s − δ_jk w_n − δ_kn w_j − δ_jn w_k) (equations 28 and 31)."""
    s = _squares(rows, epsilon)[:, None, None, None]
    eye = torch.eye(rows.shape[1], dtype=rows.dtype, device=rows.device)
    cubic = 3 * torch.einsum("rj,rk,rn->rjkn", rows, rows, rows) / s
    first = torch.einsum("jk,rn->rjkn", eye, rows)
    second = torch.einsum("kn,rj->rjkn", eye, rows)
    third = torch.einsum("jn,rk->rjkn", eye, rows)
    return s**-1.5 * (cubic - first - second - third)


def centring(rows: Float[Tensor, "rows entries"]) -> Float[Tensor, "entries entries"]:
    """The matrix that subtracts the mean from a row (equation 29)."""
    n = rows.shape[1]
    return torch.eye(n, dtype=rows.dtype, device=rows.device) - 1 / n


def _squares(rows: Tensor, epsilon: float) -> Tensor:
    return epsilon + rows.square().sum(1)


def unit_entries(entries: Tensor, epsilon: float) -> Tensor:
    """Each entry w as w (ε + w²)^(−1/2)."""
    return entries * (epsilon + entries.square()) ** -0.5


def unit_entries_derivative(entries: Tensor, epsilon: float) -> Tensor:
    """The derivative of each entry, ε (ε + w²)^(−3/2) (equation 32)."""
    return epsilon * (epsilon + entries.square()) ** -1.5


def unit_entries_second_derivative(entries: Tensor, epsilon: float) -> Tensor:
    """The second derivative of each entry, −3 ε w (ε + w²)^(−5/2); equation 33 prints the exponent 3/2."""
    return -3 * epsilon * entries * (epsilon + entries.square()) ** -2.5
