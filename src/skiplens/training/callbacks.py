"""What a run tells while it trains, and to whom."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from skiplens.data.batch import Batch


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
    """Told what happens; each method does nothing until a subclass says what.

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


class AfterEachStep(Callback):
    """Calls a plain function after each step."""

    def __init__(self, function: Callable[[Moment], None]) -> None:
        self.function = function

    def after_step(self, moment: Moment) -> None:
        """Hand over the moment."""
        self.function(moment)


def as_callback(callback: Callback | Callable[[Moment], None]) -> Callback:
    """The callback itself, or a plain function as one that is called after each step."""
    return callback if isinstance(callback, Callback) else AfterEachStep(callback)
