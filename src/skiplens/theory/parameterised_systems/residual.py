"""Residual layers I Z + g(θ, Z) and what their skip map I must be."""

from dataclasses import dataclass

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.core.errors import InvalidInputError
from skiplens.theory.parameterised_systems.certificate import Certificate, DataBound, product
from skiplens.theory.parameterised_systems.layer import Layer


@dataclass(frozen=True)
class SkipMap:
    """What is known of the singular values of a linear skip map.

    Attributes:
        outputs: Rows of its matrix.
        inputs: Columns of its matrix.
        smallest: Smallest of the min(outputs, inputs) singular values.
        largest: Largest singular value.
        matrix: The matrix itself, where it is small enough to have; only then can the layer be evaluated.
    """

    outputs: int
    inputs: int
    smallest: float
    largest: float
    matrix: Float[Tensor, "outputs inputs"] | None = None

    @classmethod
    def of_matrix(cls, matrix: Float[Tensor, "outputs inputs"]) -> "SkipMap":
        """The skip map of a matrix, with its measured singular values."""
        if matrix.numel() == 0:
            raise InvalidInputError(f"A skip map of shape {tuple(matrix.shape)} has no outputs or no inputs.")
        values = torch.linalg.svdvals(matrix)
        return cls(matrix.shape[0], matrix.shape[1], float(values[-1]), float(values[0]), matrix)

    @classmethod
    def truncation(cls, outputs: int, inputs: int, dtype: torch.dtype = torch.float64) -> "SkipMap":
        """The first `outputs` coordinates; zeros follow where there are more outputs than inputs."""
        return cls.of_matrix(torch.eye(outputs, inputs, dtype=dtype))

    def is_isometric(self, tolerance: float = 1e-12) -> bool:
        """Whether all min(outputs, inputs) singular values are 1."""
        return abs(self.smallest - 1) <= tolerance and abs(self.largest - 1) <= tolerance

    def dense(self, like: Tensor) -> Tensor:
        """The matrix in the dtype and on the device of `like`."""
        if self.matrix is None:
            raise InvalidInputError(
                "Only the singular values of this skip map are known, so the layer cannot be evaluated. "
                "Make it with SkipMap.of_matrix."
            )
        return self.matrix.to(like)


@dataclass(frozen=True)
class Residual(Layer):
    """I Z + g(θ, Z) with a fixed skip map I and a branch g."""

    skip: SkipMap
    branch: Layer
    name: str = "residual block"

    def __post_init__(self) -> None:
        """Refuse a skip of another shape than the branch."""
        if (self.skip.inputs, self.skip.outputs) != (self.branch.inputs, self.branch.outputs):
            raise InvalidInputError(
                f"The skip of {self.name!r} maps {self.skip.inputs} features to {self.skip.outputs}, its branch "
                f"{self.branch.inputs} to {self.branch.outputs}; they are added, so they must agree."
            )

    @property
    def inputs(self) -> int:
        """Features that enter."""
        return self.branch.inputs

    @property
    def outputs(self) -> int:
        """Features that leave."""
        return self.branch.outputs

    @property
    def parameters(self) -> int:
        """Parameters of the branch."""
        return self.branch.parameters

    @property
    def couples_samples(self) -> bool:
        """Whether the branch does."""
        return self.branch.couples_samples

    def __call__(
        self, weights: Float[Tensor, " params"], data: Float[Tensor, "inputs samples"]
    ) -> Float[Tensor, "outputs samples"]:
        """Skip plus branch."""
        return self.skip.dense(data) @ data + self.branch(weights, data)

    def parameter_derivative(
        self, weights: Float[Tensor, " params"], data: Float[Tensor, "inputs samples"]
    ) -> Float[Tensor, "rows params"]:
        """That of the branch."""
        return self.branch.parameter_derivative(weights, data)

    def input_jacobian(
        self, weights: Float[Tensor, " params"], data: Float[Tensor, "inputs samples"]
    ) -> Float[Tensor, "rows columns"]:
        """I ⊗ I + Jg."""
        eye = torch.eye(data.shape[1], dtype=data.dtype, device=data.device)
        return torch.kron(self.skip.dense(data), eye) + self.branch.input_jacobian(weights, data)

    def certificate(self, bound: DataBound) -> Certificate:
        """The branch's, with the skip added to size and gain."""
        g, gain = self.branch.certificate(bound), self.skip.largest
        size = product(gain, bound.frobenius) + g.size
        return Certificate(size, g.slope, gain + g.gain, g.curvature, g.mixed, g.bend)

    def unbounded_because(self, is_first: bool = False) -> str:
        """The reasons of the branch."""
        return self.branch.unbounded_because(is_first)
