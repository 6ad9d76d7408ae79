"""The training loss γ(F(θ)) with its derivatives."""

from dataclasses import dataclass

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.core.errors import InvalidInputError
from skiplens.theory.parameterised_systems import Layer, ParameterFunctionMap
from skiplens.theory.smoothness.costs import Cost


@dataclass(frozen=True, eq=False)
class TrainingLoss:
    """θ -> γ(F(θ, X)) for one data matrix X of features × samples."""

    system: Layer
    data: Float[Tensor, "features samples"]
    cost: Cost

    def __post_init__(self) -> None:
        """Refuse a cost of another number of samples."""
        if self.cost.samples != self.data.shape[1]:
            raise InvalidInputError(
                f"The data matrix has {self.data.shape[1]} columns, the cost {self.cost.samples} targets; one target a "
                "sample was wanted. Data matrices are features × samples."
            )

    @property
    def function(self) -> ParameterFunctionMap:
        """θ -> F(θ, X)."""
        return ParameterFunctionMap(self.system, self.data)

    def __call__(self, parameters: Float[Tensor, " params"]) -> Float[Tensor, ""]:
        """The loss."""
        return self.cost(self.system(parameters, self.data))

    def with_gradient(self, parameters: Float[Tensor, " params"]) -> tuple[Tensor, Tensor]:
        """The loss and its gradient."""
        variable = parameters.detach().requires_grad_()
        value = self(variable)
        return value.detach(), torch.autograd.grad(value, variable)[0]

    def hessian(self, parameters: Float[Tensor, " params"]) -> Float[Tensor, "params params"]:
        """The Hessian as a matrix."""
        return torch.func.jacrev(torch.func.jacrev(self))(parameters)

    def hessian_product(self, parameters: Float[Tensor, " params"], direction: Tensor) -> Float[Tensor, " params"]:
        """The Hessian times a vector, without forming it."""
        variable = parameters.detach().requires_grad_()
        gradient = torch.autograd.grad(self(variable), variable, create_graph=True)[0]
        return torch.autograd.grad(gradient @ direction, variable)[0]
