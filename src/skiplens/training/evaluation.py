"""Loss and accuracy of a model over all of its data."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from skiplens.core.untouched import untouched
from skiplens.data.batch import Batch, as_batches
from skiplens.derivatives.outputs import main_output
from skiplens.training.losses import LossFunction


@dataclass(frozen=True)
class Evaluation:
    """The mean loss over `samples` samples, and the share of them classified right where targets are classes."""

    loss: float
    accuracy: float | None
    samples: int


def evaluate(
    model: nn.Module,
    data: Any,
    loss: str = "cross_entropy",
    batch_size: int = 512,
    statistics: Literal["running", "batch"] = "running",
) -> Evaluation:
    """The loss and the accuracy of `model` on `data`; the model is as before afterwards.

    Args:
        model: Any module.
        data: `(inputs, targets)` or an iterable of such batches.
        loss: As in a recipe; a mean over samples.
        batch_size: Samples looked at at once.
        statistics: ``"running"`` looks in evaluation mode, ``"batch"`` in training mode: batch norms then use the
            statistics of the batches looked at, and dropout drops.
    """
    function, device = LossFunction(loss), _device(model)
    total, share, right, samples = 0.0, 0.0, 0, 0
    classes = True
    with torch.no_grad(), untouched(model):
        model.train(statistics == "batch")
        for batch in _pieces(data, batch_size):
            batch = batch.to(device)
            outputs = batch.arguments().call(model)
            total += function.total(outputs, batch.targets)
            share += function.share(batch.targets)
            classes = classes and _are_classes(batch.targets)
            right += _right(outputs, batch.targets) if classes else 0
            samples += batch.samples
    return Evaluation(total / share, right / samples if classes else None, samples)


def _device(model: nn.Module) -> torch.device | None:
    return next((parameter.device for parameter in model.parameters()), None)


def _pieces(data: Any, size: int) -> Iterator[Batch]:
    for batch in as_batches(data):
        for start in range(0, batch.samples, size):
            yield batch.select(slice(start, start + size))


def _are_classes(targets: Tensor) -> bool:
    return targets.ndim == 1 and not targets.is_floating_point()


def _right(outputs: Any, targets: Tensor) -> int:
    predictions = main_output(outputs)
    return int((predictions.argmax(-1) == targets).sum()) if predictions.ndim == 2 else 0
