"""The loss: a name, a function or the model's own; how it adds up over batches; which one targets ask for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from skiplens.base.arguments import type_name
from skiplens.base.errors import InvalidInputError, did_you_mean, pick
from skiplens.base.import_by_name import call_by_name
from skiplens.graph.batch import IGNORED, Batch, Several
from skiplens.graph.functional import main_output
from skiplens.graph.inputs import named_tensors

Loss = Any
"""A name (``"cross_entropy"``, ``"mse"``), a function (outputs, targets) -> scalar, or None: the model returns it."""

Combination = Literal["mean", "sum", "whole", "unknown"]
"""How a loss of several batches comes from theirs: averaged over samples, added, not at all, or not known yet."""

LIKELIHOODS = (nn.CrossEntropyLoss, nn.MSELoss, nn.BCEWithLogitsLoss)
"""Negative log-likelihoods in natural parameters: their Gauss-Newton matrix is the Fisher information."""


@dataclass(frozen=True)
class LossRule:
    """A loss (outputs, targets) -> scalar and how it adds up over mini-batches.

    `total` of all batches, divided by the sum of their `share`s, is the loss of all samples together.
    """

    plain: Callable[[Any, Tensor], Tensor]
    combination: Combination
    is_likelihood: bool = False

    def total(self, outputs: Any, targets: Tensor) -> Tensor:
        """The loss of a batch before the division by all shares."""
        value = self.plain(outputs, targets)
        return value * targets.shape[0] if self.combination == "mean" else value

    def share(self, targets: Tensor) -> float:
        """What a batch adds to the divisor; 0 for losses that are not divided."""
        return float(targets.shape[0]) if self.combination == "mean" else 0.0

    def require_fit(self, outputs: Any, targets: Tensor) -> None:
        """Refuse targets that the loss does not take; called with plain tensors only."""

    def each(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of every sample alone, scaled so that their mean (or sum) over all batches is the loss."""
        return torch.stack([self.plain(outputs[i : i + 1], targets[i : i + 1]) for i in range(len(targets))])


@dataclass(frozen=True)
class CrossEntropyRule(LossRule):
    """Cross-entropy averaged over the targets that count: ignored ones and class weights are in the divisor."""

    module: nn.CrossEntropyLoss | nn.NLLLoss = nn.CrossEntropyLoss()  # noqa: RUF009 - it has no state

    def total(self, outputs: Any, targets: Tensor) -> Tensor:
        """The sum over targets."""
        module = self.module
        scores = _classes_second(main_output(outputs), targets)
        weight = None if module.weight is None else module.weight.to(scores)
        if isinstance(module, nn.NLLLoss):
            return F.nll_loss(scores, targets, weight, ignore_index=module.ignore_index, reduction="sum")
        return F.cross_entropy(
            scores, targets, weight, None, module.ignore_index, None, "sum", label_smoothing=module.label_smoothing
        )

    def require_fit(self, outputs: Any, targets: Tensor) -> None:
        """Refuse classes that the outputs do not have, which some devices would only notice later."""
        if not targets.is_floating_point():
            _require_classes(main_output(outputs), targets, self.module.ignore_index)

    def share(self, targets: Tensor) -> float:
        """The number of targets that count, each with the weight of its class."""
        if targets.is_floating_point():
            return targets.numel() / targets.shape[1]
        counting = targets[targets != self.module.ignore_index]
        weight = self.module.weight
        return float(counting.numel()) if weight is None else float(weight.to(targets.device)[counting].sum())


def loss_rule(loss: Loss) -> LossRule:
    """The rule of a named loss, a torch module or a function; how a function adds up is found out on data later."""
    if loss is None:
        return LossRule(returned_loss_of, "unknown")
    if isinstance(loss, str):
        return _rule_of_module(pick(NAMED, loss, f"There is no loss called {loss!r}.")())
    if isinstance(loss, nn.Module):
        return _rule_of_module(loss)
    if callable(loss):
        return LossRule(_on_main_output(loss) if _is_torch(loss) else loss, "unknown")
    raise InvalidInputError(
        f"loss is of type {type(loss).__name__}; hand over a name ({', '.join(NAMED)}), a function "
        "(outputs, targets) -> scalar, or None if the model returns its own loss."
    )


def loss_name(loss: Loss) -> str:
    """What a loss is called in provenances and on pages."""
    return loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)


def returned_loss(outputs: Any) -> Tensor:
    """The loss that a model returned: a scalar, an entry `loss`, or the sum where it returned nothing but losses."""
    value = outputs.get("loss") if hasattr(outputs, "get") else getattr(outputs, "loss", outputs)
    parts = list(outputs.values()) if value is None and isinstance(outputs, Mapping) else []
    if parts and all(isinstance(part, Tensor) and part.ndim == 0 and part.is_floating_point() for part in parts):
        return torch.stack(parts).sum()  # as detectors return them
    if isinstance(value, tuple | list) and value:
        value = value[0]
    if isinstance(value, Tensor) and value.ndim == 0:
        return value
    raise InvalidInputError(
        f"loss=None means that the model returns its loss, but it returned {_described(outputs)}. Hand over "
        "a loss, or inputs with labels, so that the model computes one."
    )


