"""Where the states of trials wait for their next round: in memory, in temporary files, or kept for another process."""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from skiplens.base.errors import BrokenFileError
from skiplens.base.files import require_writable
from skiplens.base.identity import identity_of
from skiplens.base.memory import budget_bytes
from skiplens.base.version import VERSION
from skiplens.graph.loss import LossFunction
from skiplens.trainability.optimizers import NAMED, OptimizerChoice
from skiplens.training.checkpoints import Keeper, read_checkpoint, require_same_run
from skiplens.training.source import Source

DIGITS = 16  # of an identity that are told


class Shelf:
    """States of trials: in memory while they fit the budget, else in files that end with the pilot."""

    outlives: ClassVar[bool] = False  # the process
    finished: Mapping[str, Any] | None = None
    """What the pilot showed, where another process has brought it to its end."""

    def __init__(self, device: torch.device, folder: Path) -> None:
        self.budget, self.folder = budget_bytes(device), folder
        self.held: dict[float, Any] = {}
        self.size = 0

    def losses(self, rate: float) -> list[float]:
        """Losses of the trial that another process has seen."""
        return []

    def put(self, rate: float, losses: list[float], state: Any, size: int) -> None:
        """Keep a state and the losses until then."""
        if self.size + size <= self.budget:
            self.held[rate], self.size = state, self.size + size
        else:
            torch.save(state, self.folder / f"{rate!r}.pt")
            self.held[rate] = None

    def take(self, rate: float, size: int) -> Any:
        """Give a state back; it is on the shelf no longer."""
        state = self.held.pop(rate)
        if state is not None:
            self.size -= size
            return state
        return torch.load(self.folder / f"{rate!r}.pt", weights_only=False)

    def drop(self, rate: float, size: int) -> None:
        """Forget a state, if it is there: its trial does not go on."""
        if self.held.pop(rate, None) is not None:
            self.size -= size
        (self.folder / f"{rate!r}.pt").unlink(missing_ok=True)

    def end(self, found: Mapping[str, Any]) -> None:
        """The pilot has come to its end and found this."""


class Journal(Shelf):
    """A shelf that outlives the process: a file for each trial with its losses and state, at the end one for all.

    A file is replaced whole when its trial has gone on. One that is damaged counts as not there, so that its trial is
    trained anew; one of another forecast is refused.
    """

    outlives: ClassVar[bool] = True

    def __init__(self, device: torch.device, folder: Path, kept: Path, identity: Mapping[str, str]) -> None:
        super().__init__(device, folder)
        require_writable(kept)
        self.kept, self.identity = kept, dict(identity)
        self.finished = self._read(kept / "pilot.pt")
        if self.finished:
            self._clear()  # its process may have been killed before it did
        entries = (self._read(path) for path in kept.glob("rate_*.pt"))
        self.seen: dict[float, list[float]] = {entry["rate"]: entry["losses"] for entry in entries if entry}

    def losses(self, rate: float) -> list[float]:
        """Losses of the trial that another process has seen."""
        return self.seen.get(rate, [])

    def put(self, rate: float, losses: list[float], state: Any, size: int) -> None:
        """Keep a state and the losses until then, for this process and for one after it."""
        self._write(self._path(rate), {"rate": rate, "losses": losses, "state": state})
        super().put(rate, losses, state, size)

    def take(self, rate: float, size: int) -> Any:
        """Give a state back, which may be that of another process."""
        return super().take(rate, size) if rate in self.held else read_checkpoint(self._path(rate))["state"]

    def end(self, found: Mapping[str, Any]) -> None:
        """Keep what was found; the states have done their work."""
        self._write(self.kept / "pilot.pt", found)
        self._clear()

    def _clear(self) -> None:
        for path in self.kept.glob("rate_*.pt"):
            path.unlink(missing_ok=True)

    def _path(self, rate: float) -> Path:
        return self.kept / f"rate_{rate!r}.pt"

    def _write(self, path: Path, entry: Mapping[str, Any]) -> None:
        Keeper(path).write({"began_as": self.identity, **entry})

    def _read(self, path: Path) -> dict[str, Any] | None:
        try:
            entry = read_checkpoint(path) if path.is_file() else None
        except BrokenFileError:
            return None
        if entry is not None:
            require_same_run(self.kept, entry.get("began_as", {}), self.identity)
        return entry


def pilot_identity(
    model: nn.Module, source: Source, loss: LossFunction, choice: OptimizerChoice, batches: int
) -> dict[str, str]:
    """All that decides what a pilot sees, but for its cost and seed: so many first batches are read for it."""
    own = NAMED.get(choice.name) is not choice.factory
    data = [identity_of(batch) for batch in itertools.islice(source.batches(0), batches)]
    return {
        "model": identity_of(model)[:DIGITS],
        "data": identity_of(data)[:DIGITS],
        "loss": identity_of(loss.asked)[:DIGITS],
        "optimizer": identity_of(choice.factory)[:DIGITS] if own else choice.name,
        "rates": " ".join(map(repr, choice.rates)),
        "version": f"{VERSION} with torch {torch.__version__}",
    }
