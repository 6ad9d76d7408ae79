"""A nonlinearity applied to each entry of the data matrix, and fixed linear maps such as pooling."""

import math
from dataclasses import dataclass

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.theory.parameterised_systems.certificate import Certificate, DataBound, product
from skiplens.theory.parameterised_systems.layer import Layer
from skiplens.theory.parameterised_systems.nonlinearity import Nonlinearity


@dataclass(frozen=True)
class Elementwise(Layer):
    """φ of each entry."""

    nonlinearity: Nonlinearity
    features: int
    name: str = "nonlinearity"

    @property
    def inputs(self) -> int:
        """Entries of one sample."""
        return self.features

    @property
    def outputs(self) -> int:
        """Entries of one sample."""
        return self.features

    def __call__(
        self, weights: Float[Tensor, " params"], data: Float[Tensor, "inputs samples"]
    ) -> Float[Tensor, "outputs samples"]:
        """φ of each entry."""
        return self.nonlinearity.function(data)

    def parameter_derivative(
        self, weights: Float[Tensor, " params"], data: Float[Tensor, "inputs samples"]
    ) -> Float[Tensor, "rows params"]:
        """No columns."""
        return self.no_parameters(data)

    def input_jacobian(
        self, weights: Float[Tensor, " params"], data: Float[Tensor, "inputs samples"]
    ) -> Float[Tensor, "rows columns"]:
        """The diagonal matrix of φ'."""
        return torch.diag(self.nonlinearity.derivative(data).flatten())

    def certificate(self, bound: DataBound) -> Certificate:
        """Slope and curvature of φ; the size is the smaller of two bounds."""
        phi, root = self.nonlinearity, math.sqrt(self.features * bound.samples)
        size = min(abs(phi.at_zero) * root + product(phi.slope, bound.frobenius), phi.bound * root)
        return Certificate(size, 0.0, phi.slope, 0.0, 0.0, phi.curvature)

    def unbounded_because(self, is_first: bool = False) -> str:
        """A kink, or a slope without bound."""
        if not self.nonlinearity.is_smooth:
            return f"{self.nonlinearity.name} has a kink, so its second derivative is unbounded"
        if not math.isfinite(self.nonlinearity.slope):
            return f"the slope of {self.nonlinearity.name} is unbounded"
        return ""


@dataclass(frozen=True)
class FixedLinear(Layer):
    """Multiplication with a matrix without parameters, known in full: pooling, a selection, a fixed filter."""

    matrix: Float[Tensor, "outputs inputs"]
    name: str = "fixed linear map"

    @property
    def inputs(self) -> int:
        """Columns of the matrix."""
        return self.matrix.shape[1]

    @property
    def outputs(self) -> int:
        """Rows of the matrix."""
        return self.matrix.shape[0]

    def __call__(
        self, weights: Float[Tensor, " params"], data: Float[Tensor, "inputs samples"]
    ) -> Float[Tensor, "outputs samples"]:
        """The matrix times the data."""
        return self.matrix.to(data) @ data

    def parameter_derivative(
        self, weights: Float[Tensor, " params"], data: Float[Tensor, "inputs samples"]
    ) -> Float[Tensor, "rows params"]:
        """No columns."""
        return self.no_parameters(data)

    def input_jacobian(
        self, weights: Float[Tensor, " params"], data: Float[Tensor, "inputs samples"]
    ) -> Float[Tensor, "rows columns"]:
        """The matrix ⊗ I."""
        return torch.kron(self.matrix.to(data), torch.eye(data.shape[1]).to(data))

    def certificate(self, bound: DataBound) -> Certificate:
        """The spectral norm of the matrix."""
        gain = float(torch.linalg.matrix_norm(self.matrix, 2))
        return Certificate(product(gain, bound.frobenius), 0.0, gain, 0.0, 0.0, 0.0)