def returned_loss_of(outputs: Any, targets: Tensor) -> Tensor:
    """The loss that a model returned, as a function of outputs and targets."""
    return returned_loss(outputs)


NAMED: dict[str, Callable[[], nn.Module]] = {
    "cross_entropy": nn.CrossEntropyLoss,
    "mse": nn.MSELoss,
    "binary_cross_entropy": nn.BCEWithLogitsLoss,
}


def _rule_of_module(module: nn.Module) -> LossRule:
    likelihood = isinstance(module, LIKELIHOODS)
    reduction = getattr(module, "reduction", None)
    plain = _on_main_output(module) if _is_torch(type(module)) else module
    if isinstance(module, nn.CrossEntropyLoss | nn.NLLLoss):
        plain = _on_main_output(lambda scores, targets: module(_classes_second(scores, targets), targets))
        if reduction == "mean":
            return CrossEntropyRule(plain, "sum", likelihood, module)
    combinations: dict[Any, Combination] = {"mean": "mean", "batchmean": "mean", "sum": "sum"}
    return LossRule(plain, combinations.get(reduction, "unknown"), likelihood)


def _on_main_output(loss: Callable[..., Tensor]) -> Callable[[Any, Tensor], Tensor]:
    return lambda outputs, targets: loss(main_output(outputs), targets)


def _classes_second(scores: Tensor, targets: Tensor) -> Tensor:
    """Scores as torch's losses want them; language models have the classes last, (samples, tokens, classes)."""
    as_torch = scores.shape[:1] + scores.shape[2:]
    if scores.ndim > 2 and targets.shape != as_torch and targets.shape == scores.shape[:-1]:
        return scores.movedim(-1, 1)
    return scores


def _is_torch(thing: Any) -> bool:
    return str(getattr(thing, "__module__", "")).startswith("torch")


