"""The growing record of a run, and the history that it becomes."""

import math
from typing import Any

import torch
from torch import Tensor

from skiplens.readings.provenance import Provenance
from skiplens.readings.training_history import FINISHED, TrainingHistory

_STEPS_BETWEEN_LOOKS = 50
"""How often a run on a GPU is asked for its loss: each look makes the processor wait for the GPU."""


class Record:
    """Losses, learning rates and recorded numbers of the steps made so far, and why the run ended."""

    def __init__(self, steps: int, steps_per_epoch: int, device: torch.device) -> None:
        self.losses = torch.full((steps,), math.nan, dtype=torch.float64, device=device)
        self.learning_rates = torch.zeros(steps, dtype=torch.float64)
        self.steps_per_epoch, self.step, self.outcome = steps_per_epoch, 0, ""
        self._looked = 0
        self.recorded: dict[str, list[tuple[int, float]]] = {}

    @property
    def total(self) -> int:
        """How many steps the whole run has."""
        return len(self.losses)

    @property
    def over(self) -> bool:
        """Whether the run has ended."""
        return bool(self.outcome)

    def note_loss(self, loss: Tensor) -> None:
        """Keep the loss of the present step, and end the run where it is NaN or infinite."""
        loss = loss.detach()
        self.losses[self.step] = loss
        on_cpu = self.losses.device.type == "cpu"
        if on_cpu and math.isfinite(loss):
            self._looked = self.step
        elif on_cpu or self.step % _STEPS_BETWEEN_LOOKS == 0 or self.step == self.total - 1:
            self._look_for_divergence()

    def note(self, name: str, value: float) -> None:
        """Keep a number of the present step under `name`."""
        self.recorded.setdefault(name, []).append((self.step, float(value)))

    def end(self, reason: str = FINISHED) -> None:
        """Say why the run is over; the first reason stays."""
        self.outcome = self.outcome or reason

    def state(self) -> dict[str, Any]:
        """The record in tensors, numbers and words."""
        return {
            "losses": self.losses[: self.step].cpu(),
            "learning_rates": self.learning_rates[: self.step].clone(),
            "step": self.step,
            "outcome": self.outcome,
            "recorded": {name: [list(entry) for entry in entries] for name, entries in self.recorded.items()},
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take up the record that `state` gave."""
        self.step, self.outcome = state["step"], state["outcome"]
        self._looked = self.step
        self.losses[: self.step] = state["losses"].to(self.losses.device)
        self.learning_rates[: self.step] = state["learning_rates"]
        self.recorded = {name: [(step, value) for step, value in kept] for name, kept in state["recorded"].items()}

    def history(self, provenance: Provenance) -> TrainingHistory:
        """The history of the steps made."""
        return TrainingHistory(
            losses=self.losses[: self.step].clone(),
            learning_rates=self.learning_rates[: self.step].clone(),
            steps_per_epoch=self.steps_per_epoch,
            outcome=self.outcome,
            recorded={name: _column(kept, 1, torch.float64) for name, kept in self.recorded.items()},
            recorded_steps={name: _column(kept, 0, torch.int64) for name, kept in self.recorded.items()},
            provenance=provenance,
        )

    def _look_for_divergence(self) -> None:
        """End the run at the first loss since the last look that is no number."""
        news = self.losses[self._looked : self.step + 1]
        bad = (~torch.isfinite(news)).nonzero()
        if len(bad):
            self.step = self._looked + int(bad[0])
            self.recorded = {name: _until(self.step, entries) for name, entries in self.recorded.items()}
            self.end(f"diverged at step {self.step}: the loss is {float(self.losses[self.step])}")
        self._looked = self.step


def _until(step: int, entries: list[tuple[int, float]]) -> list[tuple[int, float]]:
    return [entry for entry in entries if entry[0] <= step]


def _column(entries: list[tuple[int, float]], index: int, dtype: torch.dtype) -> Tensor:
    return torch.tensor([entry[index] for entry in entries], dtype=dtype)
