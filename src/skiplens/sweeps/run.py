"""One run of a sweep: a measure by its import name, its settings, what it needs, and what became of it."""

from dataclasses import dataclass
from pathlib import Path

from skiplens.core.errors import InvalidInputError
from skiplens.core.settings import Settings
from skiplens.readings import Reading


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
    """

    measure: str
    settings: Settings
    needs: Needs = Needs()
    cost: float = 1.0
    unfinished: Path | None = None

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
