"""Layers without matrices of their own: nonlinearities of each entry, fixed linear maps, and skips around a branch."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from skiplens.base import Float, InvalidInputError, refuse_if
from skiplens.jacobians.systems.layer import Certificate, DataBound, Inputs, Layer, OfLayers, Outputs, Weights, product


@dataclass(frozen=True)
class Nonlinearity:
    """An elementwise map φ and what the theorems need of it.

    Attributes:
        name: What people call it.
        function: The map of a tensor.
        slope: Supremum of |φ'|.
        curvature: Supremum of the Lipschitz constant of φ'; infinite where φ' jumps.
        bound: Supremum of |φ|.
        at_zero: φ(0).
    """

    name: str
    function: Callable[[Tensor], Tensor]
    slope: float = 1.0
    curvature: float = math.inf
    bound: float = math.inf
    at_zero: float = 0.0

    @property
    def is_smooth(self) -> bool:
        """Whether φ is differentiable and its derivative Lipschitz."""
        return math.isfinite(self.curvature)

    def derivative(self, values: Tensor) -> Tensor:
        """φ' at each entry."""
        return torch.func.grad(lambda x: self.function(x).sum())(values)


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

    def __call__(self, weights: Weights, data: Inputs) -> Outputs:
        """φ of each entry."""
        return self.nonlinearity.function(data)

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

    def __call__(self, weights: Weights, data: Inputs) -> Outputs:
        """The matrix times the data."""
        return self.matrix.to(data) @ data

    def certificate(self, bound: DataBound) -> Certificate:
        """The spectral norm of the matrix."""
        gain = float(torch.linalg.matrix_norm(self.matrix, 2))
        return Certificate(product(gain, bound.frobenius), 0.0, gain, 0.0, 0.0, 0.0)


SILU_SLOPE = 1.0998393201289  # the largest slope of x · sigmoid(x), at x = 2.3994 (rounded up in the last digit)
GELU_SLOPE = 0.5 * (1 + math.erf(1.0)) + math.exp(-1.0) / math.sqrt(math.pi)
"""Φ(√2) + √2 φ(√2), the slope of GELU where its curvature changes sign."""

NONLINEARITIES = {
    entry.name: entry
    for entry in (
        Nonlinearity("identity", lambda x: x, 1.0, 0.0),
        Nonlinearity("tanh", torch.tanh, 1.0, 4 / (3 * math.sqrt(3)), bound=1.0),
        Nonlinearity("sigmoid", torch.sigmoid, 0.25, 1 / (6 * math.sqrt(3)), bound=1.0, at_zero=0.5),
        Nonlinearity("softplus", F.softplus, 1.0, 0.25, at_zero=math.log(2)),
        Nonlinearity("logsigmoid", F.logsigmoid, 1.0, 0.25, at_zero=-math.log(2)),
        Nonlinearity("sin", torch.sin, 1.0, 1.0, bound=1.0),
        Nonlinearity("softsign", F.softsign, 1.0, 2.0, bound=1.0),
        Nonlinearity("elu", F.elu, 1.0, 1.0),
        Nonlinearity("gelu", F.gelu, GELU_SLOPE, math.sqrt(2 / math.pi)),
        Nonlinearity("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), 1.128994, math.sqrt(2 / math.pi)),
        Nonlinearity("silu", F.silu, SILU_SLOPE, 0.5),
        Nonlinearity("mish", F.mish, 1.088499, 0.644205),
        Nonlinearity("relu", torch.relu),
        Nonlinearity("leaky_relu", F.leaky_relu),
        Nonlinearity("relu6", F.relu6, bound=6.0),
        Nonlinearity("hardtanh", F.hardtanh, bound=1.0),
        Nonlinearity("hardswish", F.hardswish, slope=1.5),
        Nonlinearity("hardsigmoid", F.hardsigmoid, slope=1 / 6, bound=1.0, at_zero=0.5),
        Nonlinearity("selu", F.selu, slope=1.7581),
        Nonlinearity("prelu", lambda x: F.leaky_relu(x, 0.25), slope=math.inf),
    )
}
"""The nonlinearities known by name; those without a finite curvature have a kink."""


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
        refuse_if(matrix.numel() == 0, f"A skip map of shape {tuple(matrix.shape)} has no outputs or no inputs.")
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
class Residual(OfLayers):
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
    def layers(self) -> tuple[Layer, ...]:  # type: ignore[override]  # declared as a field above: read-only here
        """The branch alone: the skip has no parameters and couples nothing."""
        return (self.branch,)

    def __call__(self, weights: Weights, data: Inputs) -> Outputs:
        """Skip plus branch."""
        return self.skip.dense(data) @ data + self.branch(weights, data)

    def certificate(self, bound: DataBound) -> Certificate:
        """The branch's, with the skip added to size and gain."""
        g, gain = self.branch.certificate(bound), self.skip.largest
        size = product(gain, bound.frobenius) + g.size
        return Certificate(size, g.slope, gain + g.gain, g.curvature, g.mixed, g.bend)

    def unbounded_because(self, is_first: bool = False) -> str:
        """The reasons of the branch."""
        return self.branch.unbounded_because(is_first)
