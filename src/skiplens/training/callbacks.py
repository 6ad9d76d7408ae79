"""What a run reports while it trains, and what can be asked of a model on the way: evaluation, norms, mean losses."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from skiplens.base.arguments import accept_old_order
from skiplens.base.errors import InvalidInputError, did_you_mean, refuse_if
from skiplens.base.preserve_state import preserve_state
from skiplens.graph.batch import Batch, as_batches
from skiplens.graph.functional import main_output
from skiplens.graph.loss import LossFunction


@dataclass(frozen=True)
class Moment:
    """A point of a training run.

    Attributes:
        step: How many updates were made.
        steps_per_epoch: How many updates one pass through the data has.
        model: The model as it is now.
        batch: The batch of the step.
        loss_tensor: The loss of that batch, still on its device.
        record: Keeps a number of this step under a name in the history.
        stop: Ends the run after this step, with a reason for the history.
    """

    step: int
    steps_per_epoch: int
    model: nn.Module
    batch: Batch
    loss_tensor: Tensor
    record: Callable[[str, float], None]
    stop: Callable[[str], None]

    @property
    def epoch(self) -> int:
        """How many passes through the data were finished."""
        return self.step // self.steps_per_epoch

    @property
    def loss(self) -> float:
        """The loss of the batch before the step's update; asking for it waits for the GPU."""
        return float(self.loss_tensor)


class Callback:
    """Hears what happens; each method does nothing until a subclass says what.

    What a callback draws at random, or how often it calls the model, does not change the run.
    """

    def before_step(self, moment: Moment) -> None:
        """The loss and the gradients of `moment.batch` are there, and the weights that they belong to."""

    def after_step(self, moment: Moment) -> None:
        """The update is made; `moment.loss` is the loss before it."""

    def at_end(self, moment: Moment) -> None:
        """The run is over: finished, diverged or stopped; not called again when a finished run is taken up."""

    def identity(self) -> str:
        """What must agree for a run with this callback to go on from a checkpoint."""
        return type(self).__name__

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps of this callback: tensors, numbers and words in dicts and lists."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up the state that `state` gave when the checkpoint was written."""


@dataclass(frozen=True)
class AfterEachStep(Callback):
    """Calls a plain function after each step."""

    function: Callable[[Moment], None]

    def after_step(self, moment: Moment) -> None:
        """Hand over the moment."""
        self.function(moment)


@dataclass(frozen=True)
class Evaluation:
    """The mean loss over `samples` samples, and the share of them classified right where targets are classes."""

    loss: float
    accuracy: float | None
    samples: int


@accept_old_order("model", "data", "loss", "batch_size", "statistics")
def evaluate(
    model: nn.Module,
    data: Any,
    *,
    loss: str | Callable[..., Tensor] = "cross_entropy",
    batch_size: int = 512,
    statistics: Literal["running", "batch"] = "running",
) -> Evaluation:
    """The loss and the accuracy of `model` on `data`; the model is as before afterwards.

    Args:
        model: Any module.
        data: `(inputs, targets)` or an iterable of such batches.
        loss: A name as in a recipe, or a function (outputs, targets) -> scalar; a mean over samples.
        batch_size: Samples looked at at once.
        statistics: ``"running"`` looks in evaluation mode, ``"batch"`` in training mode: batch norms then use the
            statistics of the batches looked at, and dropout drops.
    """
    function = LossFunction(loss)
    device = next((parameter.device for parameter in model.parameters()), None)
    total, share, right, samples = 0.0, 0.0, 0, 0
    classes = True
    with torch.no_grad(), preserve_state(model):
        model.train(statistics == "batch")
        for whole in as_batches(data):
            for start in range(0, whole.samples, batch_size):
                batch = whole.select(slice(start, start + batch_size)).to(device)
                outputs, targets = batch.arguments().call(model), batch.targets
                total += function.total(outputs, targets)
                share += function.share(targets)
                samples += batch.samples
                classes = classes and targets.ndim == 1 and not targets.is_floating_point()
                if classes and (scores := main_output(outputs)).ndim == 2:
                    right += int((scores.argmax(-1) == targets).sum())
    return Evaluation(total / share, right / samples if classes else None, samples)


def gradient_norm(model: nn.Module) -> float:
    """The norm of all gradients that the last backward pass left, as one vector."""
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    refuse_if(not gradients, "The model has no gradients; the norm is there during a training run only.")
    return float(torch.stack([gradient.double().norm() for gradient in gradients]).norm())


def mean_weight_norm(model: nn.Module) -> float:
    """The mean of the Frobenius norms of all weight matrices and convolution kernels."""
    weights = [parameter for parameter in model.parameters() if parameter.ndim >= 2]
    if not weights:
        raise InvalidInputError(f"{type(model).__name__} has no weight matrix, so there is no norm to take.")
    return float(torch.stack([weight.detach().double().norm() for weight in weights]).mean())


class RunningLoss:
    """The mean of the last losses; at the start, of as many as there are."""

    def __init__(self, window: int | None) -> None:
        self.window = window
        self._losses: deque[float] = deque()

    @classmethod
    def named(cls, name: str) -> "RunningLoss":
        """``"step"``: the loss of the last batch; ``"running"``: the mean over as many steps as an epoch has."""
        windows = {"step": 1, "running": None}
        if name not in windows:
            raise InvalidInputError(f"loss={name!r} is unknown. {did_you_mean(name, windows)} Or give a function.")
        return cls(windows[name])

    def note(self, moment: Moment) -> None:
        """Take in the loss of one more step."""
        self._losses.append(moment.loss)
        while len(self._losses) > (self.window or moment.steps_per_epoch):
            self._losses.popleft()

    @property
    def value(self) -> float:
        """The mean now."""
        return sum(self._losses) / len(self._losses)

    def state(self) -> dict[str, Any]:
        """The losses in the window."""
        return {"losses": list(self._losses)}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up the losses that `state` gave."""
        self._losses = deque(state["losses"])
