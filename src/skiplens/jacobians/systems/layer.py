"""A layer, a composition of layers, and the bounds that are certified for them over all parameters.

A layer is a map of parameters and a whole data matrix, with exact derivatives with respect to both.

Data matrices are features × samples, one sample a column, as in 'On skip connections and normalisation layers in deep
optimisation' (MacDonald et al. 2023); everywhere else in Skiplens a batch is its transpose. Matrices are vectorised row
first: entry (feature i, sample j) has the number i · samples + j.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise

import torch
from torch import Tensor

from skiplens.base import Float, InvalidInputError, refuse_if

Weights = Float[Tensor, " params"]
Inputs = Float[Tensor, "inputs samples"]
Outputs = Float[Tensor, "outputs samples"]


@dataclass(frozen=True)
class DataBound:
    """What is known of the data matrix that enters a layer (features × samples).

    Attributes:
        frobenius: Upper bound of |Z|_F.
        spectral: Upper bound of |Z|_2.
        column_sums: Upper bound of the root of Σ_j |z_j|_1² over the samples; infinite where it is not known.
        samples: Number of columns.
    """

    frobenius: float
    spectral: float
    column_sums: float
    samples: int

    @classmethod
    def of_data(cls, data: Float[Tensor, "features samples"]) -> "DataBound":
        """The bounds of a known data matrix, which are equalities."""
        norm = torch.linalg.matrix_norm
        columns = data.abs().sum(0).square().sum().sqrt()
        return cls(float(norm(data)), float(norm(data, 2)), float(columns), data.shape[1])

    @classmethod
    def of_radius(cls, radius: float, samples: int) -> "DataBound":
        """The bounds when only |Z|_F <= radius is known."""
        return cls(radius, radius, math.inf, samples)


@dataclass(frozen=True)
class Certificate:
    """Six suprema of a map h(parameters, data) over all parameters and over all data within a bound.

    Attributes:
        size: R, of |h|_F.
        slope: D, of the derivative with respect to the parameters.
        gain: J, of the derivative with respect to the data.
        curvature: DD, of the second derivative with respect to the parameters.
        mixed: DJ, of the mixed second derivative.
        bend: JJ, of the second derivative with respect to the data.
    """

    size: float
    slope: float
    gain: float
    curvature: float
    mixed: float
    bend: float

    def after(self, inner: "Certificate") -> "Certificate":
        """The certificate of this map after `inner`, whose parameters are others."""
        f, h = self, inner
        return Certificate(
            size=f.size,
            slope=math.hypot(f.slope, product(f.gain, h.slope)),
            gain=product(f.gain, h.gain),
            curvature=_largest_eigenvalue(
                f.curvature, product(f.mixed, h.slope), product(f.bend, h.slope, h.slope) + product(f.gain, h.curvature)
            ),
            mixed=math.hypot(product(f.mixed, h.gain), product(f.bend, h.slope, h.gain) + product(f.gain, h.mixed)),
            bend=product(f.bend, h.gain, h.gain) + product(f.gain, h.bend),
        )

    @property
    def is_finite(self) -> bool:
        """Whether slope and curvature, which the smoothness of a loss is made of, are finite."""
        return math.isfinite(self.slope) and math.isfinite(self.curvature)


class Layer(ABC):
    """f(parameters, data): parameters are a vector, data a matrix of features × samples."""

    name: str

    @property
    @abstractmethod
    def inputs(self) -> int:
        """Features that enter."""

    @property
    def outputs(self) -> int:
        """Features that leave; as many as enter, unless a layer says otherwise."""
        return self.inputs

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return 0

    @property
    def couples_samples(self) -> bool:
        """Whether the output of a sample depends on other samples, as in batch norm."""
        return False

    @abstractmethod
    def __call__(self, weights: Weights, data: Inputs) -> Outputs:
        """The data matrix that leaves."""

    def parameter_derivative(self, weights: Weights, data: Inputs) -> Float[Tensor, "rows params"]:
        """Df: a row for each entry of the data matrix that leaves, a column for each parameter."""
        return torch.func.jacrev(lambda own: self(own, data).flatten())(weights)

    def input_jacobian(self, weights: Weights, data: Inputs) -> Float[Tensor, "rows columns"]:
        """Jf: a row for each entry of the data matrix that leaves, a column for each that enters."""
        return torch.func.jacrev(lambda Z: self(weights, Z).flatten())(data).flatten(1)

    @abstractmethod
    def certificate(self, bound: DataBound) -> Certificate:
        """Bounds over all parameters and over all data within `bound`."""

    def unbounded_because(self, is_first: bool = False) -> str:
        """Why derivatives of this layer are unbounded, or ''; of the first, whose data are fixed, only Df counts."""
        return ""


class OfLayers(Layer):
    """What is made of layers one after the other; its parameters are those of its layers, the first layer's first."""

    layers: tuple[Layer, ...]

    @property
    def inputs(self) -> int:
        """Features that enter the first layer."""
        return self.layers[0].inputs

    @property
    def outputs(self) -> int:
        """Features that leave the last layer."""
        return self.layers[-1].outputs

    @property
    def parameters(self) -> int:
        """Parameters of all layers."""
        return sum(layer.parameters for layer in self.layers)

    @property
    def couples_samples(self) -> bool:
        """Whether one of the layers does."""
        return any(layer.couples_samples for layer in self.layers)


