"""Dense matrices of a loss by torch.func on one flat vector of parameters: slow, obvious, no code of the library."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, hessian, jacrev, jvp
from torch.nn.attention import SDPBackend, sdpa_kernel


class FlatLoss:
    """The loss of all data as a function of one vector of the named parameters (all of them if none are named)."""

    def __init__(self, model: nn.Module, inputs: Any, loss: Callable[[Any], Tensor], names: list[str] | None = None):
        self.model, self.inputs, self.loss = model, inputs, loss
        every = dict(model.named_parameters())
        self.shapes = {name: every[name].shape for name in names or every}
        self.point = torch.cat([every[name].detach().reshape(-1) for name in self.shapes])

    def outputs(self, vector: Tensor) -> Any:
        sizes = [shape.numel() for shape in self.shapes.values()]
        parts = {n: p.view(s) for (n, s), p in zip(self.shapes.items(), vector.split(sizes), strict=True)}
        buffers = {name: buffer.clone() for name, buffer in self.model.named_buffers()}
        args, kwargs = ((), self.inputs) if isinstance(self.inputs, dict) else ((self.inputs,), {})
        return functional_call(self.model, {**parts, **buffers}, args, kwargs)

    def __call__(self, vector: Tensor) -> Tensor:
        return self.loss(self.outputs(vector))

    def hessian(self) -> Tensor:
        return hessian(self)(self.point)

    def gradient(self) -> Tensor:
        return grad(self)(self.point)

    def hessian_by_differences(self, step: float = 1e-5) -> Tensor:
        """Central differences of the gradient: relative error about step² plus rounding / step, so 1e-10.

        torch.func's second derivatives of batch norm in training mode are wrong by a third (torch 2.13).
        """

        def gradient(vector: Tensor) -> Tensor:
            leaf = vector.clone().requires_grad_()
            return torch.autograd.grad(self(leaf), leaf)[0]

        shifts = step * torch.eye(len(self.point))
        columns = [gradient(self.point + shift) - gradient(self.point - shift) for shift in shifts]
        return torch.stack(columns, 1) / (2 * step)

    def gauss_newton(self) -> Tensor:
        J = jacrev(lambda vector: self.outputs(vector).reshape(-1))(self.point)
        outputs = self.outputs(self.point)
        S = hessian(lambda flat: self.loss(flat.view_as(outputs)))(outputs.reshape(-1))
        return J.T @ S @ J

    def product(self, vector: Tensor) -> Tensor:
        """Forward over reverse, where the matrix would be too large."""
        with sdpa_kernel(SDPBackend.MATH):
            return jvp(grad(self), (self.point,), (vector,))[1]


def cross_entropy(targets: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda outputs: F.cross_entropy(outputs, targets)


def squared_error(targets: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda outputs: ((outputs - targets) ** 2).mean()
