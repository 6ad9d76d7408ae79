"""The loss of a model in the words of the theory."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from skiplens.core.errors import InvalidInputError
from skiplens.core.nearest import did_you_mean
from skiplens.theory.hypotheses import CostFacts
from skiplens.theory.smoothness import Cost, CrossEntropy, SquareCost

LossArgument = str | nn.Module | Callable[..., Any]

_FUNCTIONS: dict[Any, str] = {
    F.cross_entropy: "cross_entropy",
    F.mse_loss: "mse",
    F.binary_cross_entropy_with_logits: "binary_cross_entropy",
    F.l1_loss: "l1",
    F.huber_loss: "huber",
    F.smooth_l1_loss: "huber",
}
_MODULES: dict[Any, str] = {
    nn.CrossEntropyLoss: "cross_entropy",
    nn.MSELoss: "mse",
    nn.BCEWithLogitsLoss: "binary_cross_entropy",
    nn.L1Loss: "l1",
    nn.HuberLoss: "huber",
    nn.SmoothL1Loss: "huber",
}
_FACTS = {
    "cross_entropy": CostFacts("cross-entropy", True, True, True),
    "mse": CostFacts("mean squared error", True, True, True),
    "binary_cross_entropy": CostFacts("binary cross-entropy", True, True, True),
    "l1": CostFacts("absolute error", True, False, False),
    "huber": CostFacts("Huber loss", True, True, True),
}


def describe_cost(loss: LossArgument, outputs: tuple[int, ...], targets: Tensor) -> CostFacts:
    """What is known of a loss; with numbers where all targets are there and it is a plain mean."""
    name = _name(loss)
    if name is None:
        return CostFacts(getattr(loss, "__name__", type(loss).__name__))
    facts = _FACTS[name]
    cost = _cost(name, outputs, targets) if _is_plain(loss) else None
    return CostFacts(facts.name, facts.is_convex, facts.has_lipschitz_gradient, facts.is_dominated, cost)


def _name(loss: LossArgument) -> str | None:
    if isinstance(loss, str):
        if loss not in _FACTS:
            raise InvalidInputError(f"There is no loss {loss!r}. {did_you_mean(loss, _FACTS)}")
        return loss
    return _FUNCTIONS.get(loss) or _MODULES.get(type(loss))


def _is_plain(loss: LossArgument) -> bool:
    """Whether it is a mean without weights, smoothing and ignored targets."""
    if not isinstance(loss, nn.Module):
        return True
    options = vars(loss) | dict(loss.named_buffers())
    weighted = options.get("weight") is not None or options.get("label_smoothing", 0.0) != 0
    return not weighted and options.get("reduction", "mean") == "mean"


def _cost(name: str, outputs: tuple[int, ...], targets: Tensor) -> Cost | None:
    """The cost with its targets, as the theory writes it; None for forms that it does not have."""
    samples = targets.shape[0] if targets.ndim else 0
    if len(outputs) != 2 or not samples:
        return None
    if name == "mse" and targets.numel() == samples * outputs[1] and targets.is_floating_point():
        return SquareCost(targets.reshape(samples, -1).T.to("cpu", torch.float64), scale=2 / outputs[1])
    whole = not targets.is_floating_point() and targets.ndim == 1 and outputs[1] > 1
    if name == "cross_entropy" and whole and 0 <= int(targets.min()) and int(targets.max()) < outputs[1]:
        return CrossEntropy(targets.long().cpu(), outputs[1])
    return None