@dataclass(frozen=True)
class Composition(OfLayers):
    """f_L(θ_L) ∘ … ∘ f_1(θ_1)."""

    layers: tuple[Layer, ...]
    name: str = "network"

    def __post_init__(self) -> None:
        """Refuse layers that do not fit together."""
        refuse_if(not self.layers, "A composition of no layers was asked for; give at least one layer.")
        for before, after in pairwise(self.layers):
            if before.outputs != after.inputs:
                raise InvalidInputError(
                    f"Layer {before.name!r} has {before.outputs} outputs, but {after.name!r} takes {after.inputs} "
                    "inputs. Layers are given in the order in which they are applied."
                )

    def __call__(self, weights: Weights, data: Inputs) -> Outputs:
        """The data matrix after all layers."""
        return self.states(weights, data)[-1]

    def split(self, weights: Weights) -> tuple[Tensor, ...]:
        """The parameters of each layer."""
        return weights.split([layer.parameters for layer in self.layers])

    def states(self, weights: Weights, data: Inputs) -> list[Tensor]:
        """The data matrices Z_0 = X, Z_1, …, Z_L."""
        _require_data(self, weights, data)
        states = [data]
        for layer, own in zip(self.layers, self.split(weights), strict=True):
            states.append(layer(own, states[-1]))
        return states

    def certificates(self, bound: DataBound) -> list[Certificate]:
        """The certificate of each layer for the data that the layers before it can make."""
        found: list[Certificate] = []
        for layer in self.layers:
            found.append(layer.certificate(bound))
            bound = DataBound.of_radius(found[-1].size, bound.samples)
        return found

    def certificate(self, bound: DataBound) -> Certificate:
        """The certificates of the layers, composed."""
        return composed(self.certificates(bound))

    def unbounded_because(self, is_first: bool = False) -> str:
        """The reasons of its layers, each with the layer's name."""
        reasons = (
            (layer.name, layer.unbounded_because(is_first and place == 0)) for place, layer in enumerate(self.layers)
        )
        return "; ".join(f"{name}: {reason}" for name, reason in reasons if reason)


def composed(certificates: Sequence[Certificate]) -> Certificate:
    """The certificate of maps one after the other, the first one first."""
    return reduce(lambda inner, outer: outer.after(inner), certificates)


def product(*factors: float) -> float:
    """The product of bounds, where 0 (a map that does not depend on it at all) beats infinity."""
    return 0.0 if 0.0 in factors else math.prod(factors)


def _largest_eigenvalue(a: float, b: float, c: float) -> float:
    """Of [[a, b], [b, c]]."""
    return (a + c) / 2 + math.hypot((a - c) / 2, b) if math.isfinite(a + b + c) else math.inf


def _require_data(layer: Layer, weights: Tensor, data: Tensor) -> None:
    """Refuse data and parameters that do not fit the layer."""
    if data.ndim != 2 or data.shape[0] != layer.inputs or data.shape[1] < 1:
        raise InvalidInputError(
            f"The data matrix has shape {tuple(data.shape)}; features × samples was wanted with {layer.inputs} "
            "features and at least one sample. Transpose a batch of (samples, features)."
        )
    if weights.shape != (layer.parameters,):
        raise InvalidInputError(
            f"The parameters have shape {tuple(weights.shape)}; a vector of {layer.parameters} numbers was wanted, "
            "layer after layer, each matrix row first."
        )
