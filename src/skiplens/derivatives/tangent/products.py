"""Products with the tangent kernel, J (Jᵀ v), one backward and one forward-mode pass; nothing of size N × P is kept."""

from collections.abc import Mapping

import torch
from torch.func import jvp

from skiplens.core.axes import Float, Tensor
from skiplens.derivatives.functional import PureModel, transformable
from skiplens.derivatives.samples import Samples
from skiplens.derivatives.tangent.problem import Problem


class JacobianProducts:
    """The Jacobian of all outputs of all samples and its transpose, as products with vectors.

    Samples go through in chunks, or all at once where they are coupled.
    """

    def __init__(self, pure: PureModel, coupled: bool, chunk: int) -> None:
        self.pure, self.coupled, self.chunk = pure, coupled, chunk

    def transposed(self, samples: Samples, weights: Float[Tensor, "samples outputs"]) -> dict[str, Tensor]:
        """Jᵀ times `weights`: one entry for each parameter."""
        total = {name: torch.zeros_like(parameter) for name, parameter in self.pure.parameters.items()}
        for where, chunk in samples.chunks(self._chunk(samples)):
            leaves = self.pure.leaves()
            with torch.enable_grad():
                outputs = self.pure(leaves, chunk)
                weighted = (outputs * weights[where].to(outputs.dtype)).sum()
            gradients = torch.autograd.grad(weighted, list(leaves.values()), allow_unused=True)
            for name, gradient in zip(leaves, gradients, strict=True):
                if gradient is not None:
                    total[name] += gradient
        return total

    def forward(self, samples: Samples, direction: Mapping[str, Tensor]) -> Float[Tensor, "samples outputs"]:
        """J times `direction`."""
        with transformable():
            parts = [self._forward(chunk, dict(direction)) for _, chunk in samples.chunks(self._chunk(samples))]
        return torch.cat(parts)

    def _forward(self, chunk: Samples, direction: dict[str, Tensor]) -> Tensor:
        try:
            return jvp(lambda p: self.pure(p, chunk), (dict(self.pure.parameters),), (direction,))[1].detach()
        except (RuntimeError, NotImplementedError):  # an operation without a forward-mode formula
            return self._forward_by_two_backward_passes(chunk, direction)

    def _forward_by_two_backward_passes(self, chunk: Samples, direction: dict[str, Tensor]) -> Tensor:
        """Jᵀw is linear in w, so the gradient of ⟨Jᵀw, direction⟩ by w is J times direction."""
        leaves = self.pure.leaves()
        # cuDNN's recurrent layers can be differentiated only once.
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            outputs = self.pure(leaves, chunk)
            w = torch.zeros_like(outputs, requires_grad=True)
            gradients = torch.autograd.grad(outputs, list(leaves.values()), w, create_graph=True, allow_unused=True)
            pairs = zip(gradients, direction.values(), strict=True)
            product = torch.stack([(g * d).sum() for g, d in pairs if g is not None]).sum()
        return torch.autograd.grad(product, w)[0].detach()

    def _chunk(self, samples: Samples) -> int:
        return samples.count if self.coupled else min(self.chunk, samples.count)


def kernel_by_products(problem: Problem) -> Tensor:
    """The whole kernel, column by column: a check of all other algorithms, in forward mode."""
    products = JacobianProducts(problem.pure, problem.coupled, chunk=16)
    right = problem.left if problem.right is None else problem.right
    chosen, N, M = list(problem.selection.indices), problem.left.count, right.count
    kernel = problem.like.new_zeros((N, len(chosen), M, len(chosen)))
    for m in range(M):
        for column, output in enumerate(chosen):
            weights = kernel.new_zeros((M, problem.all_outputs))
            weights[m, output] = 1
            kernel[:, :, m, column] = products.forward(problem.left, products.transposed(right, weights))[:, chosen]
        problem.progress("tangent kernel", m + 1, M)
    return kernel if problem.selection.separate else torch.einsum("nomo->nm", kernel)
