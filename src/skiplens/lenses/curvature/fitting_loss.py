"""Which loss belongs to outputs and targets: cross-entropy for classes, the mean square for numbers."""

import torch
from torch import Tensor

from skiplens.core.errors import InvalidInputError
from skiplens.data.batch import Batch

_WANTED = (
    "The curvature lens takes cross-entropy where targets are whole numbers, one for each row of scores, and the mean "
    "square where they are real numbers, one for each output. Bring the targets to one of these forms, or call "
    "skiplens.hessian_spectrum with a loss of your own."
)
_IGNORED = -100  # what torch and Hugging Face write for targets that do not count


def fitted(outputs: Tensor, batch: Batch) -> tuple[str, Batch]:
    """The name of the loss and the batch with targets in the form that it takes."""
    targets = batch.targets
    if targets.is_floating_point() or _is_one_number(outputs, targets):
        if targets.numel() != outputs.numel():
            raise _misfit(outputs, targets)
        return "mse", Batch(batch.inputs, targets.reshape(outputs.shape).to(outputs.dtype))
    _require_classes(outputs, targets)
    return "cross_entropy", Batch(batch.inputs, targets.long())


def _is_one_number(outputs: Tensor, targets: Tensor) -> bool:
    """One output for each whole number: a regression, for cross-entropy over one class is always zero."""
    return targets.ndim == 1 and outputs.numel() == targets.numel() and targets.dtype != torch.bool


def _require_classes(outputs: Tensor, targets: Tensor) -> None:
    forms = {tuple(outputs.shape[:1] + outputs.shape[2:]): 1, tuple(outputs.shape[:-1]): outputs.ndim - 1}
    axis = forms.get(tuple(targets.shape)) if outputs.ndim > 1 else None
    if axis is None or targets.dtype == torch.bool:
        raise _misfit(outputs, targets)
    classes, counting = outputs.shape[axis], targets[targets != _IGNORED]
    least, most = (int(counting.min()), int(counting.max())) if counting.numel() else (0, 0)
    if not 0 <= least <= most < classes:
        raise InvalidInputError(
            f"The targets run from {least} to {most}, but the model has {classes} outputs: "
            f"classes run from 0 to {classes - 1}. Number the classes from 0, or use a model with more outputs."
        )


def _misfit(outputs: Tensor, targets: Tensor) -> InvalidInputError:
    kind = str(targets.dtype).removeprefix("torch.")
    return InvalidInputError(
        f"Targets of shape {tuple(targets.shape)} and type {kind} do not fit outputs of shape {tuple(outputs.shape)}. "
        f"{_WANTED}"
    )
