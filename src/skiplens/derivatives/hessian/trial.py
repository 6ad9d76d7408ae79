"""One product on a few samples, before anything large is done: what graphs take, and that they go twice."""

import re
from typing import Any

import torch

from skiplens.core.axes import Tensor
from skiplens.core.errors import InvalidInputError, NotTwiceDifferentiableError
from skiplens.data.batch import Batch
from skiplens.derivatives.hessian.curvature import BatchCurvature, Differentiate
from skiplens.derivatives.hessian.objective import Objective
from skiplens.derivatives.hessian.provenance import module_of_node, nodes_behind

_MISSING = re.compile(r"derivative for '?(?:aten::)?(?P<operation>\w+)'? is not implemented")


def graph_bytes_per_sample(differentiate: Differentiate, objective: Objective, batch: Batch) -> int:
    """Bytes that the graph keeps for each sample, measured on a few; refused where a second derivative is missing."""
    few = batch.first(4)
    try:
        curvature, kept = _built(differentiate, objective, few)
    except InvalidInputError:  # a model may want whole batches; what it does not want either is told by this call
        few = batch
        curvature, kept = _built(differentiate, objective, few)
    _require_twice(curvature, objective, few)
    return kept // few.samples + 1


def _built(differentiate: Differentiate, objective: Objective, few: Batch) -> tuple[BatchCurvature, int]:
    own = {value.data_ptr() for _, value in objective.pure.aliases.values()}
    sizes: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        if tensor.data_ptr() not in own:
            sizes[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        curvature = differentiate(objective, few)
    return curvature, sum(sizes.values())


def _require_twice(curvature: BatchCurvature, objective: Objective, few: Batch) -> None:
    """Refuse a graph that cannot be differentiated again; autograd tells the operation, a second look the module.

    An operation marked once_differentiable does not always raise: its second derivative may silently be missing.
    """
    loss = objective.total(objective.outputs(objective.leaves(), few), few)
    once = [node for node in nodes_behind([loss]) if _goes_once(node)]
    if once:
        raise _refused(type(once[0]).__name__.removesuffix("Backward"), objective, few)
    try:
        curvature.product([torch.ones_like(value) for value in objective.pure.parameters.values()], batched=False)
    except (RuntimeError, NotImplementedError) as error:
        found = _MISSING.search(str(error))
        if found is None:
            raise
        raise _refused(found["operation"], objective, few) from error


def _goes_once(node: Any) -> bool:
    backward: Any = getattr(getattr(node, "_forward_cls", None), "backward", None)
    return hasattr(backward, "__wrapped__") and backward.__code__.co_filename == torch.autograd.function.__file__


def _refused(operation: str, objective: Objective, few: Batch) -> NotTwiceDifferentiableError:
    name = operation.strip("_").removesuffix("_backward")
    where = module_of_node(name, objective, few)
    return NotTwiceDifferentiableError(
        f"The operation {name!r} {where} has no second derivative in torch, and Hessian products need one. Replace it "
        "by operations that have one (for attention, the plain formula), or choose parameters that come after it."
    )
