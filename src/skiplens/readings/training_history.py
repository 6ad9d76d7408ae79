"""What a training run was: its losses, its learning rates and what was recorded on the way."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from skiplens.core.axes import Float, Tensor
from skiplens.readings.reading import Reading

FINISHED = "finished"


@dataclass(frozen=True, kw_only=True, eq=False)
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
