"""What a training run was: its losses, its learning rates and what was recorded on the way."""

from collections.abc import Mapping
from dataclasses import field

from torch import Tensor

from skiplens.base.axes import Float
from skiplens.plots.figure import Figure, Line, Points, numbers
from skiplens.plots.section import ReadingView
from skiplens.readings.reading import Reading

FINISHED = "finished"
_MOST_STEPS = 5000  # runs with more are drawn by epoch only


class TrainingHistory(Reading, kind="training"):
    """A training run step by step.

    Attributes:
        losses: Entry k is the loss of step k's batch after k updates, before update k + 1.
        learning_rates: Entry k is the learning rate of that update.
        steps_per_epoch: How many steps one pass through the data has.
        outcome: ``"finished"``, or why the run ended early: ``"diverged …"`` or the reason given by a callback.
        recorded: What callbacks recorded, by name.
        recorded_steps: The steps (updates made) that the entries of `recorded` belong to.
    """

    losses: Float[Tensor, " steps"]
    learning_rates: Float[Tensor, " steps"]
    steps_per_epoch: int
    outcome: str = FINISHED
    recorded: Mapping[str, Tensor] = field(default_factory=dict)
    recorded_steps: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        """How many steps were made."""
        return len(self.losses)

    @property
    def finished(self) -> bool:
        """Whether the run made all its steps."""
        return self.outcome == FINISHED

    @property
    def diverged(self) -> bool:
        """Whether the run ended because the loss was no longer a number."""
        return self.outcome.startswith("diverged")

    @property
    def epoch_losses(self) -> Float[Tensor, " epochs"]:
        """The mean loss of the steps of each epoch; an epoch that was not finished is left out."""
        whole = self.steps // self.steps_per_epoch * self.steps_per_epoch
        return self.losses[:whole].reshape(-1, self.steps_per_epoch).mean(1)


def loss_by_step(reading: TrainingHistory) -> Figure | None:
    """The loss of every step's batch, and its mean over each epoch where an epoch has several steps."""
    if not reading.steps:
        return None
    marks: list[Line | Points] = []
    several, epochs = reading.steps_per_epoch > 1, reading.epoch_losses
    if reading.steps <= _MOST_STEPS or not len(epochs):
        marks.append(Line(numbers(range(reading.steps)), numbers(reading.losses), "each step" if several else "loss"))
    if len(epochs) and (several or not marks):
        middles = [(epoch + 0.5) * reading.steps_per_epoch for epoch in range(len(epochs))]
        marks.append(Points(numbers(middles), numbers(epochs), "mean of an epoch"))
    positive = bool((reading.losses > 0).all())
    far = positive and float(reading.losses.max()) > 10 * float(reading.losses.min())
    ended = "finished" if reading.finished else f"ended early: {reading.outcome}"
    caption = f"The loss of each step's batch before its update, over {reading.steps} steps; the run {ended}."
    return Figure("loss_by_step", "Loss along training", caption, "step", "loss", tuple(marks), y_log=far)


def learning_rate_by_step(reading: TrainingHistory) -> Figure | None:
    """The learning rate of every update, where it changes."""
    rates = reading.learning_rates
    if reading.steps < 2 or bool((rates == rates[0]).all()):
        return None
    caption = "The learning rate of each update, as the schedule of the recipe gives it."
    words = ("learning_rate_by_step", "Learning rate along training", caption, "step", "learning rate")
    return Figure(*words, (Line(numbers(range(reading.steps)), numbers(rates)),))


VIEW = ReadingView(TrainingHistory, figures=(loss_by_step, learning_rate_by_step))
