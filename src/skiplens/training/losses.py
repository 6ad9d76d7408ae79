"""The losses that a recipe can name."""

from typing import Any

from torch import Tensor, nn

from skiplens.core.errors import InvalidInputError
from skiplens.core.named import call_named
from skiplens.core.nearest import did_you_mean
from skiplens.data.batch import Batch
from skiplens.derivatives.hessian.losses import NAMED, LossRule, loss_rule
from skiplens.derivatives.outputs import main_output

FROM_MODEL = "model"
"""The name that says that the model itself returns its loss."""


def squared_error(outputs: Any, targets: Tensor) -> Tensor:
    """Mean over all entries of (output − target)²."""
    return _difference(outputs, targets).square().mean()


def half_squared_error(outputs: Any, targets: Tensor) -> Tensor:
    """‖outputs − targets‖² / (2 · samples): the loss of 'Demystifying ResNet'."""
    return _difference(outputs, targets).square().sum() / (2 * len(targets))


OWN = {"mse": LossRule(squared_error, "mean"), "half_squared_error": LossRule(half_squared_error, "mean")}
"""Losses with checks or definitions that torch has not; all other names are those of `hessian_spectrum`."""


class LossFunction:
    """The loss called `name` as a function of a model and a batch.

    The loss of several batches is the sum of their `total` over the sum of their `share`.
    """

    def __init__(self, name: str) -> None:
        self.name, self.rule = name, _rule(name)

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        """The scalar loss, with its graph."""
        return _scalar(self.rule.plain(batch.arguments().call(model), batch.targets), self.name)

    def total(self, outputs: Any, targets: Tensor) -> float:
        """The loss of a batch times its share."""
        return float(_scalar(self.rule.plain(outputs, targets), self.name)) * self.share(targets)

    def share(self, targets: Tensor) -> float:
        """How much a batch counts: its samples, or for cross-entropy the targets that are not ignored."""
        return self.rule.share(targets) or float(len(targets))


def _rule(name: str) -> LossRule:
    if name == FROM_MODEL:
        return loss_rule(None)
    if name in OWN:
        return OWN[name]
    if name in NAMED:
        return loss_rule(name)
    if ":" in name:
        return _users_own(name)
    raise InvalidInputError(f"There is no loss {name!r}. {did_you_mean(name, [*OWN, *NAMED, FROM_MODEL])}")


def _users_own(name: str) -> LossRule:
    loss = call_named(name)
    if not callable(loss):
        raise InvalidInputError(
            f"{name!r} returned a {type(loss).__name__}; wanted a loss: a function of outputs and targets."
        )
    return loss_rule(loss)


def _scalar(loss: Any, name: str) -> Tensor:
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        came = f"has shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else f"is a {type(loss).__name__}"
        raise InvalidInputError(f"The loss {name!r} {came}; wanted one number. Take the mean over the samples.")
    return loss.reshape(())


def _difference(outputs: Any, targets: Tensor) -> Tensor:
    values = main_output(outputs)
    if targets.shape != values.shape:
        raise InvalidInputError(
            f"A squared error wants targets of the outputs' shape {tuple(values.shape)}, got "
            f"{tuple(targets.shape)}. Classes become such targets with torch.nn.functional.one_hot."
        )
    return values - targets.to(values.dtype)
