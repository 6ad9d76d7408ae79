"""The curvature of one batch's loss: graphs that are built once and multiplied with many vectors."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from skiplens.core.axes import Tensor
from skiplens.core.errors import InvalidInputError
from skiplens.data.batch import Batch
from skiplens.derivatives.hessian.objective import Objective, require_scalar
from skiplens.derivatives.outputs import main_output


class BatchCurvature(ABC):
    """A symmetric matrix over the parameters that belongs to one batch; it holds the graph of a backward pass."""

    loss: Tensor
    """The batch's part of the loss, before the division by all shares."""

    @abstractmethod
    def product(self, vectors: Sequence[Tensor], batched: bool) -> list[Tensor]:
        """The matrix times vectors given by parameter; `batched` ones have a first axis, the probes."""


class HessianCurvature(BatchCurvature):
    """Second derivatives of the batch's loss: the gradient with its graph, differentiated again for each vector."""

    def __init__(self, objective: Objective, batch: Batch) -> None:
        self._leaves = objective.leaves()
        self.loss = objective.total(objective.outputs(self._leaves, batch), batch)
        require_graph(self.loss)
        self.gradient = _gradients([self.loss], self._leaves, None, create_graph=True)

    def product(self, vectors: Sequence[Tensor], batched: bool) -> list[Tensor]:
        """Reverse over reverse: the gradient of ⟨gradient, vector⟩."""
        return _gradients(self.gradient, self._leaves, vectors, batched=batched)


class GaussNewtonCurvature(BatchCurvature):
    """JᵀSJ with the Jacobian J of the outputs and the Hessian S of the loss at the outputs.

    J times a vector is the derivative of Jᵀw with respect to w, which needs the same graph as Jᵀ and no forward mode.
    """

    def __init__(self, objective: Objective, batch: Batch) -> None:
        self._leaves = objective.leaves()
        returned = objective.outputs(self._leaves, batch)
        self._outputs, rebuild = differentiable_parts(returned)
        self._cut = [tensor.detach().requires_grad_() for tensor in self._outputs]
        self.loss = objective.total(rebuild(self._cut), batch)
        require_graph(self.loss)
        self._slopes = _gradients([self.loss], self._cut, None, create_graph=True)
        self._pull = _Transposed(self._outputs, self._leaves)

    def product(self, vectors: Sequence[Tensor], batched: bool) -> list[Tensor]:
        """Outputs forward, loss twice, parameters backward."""
        changes = self._pull.forward(vectors, batched)
        slopes = _gradients(self._slopes, self._cut, changes, batched=batched)
        return _gradients(self._outputs, self._leaves, slopes, batched=batched)


class EmpiricalFisherCurvature(BatchCurvature):
    """Σ g gᵀ over the gradients g of the samples' losses: JᵀJ with the losses as outputs."""

    def __init__(self, objective: Objective, batch: Batch) -> None:
        self._leaves = objective.leaves()
        outputs = main_output(objective.outputs(self._leaves, batch))
        self._losses = objective.rule.each(outputs, batch.targets)
        self.loss = require_scalar(self._losses.sum())
        require_graph(self.loss)
        self._pull = _Transposed([self._losses], self._leaves)

    def product(self, vectors: Sequence[Tensor], batched: bool) -> list[Tensor]:
        """Losses forward, parameters backward."""
        return _gradients([self._losses], self._leaves, self._pull.forward(vectors, batched), batched=batched)


class _Transposed:
    """Jᵀw with its graph in w, from which J times a vector is one backward pass."""

    def __init__(self, outputs: list[Tensor], leaves: list[Tensor]) -> None:
        self._weights = [torch.zeros_like(tensor, requires_grad=True) for tensor in outputs]
        self._pulled = _gradients(outputs, leaves, self._weights, create_graph=True)

    def forward(self, vectors: Sequence[Tensor], batched: bool) -> list[Tensor]:
        """J times the vectors."""
        return _gradients(self._pulled, self._weights, vectors, batched=batched)


def differentiable_parts(outputs: Any) -> tuple[list[Tensor], Callable[[list[Tensor]], Any]]:
    """The tensors of a model's outputs that depend on its parameters, and how to put others in their places."""
    leaves, structure = tree_flatten(outputs)
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor) and leaf.requires_grad]

    def rebuild(tensors: list[Tensor]) -> Any:
        changed = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            changed[place] = tensor
        return tree_unflatten(changed, structure)

    return [leaves[place] for place in places], rebuild


def require_graph(loss: Tensor) -> None:
    """Refuse a loss that no gradient flows through."""
    if not loss.requires_grad:
        raise InvalidInputError(
            "The loss does not depend on the chosen parameters through differentiable operations: look for .detach(), "
            ".item(), argmax or torch.no_grad() in the model or the loss, or choose other parameters."
        )


def _gradients(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    weights: Sequence[Tensor] | None,
    batched: bool = False,
    create_graph: bool = False,
) -> list[Tensor]:
    """The gradient of Σ⟨output, weight⟩; zero where an input has no part in it. The graph stays."""
    used = [i for i, output in enumerate(outputs) if output.requires_grad]
    chosen = None if weights is None else [weights[i] for i in used]
    if not used:
        probes = () if weights is None or not batched else weights[0].shape[:1]
        return [tensor.new_zeros((*probes, *tensor.shape)) for tensor in inputs]
    return list(
        torch.autograd.grad(
            [outputs[i] for i in used],
            inputs,
            chosen,
            retain_graph=True,
            create_graph=create_graph,
            is_grads_batched=batched,
            allow_unused=True,
            materialize_grads=True,
        )
    )


Differentiate = Callable[[Objective, Batch], BatchCurvature]
"""Makes the curvature of a batch."""
