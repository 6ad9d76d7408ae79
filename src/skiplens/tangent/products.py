"""Products with the tangent kernel, J (Jᵀ v), one backward and one forward-mode pass; nothing of size N × P is kept."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.func import jvp

from skiplens.base import Float, require_least
from skiplens.base.preserve_state import preserve_state
from skiplens.graph.functional import OutputChoice, ParameterChoice, PureModel, saved_bytes_per_sample, transformable
from skiplens.graph.inputs import Inputs, Samples
from skiplens.linalg.operator import SymmetricOperator
from skiplens.tangent.problem import Problem, make_problem


class NTKOperator(SymmetricOperator):
    """The kernel of `empirical_ntk(model, inputs, outputs=outputs)` as a symmetric operator.

    With ``outputs="full"`` (the default) its vectors have samples × outputs entries, output by output within a sample;
    else one entry a sample. A product costs a backward and a forward-mode pass over all samples (that many for each
    output with ``"trace"``).

    Examples:
        >>> kernel = NTKOperator(nn.Linear(3, 2, bias=False), torch.eye(3))
        >>> torch.equal(kernel @ torch.ones(6), torch.ones(6))
        True
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: Inputs,
        *,
        outputs: OutputChoice = "full",
        parameters: ParameterChoice = None,
        memory: int | None = None,
    ) -> None:
        """Check the model and its inputs once.

        Args:
            model: Any module.
            inputs: A tensor, a tuple of positional arguments or a mapping of keyword arguments.
            outputs: ``"full"``, ``"trace"`` or an index.
            parameters: Names of the parameters to differentiate, or a test on names; all that require a gradient if
                not given.
            memory: Bytes that may be used; half of what is free if not given.
        """
        with preserve_state(model):
            self._problem = make_problem(model, inputs, None, outputs, parameters, memory=memory)
            pure, samples = self._problem.pure, self._problem.left
            # Forward mode and two backward passes keep about three times what one backward pass keeps.
            each = 3 * saved_bytes_per_sample(pure, samples)
            require_least(memory, each * (samples.count if self._problem.coupled else 1), "a product with the kernel")
            chunk = self._problem.budget // each
        self._products = JacobianProducts(pure, self._problem.coupled, max(1, min(samples.count, chunk)))
        selection = self._problem.selection
        self.size = samples.count * (selection.count if selection.separate else 1)
        self.dtype, self.device = pure.dtype, pure.device

    def apply(self, block: Float[Tensor, "size vectors"]) -> Float[Tensor, "size vectors"]:
        """The kernel times each column of `block`; the model is left as it was."""
        selection, columns = self._problem.selection, []
        runs = [selection.indices] if selection.separate else [(output,) for output in selection.indices]
        with preserve_state(self._problem.pure.model):
            for vector in block.unbind(1):
                weights = vector.reshape(self._problem.left.count, -1)
                columns.append(torch.stack([self._product(weights, run).flatten() for run in runs]).sum(0))
        return torch.stack(columns, dim=1) if columns else torch.zeros_like(block)

    def _product(self, weights: Float[Tensor, "samples chosen"], chosen: tuple[int, ...]) -> Tensor:
        everywhere = weights.new_zeros((len(weights), self._problem.all_outputs))
        everywhere[:, list(chosen)] = weights
        direction = self._products.transposed(self._problem.left, everywhere)
        return self._products.forward(self._problem.left, direction)[:, list(chosen)].to(weights.dtype)


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


class JacobianProducts:
    """The Jacobian of all outputs of all samples and its transpose, as products with vectors.

    Samples go through in chunks, or all at once where they are coupled.
    """

    def __init__(self, pure: PureModel, coupled: bool, chunk: int) -> None:
        self.pure, self.coupled, self.chunk = pure, coupled, chunk

    def transposed(self, samples: Samples, weights: Float[Tensor, "samples outputs"]) -> dict[str, Tensor]:
        """Jᵀ times `weights`: one entry for each parameter."""
        total = {name: torch.zeros_like(parameter) for name, parameter in self.pure.parameters.items()}
        for where, chunk in samples.chunks(samples.count if self.coupled else self.chunk):
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
        chunks = samples.chunks(samples.count if self.coupled else self.chunk)
        with transformable():
            return torch.cat([self._forward(chunk, dict(direction)) for _, chunk in chunks])

    def _forward(self, chunk: Samples, direction: dict[str, Tensor]) -> Tensor:
        try:
            return jvp(lambda p: self.pure(p, chunk), (dict(self.pure.parameters),), (direction,))[1].detach()
        except (RuntimeError, NotImplementedError):  # an operation without a forward-mode formula
            return self._forward_by_two_backward_passes(chunk, direction)

    def _forward_by_two_backward_passes(self, chunk: Samples, direction: dict[str, Tensor]) -> Tensor:
        """Jᵀw is linear in w, so the gradient of ⟨Jᵀw, direction⟩ with respect to w is J times direction."""
        leaves = self.pure.leaves()
        # cuDNN's recurrent layers can be differentiated only once.
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            outputs = self.pure(leaves, chunk)
            w = torch.zeros_like(outputs, requires_grad=True)
            gradients = torch.autograd.grad(outputs, list(leaves.values()), w, create_graph=True, allow_unused=True)
            pairs = zip(gradients, direction.values(), strict=True)
            product = torch.stack([(g * d).sum() for g, d in pairs if g is not None]).sum()
        return torch.autograd.grad(product, w)[0].detach()
