"""The tangent kernel as a linear operator: products, extreme eigenvalues, nothing of the kernel's size in memory."""

from typing import Unpack

import torch
from torch import nn

from skiplens.core.axes import Float, Tensor
from skiplens.core.untouched import untouched
from skiplens.derivatives.functional import saved_bytes_per_sample
from skiplens.derivatives.outputs import OutputChoice
from skiplens.derivatives.samples import Inputs
from skiplens.derivatives.tangent.options import TangentOptions
from skiplens.derivatives.tangent.problem import pose
from skiplens.derivatives.tangent.products import JacobianProducts
from skiplens.linalg.operator import SymmetricOperator


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
        self, model: nn.Module, inputs: Inputs, outputs: OutputChoice = "full", **options: Unpack[TangentOptions]
    ) -> None:
        """Check the model and its inputs once.

        Args:
            model: Any module.
            inputs: A tensor, a tuple of positional arguments or a mapping of keyword arguments.
            outputs: ``"full"``, ``"trace"`` or an index.
            **options: See `TangentOptions`.
        """
        with untouched(model):
            self._problem = pose(model, inputs, None, outputs, options)
            pure, samples = self._problem.pure, self._problem.left
            # Forward mode and two backward passes keep about three times what one backward pass keeps.
            chunk = self._problem.budget // (3 * saved_bytes_per_sample(pure, samples))
        self._products = JacobianProducts(pure, self._problem.coupled, max(1, min(samples.count, chunk)))

    @property
    def size(self) -> int:
        """Samples × outputs, or samples where outputs are summed or one is chosen."""
        selection = self._problem.selection
        return self._problem.left.count * (selection.count if selection.separate else 1)

    @property
    def dtype(self) -> torch.dtype:
        """Type of the kernel."""
        return self._problem.pure.dtype

    @property
    def device(self) -> torch.device:
        """Where the model lives."""
        return self._problem.pure.device

    def apply(self, block: Float[Tensor, "size vectors"]) -> Float[Tensor, "size vectors"]:
        """The kernel times each column of `block`; the model is left as it was."""
        with untouched(self._problem.pure.model):
            columns = [self._one(column) for column in block.unbind(1)]
        return torch.stack(columns, dim=1) if columns else torch.zeros_like(block)

    def _one(self, vector: Float[Tensor, " size"]) -> Float[Tensor, " size"]:
        selection, N = self._problem.selection, self._problem.left.count
        if selection.separate:
            return self._product(vector.reshape(N, -1), selection.indices).flatten()
        return torch.stack([self._product(vector[:, None], (o,)).flatten() for o in selection.indices]).sum(0)

    def _product(self, weights: Float[Tensor, "samples chosen"], chosen: tuple[int, ...]) -> Tensor:
        everywhere = weights.new_zeros((len(weights), self._problem.all_outputs))
        everywhere[:, list(chosen)] = weights
        direction = self._products.transposed(self._problem.left, everywhere)
        return self._products.forward(self._problem.left, direction)[:, list(chosen)].to(weights.dtype)
