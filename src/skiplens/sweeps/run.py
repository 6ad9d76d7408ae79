"""One run of a sweep: its measure, settings and needs, what became of it, and what it keeps on the way."""

import json
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

import torch

from skiplens.base import ClusterError, InvalidInputError, Settings, free_bytes, require_fits
from skiplens.base.files import read_json, write_content
from skiplens.base.import_by_name import import_by_name
from skiplens.base.preserve_state import full_precision, threads
from skiplens.base.version import VERSION
from skiplens.readings import Measurement, Provenance, Reading, Store

_OWNER = "sweep.json"
_PLACE: ContextVar[Path | None] = ContextVar("unfinished_work", default=None)


@dataclass(frozen=True)
class Needs:
    """What a run needs of the place where it is done.

    Attributes:
        threads: It computes with exactly so many, wherever it is done, so its numbers are the same everywhere.
        gpus: GPUs.
        memory: Bytes, as far as they are known beforehand.
    """

    threads: int = 1
    gpus: int = 0
    memory: int = 0

    def __post_init__(self) -> None:
        """Refuse needs that mean nothing."""
        if self.threads < 1 or self.gpus < 0 or self.memory < 0:
            raise InvalidInputError(f"A run needs at least one thread and nothing negative, got {self}.")


@dataclass(frozen=True)
class Run:
    """One independent piece of work.

    Attributes:
        measure: ``"package.module:function"``; the function takes the settings and returns a reading, or tensors by
            name.
        settings: Everything the numbers depend on, the seed included.
        needs: Of the worker.
        cost: Expected time in any unit, for the order of work and the time left.
        unfinished: Where it may keep its work, if anywhere; the sweep says so.
        lacks: Why it cannot be done on this machine, such as data that are not here; its reading may still be stored.
    """

    measure: str
    settings: Settings
    needs: Needs = Needs()
    cost: float = 1.0
    unfinished: Path | None = None
    lacks: str = ""

    @property
    def key(self) -> str:
        """Names the file in the store: the measure's name and the hash of the settings."""
        return f"{self.measure.rpartition(':')[2]}-{self.settings.key()}"

    def __str__(self) -> str:
        """The measure and what differs from the default settings."""
        return f"{self.measure.rpartition(':')[2]} {self.settings}"


@dataclass(frozen=True)
class Failure:
    """Why a run gave no reading.

    Attributes:
        error: In one line.
        traceback: Where it came from; empty where the worker died.
    """

    error: str
    traceback: str = ""


@dataclass(frozen=True)
class Outcome:
    """What became of a run: a reading or a failure."""

    run: Run
    reading: Reading | None = None
    failure: Failure | None = None


def perform(run: Run, version: str = VERSION) -> Outcome:
    """The outcome of `run`; an error of the measure is an outcome too, another `version` than the asking one is not."""
    if version != VERSION:
        raise ClusterError(
            f"A worker has Skiplens {VERSION}, the command has {version}: their numbers could differ. "
            "Install the same version on all workers and start them again."
        )
    try:
        return Outcome(run, reading=_measured(run))
    except Exception as error:
        return Outcome(run, failure=Failure(f"{type(error).__name__}: {error}", traceback.format_exc()))


def _measured(run: Run) -> Reading:
    require_fits(run.needs.memory, f"{run}", "Use a smaller preset or a larger machine.", free_bytes())
    device = "cuda" if run.needs.gpus else "cpu"
    stopwatch = Provenance.begin(run.settings.to_json(), getattr(run.settings, "seed", None), device)
    with threads(run.needs.threads), full_precision(), keeping(run.unfinished):
        found = import_by_name(run.measure)(run.settings)
    if isinstance(found, Reading):
        return found
    if not isinstance(found, Mapping) or not all(isinstance(value, torch.Tensor) for value in found.values()):
        raise InvalidInputError(
            f"{run.measure} returned a {type(found).__name__}; a measure returns a reading, or tensors by name."
        )
    return Measurement(name=run.measure, arrays=found, provenance=stopwatch.end())


def unfinished_work() -> Path | None:
    """The file of the run being done, for ``train(..., checkpoint=unfinished_work())``; None where nothing is kept.

    The file is removed when the run's reading is stored, and when the measure raises an error, so that the next try
    begins anew. It stays when the worker is killed.
    """
    return _PLACE.get()


def unfinished_path(store: Store, key: str) -> Path:
    """Where the run called `key` may keep its work."""
    return store.path(key).parent.absolute() / "unfinished" / f"{key}.pt"


@contextmanager
def keeping(path: Path | None) -> Iterator[None]:
    """Let the run inside keep its work in `path`; a worker that does not reach the folder keeps nothing."""
    if path is not None:
        try:
            path.parent.mkdir(exist_ok=True)  # not its parents: without the store, this is another machine
        except OSError:
            path = None
    token = _PLACE.set(path)
    try:
        yield
    finally:
        _PLACE.reset(token)


def claim_folder(folder: Path | str, preset: str) -> None:
    """Note that `folder` holds runs of `preset`, or refuse it if it holds those of another one."""
    owner = owner_of(folder)
    if owner is None:
        write_content(Path(folder) / _OWNER, json.dumps({"preset": preset}) + "\n")
    elif owner != preset:
        raise InvalidInputError(
            f"{folder} holds runs of the preset {owner!r}, and {preset!r} was asked for. "
            "Give another folder with --out, or delete this one."
        )


def owner_of(folder: Path | str) -> str | None:
    """The preset whose runs are in `folder`, or None if nobody has claimed it."""
    note = Path(folder) / _OWNER
    try:
        return str(read_json(note)["preset"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInputError(f"{note} does not say which preset its folder is for ({error}). Delete it.") from error
