"""A run on disk: everything needed to go on where it was, in a file that cannot run code."""

import errno
import pickle
import time
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from skiplens.core.errors import BrokenFileError, InvalidInputError, TooNewFileError
from skiplens.core.files import write_atomically

FORMAT = "skiplens-training"
FORMAT_VERSION = 1
# What zipfile and torch say to damaged bytes, and to a pickle that would run code.
_DAMAGE = (pickle.UnpicklingError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, KeyError)


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

    def read(self) -> dict[str, Any] | None:
        """The state of the run on disk, or None where there is none yet."""
        return read_checkpoint(self.path) if self.path is not None and self.path.exists() else None


def read_checkpoint(path: Path | str) -> dict[str, Any]:
    """The state of a run from `path`; tensors are on the CPU."""
    path = Path(path)
    try:
        state = _checked_state(path)
    except (*_DAMAGE, OSError) as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:  # the disk's trouble, not the file's
            raise
        raise BrokenFileError(
            f"{path} is not a whole checkpoint of a training run ({type(error).__name__}). "
            "Delete it to train from the start."
        ) from error
    if not isinstance(state, Mapping) or state.get("format") != FORMAT:
        raise BrokenFileError(f"{path} was not written by a training run of Skiplens; choose another file.")
    if state["format_version"] > FORMAT_VERSION:
        raise TooNewFileError(f"{path} was written by a newer Skiplens. Upgrade with: pip install -U skiplens")
    return dict(state)


def _checked_state(path: Path) -> Any:
    """What the file holds, its checksums compared first: torch writes them but does not look at them."""
    with zipfile.ZipFile(path) as archive:
        damaged = archive.testzip()
    if damaged is not None:
        raise zipfile.BadZipFile(f"the checksum of {damaged} is wrong")
    return torch.load(path, map_location="cpu", weights_only=True)


def require_same_run(path: Path, kept: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Refuse to go on with a run that began otherwise than this one."""
    different = [f"{name} ({kept.get(name)} there, {here[name]} here)" for name in here if kept.get(name) != here[name]]
    if different:
        raise InvalidInputError(
            f"{path} holds another run, which differs in {', '.join(different[:3])}. "
            "Give this run a file of its own, or delete that one to begin anew."
        )


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Copies of all parameters and buffers on the CPU, by name; also of buffers that `state_dict` leaves out."""
    named = [*model.named_parameters(), *model.named_buffers()]
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in named}


def restore_weights_(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Put the values of `weights_of` into the model's own tensors."""
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            tensor.copy_(weights[name])