def _described(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return f"a {type(value).__name__} without an entry 'loss'" if hasattr(value, "get") else f"a {type(value).__name__}"


@dataclass(frozen=True)
class SeveralLosses:
    """One loss of several targets: a function of all that the model returned and of them, or the sum of theirs.

    A target belongs to the output of the same name, or in the same place; whole numbers are classes.
    """

    several: Several
    asked: Loss = None

    def __call__(self, outputs: Any, targets: Tensor) -> Tensor:
        """The scalar loss; `targets` has all of them side by side."""
        apart = self.several.apart(targets)
        if callable(self.asked):
            return self.asked(outputs, apart)
        named, wanted = dict(named_tensors(outputs)), dict(named_tensors(apart))
        found = [named[key] for key in wanted] if named.keys() >= wanted.keys() else list(named.values())
        if len(found) != len(wanted):
            raise InvalidInputError(
                f"Each sample has {len(wanted)} targets ({', '.join(wanted)}) and the model returns {len(found)} "
                f"tensors ({', '.join(named)}). Hand over loss=, a function of what it returns and of all targets."
            )
        return sum((self._of(*pair) for pair in zip(found, wanted.values(), strict=True)), torch.zeros(()))

    def _of(self, output: Tensor, target: Tensor) -> Tensor:
        loss = self.asked or ("mse" if target.is_floating_point() else "cross_entropy")
        same = loss != "cross_entropy" and target.numel() == output.numel()
        return loss_rule(loss).plain(output, target.reshape(output.shape).to(output.dtype) if same else target)


FROM_MODEL = "model"  # the name that says that the model itself returns its loss


def squared_error(outputs: Any, targets: Tensor) -> Tensor:
    """Mean over all entries of (output − target)²."""
    return _difference(outputs, targets).square().mean()


def half_squared_error(outputs: Any, targets: Tensor) -> Tensor:
    """‖outputs − targets‖² / (2 · samples): the loss of 'Demystifying ResNet'."""
    return _difference(outputs, targets).square().sum() / (2 * len(targets))


def _difference(outputs: Any, targets: Tensor) -> Tensor:
    values = main_output(outputs)
    if targets.shape != values.shape:
        raise InvalidInputError(
            f"A squared error wants targets of the outputs' shape {tuple(values.shape)}, got "
            f"{tuple(targets.shape)}. Classes become such targets with torch.nn.functional.one_hot."
        )
    return values - targets.to(values.dtype)


OWN = {"mse": LossRule(squared_error, "mean"), "half_squared_error": LossRule(half_squared_error, "mean")}
"""Losses with checks or definitions that torch has not; all other names are those of `hessian_spectrum`."""


class LossFunction:
    """A loss, by its name or as a function of outputs and targets, as a function of a model and a batch.

    The loss of several batches is the sum of their `total` over the sum of their `share`.
    """

    def __init__(self, loss: str | Callable[..., Any]) -> None:
        self.asked: Loss = loss
        self.name = loss_name(loss)
        self.rule = _rule(loss) if isinstance(loss, str) else loss_rule(loss)

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        """The scalar loss, with its graph."""
        return self.of(batch.arguments().call(model), batch)

    def of(self, outputs: Any, batch: Batch) -> Tensor:
        """The scalar loss of outputs that the model has returned for a batch."""
        batch = batch if self.rule.plain is returned_loss_of else batch.labelled()
        return scalar_loss(self.rule.plain(outputs, batch.targets), self.name)

    def total(self, outputs: Any, targets: Tensor) -> float:
        """The loss of a batch times its share."""
        return float(scalar_loss(self.rule.plain(outputs, targets), self.name)) * self.share(targets)

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
        loss = call_by_name(name)
        if not callable(loss):
            raise InvalidInputError(
                f"{name!r} returned a {type(loss).__name__}; wanted a loss: a function of outputs and targets."
            )
        return loss_rule(loss)
    raise InvalidInputError(f"There is no loss {name!r}. {did_you_mean(name, [*OWN, *NAMED, FROM_MODEL])}")


def scalar_loss(loss: Any, name: str) -> Tensor:
    """The value of the loss called `name`, refused where it is not one number."""
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        came = f"has shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else f"is a {type(loss).__name__}"
        raise InvalidInputError(f"The loss {name!r} {came}; wanted one number. Take the mean over the samples.")
    return loss.reshape(())


_WANTED = (
    "The loss is cross-entropy where targets are whole numbers, one for each row of scores, and the mean square where "
    "they are real numbers, one for each output. Bring the targets to one of these forms, or hand over "
    "loss=, a function of outputs and targets."
)


def fitted(outputs: Tensor, batch: Batch, loss: Loss = None) -> tuple[Loss, Batch]:
    """The loss and the batch with targets in the form that it takes.

    Without a loss it is cross-entropy where targets are classes and the mean square where they are numbers. Losses that
    have no name get the targets as they are. A model that returns one number returns its loss.
    """
    if loss is returned_loss_of or (outputs.ndim == 0 and loss is None):
        return returned_loss_of, batch
    targets = batch.labelled().targets
    # One output for each whole number: a regression, for cross-entropy over one class is always zero.
    one_each = targets.ndim == 1 and outputs.numel() == targets.numel() and targets.dtype != torch.bool
    if loss is None:
        loss = "mse" if targets.is_floating_point() or one_each else "cross_entropy"
    if not isinstance(loss, str):
        return loss, batch
    if loss == "cross_entropy":
        if targets.is_floating_point() and targets.shape == outputs.shape:
            return loss, batch  # the probability of each class
        _require_classes(outputs, targets)
        return loss, Batch(batch.inputs, targets.long())
    if outputs.ndim == targets.ndim == 2 and outputs.shape == 2 * targets.shape[:1]:
        targets = targets[:, : len(targets)]  # each sample with each other: those that were left out here have none
    if targets.numel() != outputs.numel():
        raise _misfit(outputs, targets)
    return loss, Batch(batch.inputs, targets.reshape(outputs.shape).to(outputs.dtype))


def _require_classes(outputs: Tensor, targets: Tensor, ignored: int = IGNORED) -> None:
    forms = {tuple(outputs.shape[:1] + outputs.shape[2:]): 1, tuple(outputs.shape[:-1]): outputs.ndim - 1}
    axis = forms.get(tuple(targets.shape)) if outputs.ndim > 1 else None
    if axis is None or targets.dtype == torch.bool:
        raise _misfit(outputs, targets)
    classes, counting = outputs.shape[axis], targets[targets != ignored]
    least, most = (int(counting.min()), int(counting.max())) if counting.numel() else (0, 0)
    if not 0 <= least <= most < classes:
        raise InvalidInputError(
            f"The targets run from {least} to {most}, but the model has {classes} outputs: "
            f"classes run from 0 to {classes - 1}. Number the classes from 0, or use a model with more outputs."
        )


def _misfit(outputs: Tensor, targets: Tensor) -> InvalidInputError:
    whole, hint = not targets.is_floating_point(), ""
    if whole and targets.shape == outputs.shape:
        hint = " One-hot classes become numbers by targets.argmax(1), several labels of a sample by targets.float()."
    elif whole and targets.shape == (len(outputs), 1):
        hint = " Classes have no axis of their own: targets.squeeze(1)."
    elif not whole and targets.shape == outputs.shape[:1]:
        hint = " If they are classes: targets.long()."
    return InvalidInputError(
        f"Targets of shape {tuple(targets.shape)} and type {type_name(targets.dtype)} do not fit outputs of shape "
        f"{tuple(outputs.shape)}. {_WANTED}{hint}"
    )
