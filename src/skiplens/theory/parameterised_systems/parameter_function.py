"""The parameter-function map θ -> F(θ, X) on fixed data, and its derivative as an operator."""

from dataclasses import dataclass

from skiplens.core.axes import Float, Tensor
from skiplens.theory.parameterised_systems.layer import Layer, require_data


@dataclass(frozen=True, eq=False)
class ParameterDerivative:
    """DF at one point: products with vectors, and the matrix itself where it is asked for."""

    system: Layer
    data: Float[Tensor, "features samples"]
    parameters: Float[Tensor, " params"]

    @property
    def shape(self) -> tuple[int, int]:
        """Entries of the output, and parameters."""
        return self.system.outputs * self.data.shape[1], self.system.parameters

    def __matmul__(self, direction: Float[Tensor, " params"]) -> Float[Tensor, " rows"]:
        """DF times a change of the parameters: the change of the outputs, row first."""
        return self.system.parameter_jvp(self.parameters, self.data, direction).flatten()

    def adjoint(self, outputs: Float[Tensor, " rows"]) -> Float[Tensor, " params"]:
        """DFᵀ times a vector of the outputs."""
        matrix = outputs.reshape(self.system.outputs, -1)
        return self.system.parameter_vjp(self.parameters, self.data, matrix)

    def dense(self) -> Float[Tensor, "rows params"]:
        """The matrix, assembled layer by layer (proposition 4.2)."""
        return self.system.parameter_derivative(self.parameters, self.data)


@dataclass(frozen=True, eq=False)
class ParameterFunctionMap:
    """θ -> F(θ, X) for one data matrix X of features × samples."""

    system: Layer
    data: Float[Tensor, "features samples"]

    def __call__(self, parameters: Float[Tensor, " params"]) -> Float[Tensor, "outputs samples"]:
        """The outputs for these parameters."""
        require_data(self.system, parameters, self.data)
        return self.system(parameters, self.data)

    def derivative(self, parameters: Float[Tensor, " params"]) -> ParameterDerivative:
        """DF at these parameters."""
        require_data(self.system, parameters, self.data)
        return ParameterDerivative(self.system, self.data, parameters)
