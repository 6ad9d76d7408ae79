"""The losses that a recipe can name."""

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from skiplens.core.errors import InvalidInputError
from skiplens.core.named import call_named
from skiplens.core.nearest import did_you_mean
from skiplens.data.batch import Batch
from skiplens.derivatives.outputs import main_output

Loss = Callable[[Tensor, Tensor], Tensor]
"""A scalar from outputs and targets, a mean over samples."""

FROM_MODEL = "model"
"""The name that says that the model itself returns its loss."""


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean over all entries of (output − target)²."""
    return F.mse_loss(outputs, _fitting(targets, outputs))


def half_squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """‖outputs − targets‖² / (2 · samples): the loss of 'Demystifying ResNet'."""
    return (outputs - _fitting(targets, outputs)).square().sum() / (2 * len(outputs))


LOSSES: dict[str, Loss] = {
    "cross_entropy": F.cross_entropy,
    "mse": squared_error,
    "half_squared_error": half_squared_error,
}


def output_loss(name: str) -> Loss:
    """The loss called `name` as a function of outputs and targets; a loss that the model returns itself is refused."""
    if name == FROM_MODEL:
        raise InvalidInputError(
            "The recipe takes the loss from the model, but here it is needed as a function of outputs and targets. "
            "Name a loss, such as 'cross_entropy'."
        )
    return _named(name)


class LossFunction:
    """The loss called `name` as a function of a model and a batch."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._loss = None if name == FROM_MODEL else _named(name)

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        """The scalar loss, with its graph."""
        return self.of_outputs(batch.arguments().call(model), batch.targets)

    def of_outputs(self, outputs: Any, targets: Tensor) -> Tensor:
        """The scalar loss of what the model returned."""
        value = _own_loss(outputs) if self._loss is None else self._loss(main_output(outputs), targets)
        return _scalar(value, self.name)


def _named(name: str) -> Loss:
    if name in LOSSES:
        return LOSSES[name]
    if ":" not in name:
        raise InvalidInputError(f"There is no loss {name!r}. {did_you_mean(name, [*LOSSES, FROM_MODEL])}")
    loss = call_named(name)
    if not callable(loss):
        raise InvalidInputError(
            f"{name!r} returned a {type(loss).__name__}; wanted a loss: a function of outputs and targets."
        )
    return loss


def _own_loss(output: Any) -> Tensor:
    loss = output if isinstance(output, Tensor) else getattr(output, "loss", None)
    if not isinstance(loss, Tensor):
        raise InvalidInputError(
            f"The loss is said to come from the model, but it returned a {type(output).__name__} without a tensor "
            "called loss. Name a loss, or give the model what it needs to compute one (Hugging Face: labels=…)."
        )
    return loss


def _scalar(loss: Tensor, name: str) -> Tensor:
    if loss.numel() != 1:
        raise InvalidInputError(
            f"The loss {name!r} has shape {tuple(loss.shape)}; wanted one number. Take the mean over the samples."
        )
    return loss.reshape(())


def _fitting(targets: Tensor, outputs: Tensor) -> Tensor:
    if targets.shape != outputs.shape:
        raise InvalidInputError(
            f"A squared error wants targets of the outputs' shape {tuple(outputs.shape)}, got "
            f"{tuple(targets.shape)}. Classes become such targets with torch.nn.functional.one_hot."
        )
    return targets.to(outputs.dtype)
