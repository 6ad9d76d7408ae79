"""The curvature of one batch's loss: graphs that are built once and multiplied with many vectors."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from skiplens.base.errors import InvalidInputError, NotReachedError, NotTwiceDifferentiableError
from skiplens.base.memory import is_shortage
from skiplens.curvature.problem import Objective, require_scalar
from skiplens.graph.batch import Batch
from skiplens.graph.functional import main_output, nodes_behind, saved_tensors

Tensors = Sequence[Tensor]
_MISSING = re.compile(r"derivative for '?(?:aten::)?(?P<operation>\w+)'? is not implemented")


class BatchCurvature(ABC):
    """A symmetric matrix over the parameters that belongs to one batch; it holds the graph of a backward pass."""

    @abstractmethod
    def product(self, vectors: Tensors, batched: bool) -> list[Tensor]:
        """The matrix times vectors given by parameter; `batched` ones have a first axis, the probes."""


class HessianCurvature(BatchCurvature):
    """Second derivatives of the batch's loss: the gradient with its graph, differentiated again for each vector."""

    def __init__(self, objective: Objective, batch: Batch) -> None:
        self._leaves = objective.leaves()
        loss = require_graph(objective.total(objective.outputs(self._leaves, batch), batch))
        self.gradient = _gradients([loss], self._leaves, None, create_graph=True)

    def product(self, vectors: Tensors, batched: bool) -> list[Tensor]:
        """Reverse over reverse: the gradient of ⟨gradient, vector⟩."""
        return _gradients(self.gradient, self._leaves, vectors, batched=batched)


class GaussNewtonCurvature(BatchCurvature):
    """JᵀSJ with the Jacobian J of the outputs and the Hessian S of the loss at the outputs.

    J times a vector is the derivative of Jᵀw with respect to w, which needs the same graph as Jᵀ and no forward mode.
    """

    def __init__(self, objective: Objective, batch: Batch) -> None:
        self._leaves = objective.leaves()
        parts, structure = tree_flatten(objective.outputs(self._leaves, batch))
        places = [i for i, part in enumerate(parts) if isinstance(part, Tensor) and part.requires_grad]
        self._outputs = [parts[place] for place in places]
        self._cut = [tensor.detach().requires_grad_() for tensor in self._outputs]
        for place, tensor in zip(places, self._cut, strict=True):
            parts[place] = tensor
        loss = require_graph(objective.total(tree_unflatten(parts, structure), batch))
        self._slopes = _gradients([loss], self._cut, None, create_graph=True)
        self._weights, self._pulled = _transposed(self._outputs, self._leaves)

    def product(self, vectors: Tensors, batched: bool) -> list[Tensor]:
        """Outputs forward, loss twice, parameters backward."""
        changes = _gradients(self._pulled, self._weights, vectors, batched=batched)
        slopes = _gradients(self._slopes, self._cut, changes, batched=batched)
        return _gradients(self._outputs, self._leaves, slopes, batched=batched)


class EmpiricalFisherCurvature(BatchCurvature):
    """Σ g gᵀ over the gradients g of the samples' losses: JᵀJ with the losses as outputs."""

    def __init__(self, objective: Objective, batch: Batch) -> None:
        self._leaves = objective.leaves()
        self._losses = objective.rule.each(main_output(objective.outputs(self._leaves, batch)), batch.targets)
        require_graph(require_scalar(self._losses.sum()))
        self._weights, self._pulled = _transposed([self._losses], self._leaves)

    def product(self, vectors: Tensors, batched: bool) -> list[Tensor]:
        """Losses forward, parameters backward."""
        changes = _gradients(self._pulled, self._weights, vectors, batched=batched)
        return _gradients([self._losses], self._leaves, changes, batched=batched)


