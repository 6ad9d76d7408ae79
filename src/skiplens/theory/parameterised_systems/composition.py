"""Layers one after the other: a multilayer parameterised system, with its derivative by the chain rule."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.core.errors import InvalidInputError
from skiplens.theory.parameterised_systems.certificate import Certificate, DataBound
from skiplens.theory.parameterised_systems.layer import Layer, require_data


@dataclass(frozen=True)
class Composition(Layer):
    """f_L(θ_L) ∘ … ∘ f_1(θ_1); its parameters are those of its layers, the first layer's first."""

    layers: tuple[Layer, ...]
    name: str = "network"

    def __post_init__(self) -> None:
        """Refuse layers that do not fit together."""
        if not self.layers:
            raise InvalidInputError("A composition of no layers was asked for; give at least one layer.")
        for before, after in pairwise(self.layers):
            if before.outputs != after.inputs:
                raise InvalidInputError(
                    f"Layer {before.name!r} has {before.outputs} outputs, but {after.name!r} takes {after.inputs} "
                    "inputs. Layers are given in the order in which they are applied."
                )

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

    def __call__(
        self, weights: Float[Tensor, " params"], data: Float[Tensor, "inputs samples"]
    ) -> Float[Tensor, "outputs samples"]:
        """The data matrix after all layers."""
        require_data(self, weights, data)
        for layer, own in zip(self.layers, self.split(weights), strict=True):
            data = layer(own, data)
        return data

    def split(self, weights: Float[Tensor, " params"]) -> tuple[Tensor, ...]:
        """The parameters of each layer."""
        return weights.split([layer.parameters for layer in self.layers])

    def states(self, weights: Float[Tensor, " params"], data: Float[Tensor, "inputs samples"]) -> list[Tensor]:
        """The data matrices Z_0 = X, Z_1, …, Z_L."""
        require_data(self, weights, data)
        states = [data]
        for layer, own in zip(self.layers, self.split(weights), strict=True):
            states.append(layer(own, states[-1]))
        return states

    def parameter_derivative(
        self, weights: Float[Tensor, " params"], data: Float[Tensor, "inputs samples"]
    ) -> Float[Tensor, "rows params"]:
        """[D_1 F, …, D_L F] with D_l F = Jf_L ⋯ Jf_{l+1} Df_l (proposition 4.2)."""
        derivative = data.new_zeros(data.numel(), 0)
        for layer, own, Z in zip(self.layers, self.split(weights), self.states(weights, data)[:-1], strict=True):
            inner = _product(layer.input_jacobian(own, Z), derivative)
            derivative = torch.cat([inner, layer.parameter_derivative(own, Z)], dim=1)
        return derivative

    def input_jacobian(
        self, weights: Float[Tensor, " params"], data: Float[Tensor, "inputs samples"]
    ) -> Float[Tensor, "rows columns"]:
        """Jf_L ⋯ Jf_1."""
        jacobian = torch.eye(data.numel(), dtype=data.dtype, device=data.device)
        for layer, own, Z in zip(self.layers, self.split(weights), self.states(weights, data)[:-1], strict=True):
            jacobian = layer.input_jacobian(own, Z) @ jacobian
        return jacobian

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
    total = certificates[0]
    for certificate in certificates[1:]:
        total = certificate.after(total)
    return total


def _product(jacobian: Tensor, derivative: Tensor) -> Tensor:
    """Their product; where there are no parameters yet, no columns and no work."""
    return jacobian @ derivative if derivative.shape[1] else jacobian.new_zeros(jacobian.shape[0], 0)
