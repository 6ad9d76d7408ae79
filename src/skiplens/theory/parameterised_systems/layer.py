"""A layer: a map of parameters and a whole data matrix, with exact derivatives in both.

Data matrices are features × samples, one sample a column, as in 'On skip connections and normalisation layers in deep
optimisation' (MacDonald et al. 2023); everywhere else in Skiplens a batch is its transpose. Matrices are vectorised row
first: entry (feature i, sample j) has the number i · samples + j.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.core.errors import InvalidInputError
from skiplens.theory.parameterised_systems.certificate import Certificate, DataBound


class Layer(ABC):
    """f(parameters, data): parameters are a vector, data a matrix of features × samples."""

    name: str

    @property
    @abstractmethod
    def inputs(self) -> int:
        """Features that enter."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Features that leave."""

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return 0

    @property
    def couples_samples(self) -> bool:
        """Whether the output of a sample depends on other samples, as in batch norm."""
        return False

    @abstractmethod
    def __call__(
        self, weights: Float[Tensor, " params"], data: Float[Tensor, "inputs samples"]
    ) -> Float[Tensor, "outputs samples"]:
        """The data matrix that leaves."""

    @abstractmethod
    def parameter_derivative(
        self, weights: Float[Tensor, " params"], data: Float[Tensor, "inputs samples"]
    ) -> Float[Tensor, "rows params"]:
        """Df: a row for each entry of the data matrix that leaves."""

    @abstractmethod
    def input_jacobian(
        self, weights: Float[Tensor, " params"], data: Float[Tensor, "inputs samples"]
    ) -> Float[Tensor, "rows columns"]:
        """Jf: a column for each entry of the data matrix that enters."""

    @abstractmethod
    def certificate(self, bound: DataBound) -> Certificate:
        """Bounds over all parameters and over all data within `bound`."""

    def unbounded_because(self, is_first: bool = False) -> str:
        """Why derivatives of this layer are unbounded, or '' if they are not.

        Args:
            is_first: Whether its data are fixed, so that only the derivative in the parameters counts.
        """
        return ""

    def parameter_jvp(self, weights: Tensor, data: Tensor, direction: Float[Tensor, " params"]) -> Tensor:
        """Df times a direction, as a data matrix."""
        return _jvp(lambda w: self(w, data), weights, direction)

    def parameter_vjp(self, weights: Tensor, data: Tensor, direction: Tensor) -> Float[Tensor, " params"]:
        """Dfᵀ times a data matrix."""
        return _vjp(lambda w: self(w, data), weights, direction)

    def input_jvp(self, weights: Tensor, data: Tensor, direction: Tensor) -> Tensor:
        """Jf times a data matrix, as a data matrix."""
        return _jvp(lambda Z: self(weights, Z), data, direction)

    def input_vjp(self, weights: Tensor, data: Tensor, direction: Tensor) -> Tensor:
        """Jfᵀ times a data matrix, as a data matrix."""
        return _vjp(lambda Z: self(weights, Z), data, direction)

    def no_parameters(self, data: Float[Tensor, "inputs samples"]) -> Float[Tensor, "rows none"]:
        """The parameter derivative of a layer without parameters: no columns."""
        return data.new_zeros(self.outputs * data.shape[1], 0)


def require_data(layer: Layer, weights: Tensor, data: Tensor) -> None:
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


def _vjp(function: Callable[[Tensor], Tensor], point: Tensor, direction: Tensor) -> Tensor:
    pull: Any = torch.func.vjp(function, point)[1]
    return pull(direction)[0]


def _jvp(function: Callable[[Tensor], Tensor], point: Tensor, direction: Tensor) -> Tensor:
    """J v as the derivative of u -> Jᵀ u, which is linear: every operation has a vjp, some have no jvp."""
    return _vjp(lambda u: _vjp(function, point, u), torch.zeros_like(function(point)), direction)
