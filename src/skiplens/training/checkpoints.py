"""A run on disk: everything needed to go on where it was, in a file that cannot run code."""

import math
import time
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from skiplens.base.errors import BrokenFileError, InvalidInputError, TooNewFileError
from skiplens.base.files import write_atomically
from skiplens.readings.file import damage_told
from skiplens.readings.reading import Provenance
from skiplens.training.history import FINISHED, TrainingHistory

FORMAT, FORMAT_VERSION = "skiplens-training", 1
_STEPS_BETWEEN_LOOKS = 50  # of a run on a GPU at its loss: each look makes the processor wait for the GPU


@dataclass(frozen=True)
class Checkpoint:
    """The file that keeps a run, and how often it is written; it is always written at the end.

    Where the file exists, the run goes on from it, and a finished one is taken from it as it is.
    """

    path: Path | str
    every_seconds: float = 30.0
    every_steps: int | None = None


class Keeper:
    """Writes checkpoints when they are due; does nothing without a file."""

    def __init__(self, checkpoint: Checkpoint | Path | str | None) -> None:
        self.checkpoint = Checkpoint(checkpoint) if isinstance(checkpoint, Path | str) else checkpoint
        self._last = time.monotonic()

    @property
    def path(self) -> Path | None:
        """The file, or None where nothing is kept."""
        return None if self.checkpoint is None else Path(self.checkpoint.path)

    def due(self, step: int) -> bool:
        """Whether the run should be written after `step` steps."""
        if self.checkpoint is None:
            return False
        counted = self.checkpoint.every_steps
        return time.monotonic() - self._last >= self.checkpoint.every_seconds or bool(counted and step % counted == 0)

    def write(self, state: dict[str, Any]) -> None:
        """Write the state of a run, whole or not at all."""
        if self.path is not None:
            whole = {"format": FORMAT, "format_version": FORMAT_VERSION, **state}
            write_atomically(self.path, lambda file: torch.save(whole, file))
            self._last = time.monotonic()

    def read(self, began_as: Mapping[str, Any]) -> dict[str, Any] | None:
        """The state of the run on disk, or None where there is none yet; refused if it began otherwise than this."""
        if self.path is None or not self.path.exists():
            return None
        state = read_checkpoint(self.path)
        require_same_run(self.path, state["began_as"], began_as)
        return state


def read_checkpoint(path: Path | str) -> dict[str, Any]:
    """The state of a run from `path`; tensors are on the CPU."""
    path = Path(path)

    def words(error: Exception) -> str:
        broken = f"{path} is not a whole checkpoint of a training run ({type(error).__name__})"
        return f"{broken}. Delete it to train from the start."

    with damage_told(words):
        with zipfile.ZipFile(path) as archive:  # torch writes checksums but does not look at them
            damaged = archive.testzip()
        if damaged is not None:
            raise zipfile.BadZipFile(f"the checksum of {damaged} is wrong")
        state = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(state, Mapping) or state.get("format") != FORMAT:
        raise BrokenFileError(f"{path} was not written by a training run of Skiplens; choose another file.")
    if state["format_version"] > FORMAT_VERSION:
        raise TooNewFileError(f"{path} was written by a newer Skiplens. Upgrade with: pip install -U skiplens")
    return dict(state)


def require_same_run(path: Path, kept: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Refuse to go on with a run that began otherwise than this one."""
    different = [f"{name} ({kept.get(name)} there, {here[name]} here)" for name in here if kept.get(name) != here[name]]
    if different:
        raise InvalidInputError(
            f"{path} holds another run, which differs in {', '.join(different[:3])}. "
            "Give this run a place of its own, or delete that one to begin anew."
        )


def state_tensors(model: nn.Module) -> list[tuple[str, Tensor]]:
    """All parameters and buffers by name; also buffers that `state_dict` leaves out."""
    return [*model.named_parameters(), *model.named_buffers()]


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Copies of all parameters and buffers on the CPU, by name."""
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in state_tensors(model)}


def restore_weights_(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Put the values of `weights_of` into the model's own tensors."""
    with torch.no_grad():
        for name, tensor in state_tensors(model):
            tensor.copy_(weights[name])


class Record:
    """Losses, learning rates and recorded numbers of the steps made so far, and why the run ended."""

    def __init__(self, steps: int, steps_per_epoch: int, device: torch.device) -> None:
        self.losses = torch.full((steps,), math.nan, dtype=torch.float64, device=device)
        self.learning_rates = torch.zeros(steps, dtype=torch.float64)
        self.total, self.steps_per_epoch, self.step, self.outcome = steps, steps_per_epoch, 0, ""
        self._looked = 0
        self.recorded: dict[str, list[tuple[int, float]]] = {}

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
        recorded = self.recorded.items()
        return TrainingHistory(
            losses=self.losses[: self.step].clone(),
            learning_rates=self.learning_rates[: self.step].clone(),
            steps_per_epoch=self.steps_per_epoch,
            outcome=self.outcome,
            recorded={name: torch.tensor([value for _, value in kept], dtype=torch.float64) for name, kept in recorded},
            recorded_steps={name: torch.tensor([at for at, _ in kept], dtype=torch.int64) for name, kept in recorded},
            provenance=provenance,
        )

    def _look_for_divergence(self) -> None:
        """End the run at the first loss since the last look that is no number."""
        news = self.losses[self._looked : self.step + 1]
        bad = (~torch.isfinite(news)).nonzero()
        if len(bad):
            self.step = self._looked + int(bad[0])
            for entries in self.recorded.values():
                entries[:] = [entry for entry in entries if entry[0] <= self.step]
            self.end(f"diverged at step {self.step}: the loss is {float(self.losses[self.step])}")
        self._looked = self.step