def _transposed(outputs: list[Tensor], leaves: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Weights w and Jᵀw with its graph in w, from which J times a vector is one backward pass."""
    weights = [torch.zeros_like(tensor, requires_grad=True) for tensor in outputs]
    return weights, _gradients(outputs, leaves, weights, create_graph=True)


def require_graph(loss: Tensor) -> Tensor:
    """The loss, refused where no gradient flows through it."""
    if not loss.requires_grad:
        raise NotReachedError(
            "The loss does not depend on the chosen parameters through differentiable operations: look for .detach(), "
            ".item(), argmax or torch.no_grad() in the model or the loss, or choose other parameters."
        )
    return loss


def _gradients(
    outputs: Tensors, inputs: Tensors, weights: Tensors | None, batched: bool = False, create_graph: bool = False
) -> list[Tensor]:
    """The gradient of Σ⟨output, weight⟩; zero where an input has no part in it. The graph stays."""
    used = [i for i, output in enumerate(outputs) if output.requires_grad]
    found: Sequence[Tensor | None] = [None] * len(inputs)
    if used:
        chosen = None if weights is None else [weights[i] for i in used]
        how = {"retain_graph": True, "create_graph": create_graph, "is_grads_batched": batched, "allow_unused": True}
        found = torch.autograd.grad([outputs[i] for i in used], inputs, chosen, **how)
    # torch's own zeros would lack the axis of the vectors
    probes = () if weights is None or not batched else weights[0].shape[:1]
    zeros = (tensor.new_zeros((*probes, *tensor.shape)) for tensor in inputs)
    return [zero if gradient is None else gradient for gradient, zero in zip(found, zeros, strict=True)]


Differentiate = Callable[[Objective, Batch], BatchCurvature]  # makes the curvature of a batch


def graph_bytes_per_sample(differentiate: Differentiate, objective: Objective, batch: Batch) -> int:
    """Bytes that the graph keeps for each sample, measured on a few; refused where a second derivative is missing."""
    own, few = [value for _, value in objective.pure.aliases.values()], batch.first(4)
    made: list[BatchCurvature] = []

    def kept_of(few: Batch) -> int:
        return sum(saved_tensors(lambda: made.append(differentiate(objective, few)), own))

    try:
        kept = kept_of(few)
    except (InvalidInputError, RuntimeError) as error:
        if is_shortage(error):
            raise
        few = batch  # model or loss may want whole batches; what they do not want either is reported by this call
        kept = kept_of(few)
    _require_twice(made[-1], objective, few)
    return kept // few.samples + 1


def _require_twice(curvature: BatchCurvature, objective: Objective, few: Batch) -> None:
    """Refuse a graph that cannot be differentiated again; autograd names the operation, a second look the module.

    An operation marked once_differentiable does not always raise: its second derivative may silently be missing.
    """
    loss = objective.total(objective.outputs(objective.leaves(), few), few)
    for node in nodes_behind([loss]):
        backward: Any = getattr(getattr(node, "_forward_cls", None), "backward", None)
        if hasattr(backward, "__wrapped__") and backward.__code__.co_filename == torch.autograd.function.__file__:
            raise _refused(type(node).__name__.removesuffix("Backward"), objective, few)
    try:
        curvature.product([torch.ones_like(value) for value in objective.pure.parameters.values()], batched=False)
    except (RuntimeError, NotImplementedError) as error:
        found = _MISSING.search(str(error))
        if found is None:
            raise
        raise _refused(found["operation"], objective, few) from error


def _refused(operation: str, objective: Objective, few: Batch) -> NotTwiceDifferentiableError:
    name = operation.strip("_").removesuffix("_backward")
    where = module_of_node(name, objective, few)
    return NotTwiceDifferentiableError(
        f"The operation {name!r} {where} has no second derivative in torch, and Hessian products need one. Replace it "
        "by operations that have one (for attention, the plain formula), or choose parameters that come after it."
    )


def module_of_node(operation: str, objective: Objective, batch: Batch) -> str:
    """Where the first node of an operation was made, in words: ``"in module 'head' (Linear)"`` or ``"of the loss"``.

    What has appeared in the graph since the last look belongs to the innermost of the modules that are running.
    """
    names = {module: name for name, module in objective.pure.model.named_modules()}
    running: list[nn.Module] = []
    seen: set[Any] = set()
    found: list[nn.Module] = []

    def look(values: Any) -> None:
        for node in nodes_behind([leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)], seen):
            if plain(node.name()).startswith(plain(operation)):
                found.append(running[-1])

    def plain(name: str) -> str:
        return name.replace("_", "").lower()

    def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
        if running:
            look((args, kwargs))
        running.append(module)

    def leave(module: nn.Module, args: Any, output: Any) -> None:
        look(output)
        running.pop()

    with ExitStack() as hooks:
        for module in names:
            hooks.enter_context(module.register_forward_pre_hook(enter, with_kwargs=True))
            hooks.enter_context(module.register_forward_hook(leave))
        objective.outputs(objective.leaves(), batch)
    if not found:
        return "of the loss"
    name, kind = names[found[0]], type(found[0]).__name__
    return f"in module {name!r} ({kind})" if name else f"in the model ({kind})"
