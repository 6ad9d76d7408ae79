"""What is measured along a training run, and when."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from skiplens.core.errors import InvalidInputError


@dataclass(frozen=True)
class MeasureAlong:
    """What to measure along a run, and when.

    The measurement is a function of the model: it sees the model in evaluation mode, with the gradients of the step's
    batch in `.grad`, and whatever it does to modes, buffers or gradients is put back. It returns a number, a tensor, a
    mapping of names to numbers, or a reading; tensors are copied. Running statistics such as those of batch norm have
    seen the step's batch already.

    A loss is reached between two looks when the first is above it and the second is not; the measurement is taken at
    both, so that `at_losses` can interpolate between them. After the last update there is no loss of a batch: with
    ``loss="step"`` and ``"running"`` the last look is before it.

    Attributes:
        measure: What to measure.
        at_steps: After how many updates to measure; 0 is the start.
        at_losses: Losses at which to measure when they are first reached.
        loss: Which loss is compared with `at_losses`: ``"step"`` is that of the step's own batch, ``"running"`` its
            mean over as many steps as an epoch has, and a function of the model is called at each look.
        every: How many steps lie between two looks at the loss.
        stop_when_done: Whether the run ends, before its recipe does, when everything asked for was measured.
    """

    measure: Callable[[nn.Module], Any]
    at_steps: tuple[int, ...] = ()
    at_losses: tuple[float, ...] = ()
    loss: Literal["step", "running"] | Callable[[nn.Module], float] = "step"
    every: int = 1
    stop_when_done: bool = False

    def __post_init__(self) -> None:
        """Refuse times at which nothing can be measured."""
        if not self.at_steps and not self.at_losses:
            raise InvalidInputError("Say when to measure: at_steps=(0, 100, …) or at_losses=(2.0, 1.0, …).")
        for step in self.at_steps:
            if step != int(step) or step < 0:
                raise InvalidInputError(f"at_steps has {step!r}; steps are whole numbers from 0 on.")
        for loss in self.at_losses:
            if not math.isfinite(loss):
                raise InvalidInputError(f"at_losses has {loss!r}; give finite numbers.")
        if self.every < 1:
            raise InvalidInputError(f"every is {self.every}; look at the loss every 1 step or more.")


@dataclass(frozen=True)
class Taken:
    """What was measured after `step` updates, and the loss there."""

    step: int
    loss: float
    value: Any
