"""Measurements beside the page: one at a time, the newest first, each in a thread, kept by the values it depends on."""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Literal

from skiplens.base.errors import SkiplensError
from skiplens.explorer.view import Values, View

_LOG = logging.getLogger(__name__)

_POLL_SECONDS = 0.05


class Abandoned(Exception):  # noqa: N818 - named after what happened
    """Nobody waits for the measurement any more."""


@dataclass(frozen=True)
class MeasurementStatus:
    """How far a measurement is.

    Attributes:
        state: Whether it waits for its turn, runs, is done, or failed.
        label: What is being done.
        done: Steps that are finished.
        total: Steps in all; 0 where it is not known yet.
        result: What was measured.
        problem: Why it failed, for a person.
    """

    state: Literal["waiting", "running", "done", "failed"]
    label: str = ""
    done: int = 0
    total: int = 0
    result: Any = None
    problem: str = ""

    @property
    def is_over(self) -> bool:
        """Whether nothing more will happen."""
        return self.state in ("done", "failed")


@dataclass
class _Job:
    """A measurement and when somebody last asked for it."""

    standing: MeasurementStatus = field(default_factory=lambda: MeasurementStatus("waiting"))
    wanted_at: float = field(default_factory=time.monotonic)


class Measurements:
    """What views measure. Results are pure functions of the values, so pages that share one do not see each other."""

    def __init__(self, most_kept: int = 64, patience: float = 1.5, patience_alone: float = 6.0) -> None:
        """No measurements yet.

        Args:
            most_kept: How many results are kept at most.
            patience: Seconds after which a measurement that nobody asked for again makes room for another that waits.
            patience_alone: The same where no other waits: a page in the background asks seldom.
        """
        self._most_kept = most_kept
        self._patience = patience
        self._patience_alone = patience_alone
        self._jobs: OrderedDict[Hashable, _Job] = OrderedDict()
        self._lock = threading.Lock()
        self._turn = threading.Lock()

    def ask(self, view: View, values: Values) -> MeasurementStatus:
        """How far the measurement for these values is; it is started if there is none."""
        key = (view.name, tuple(sorted(values.items())))
        with self._lock:
            job = self._jobs.get(key)
            if job is None:
                job = self._jobs[key] = _Job()
                threading.Thread(target=self._perform, args=(key, job, view, values), daemon=True).start()
            job.wanted_at = time.monotonic()
            self._jobs.move_to_end(key)
            self._forget_oldest()
            return job.standing

    def wait(self, view: View, values: Values) -> MeasurementStatus:
        """The measurement when it is over."""
        standing = self.ask(view, values)
        while not standing.is_over:
            time.sleep(_POLL_SECONDS)
            standing = self.ask(view, values)
        return standing

    def _forget_oldest(self) -> None:
        over = [key for key, job in self._jobs.items() if job.standing.is_over]
        for key in over[: max(0, len(self._jobs) - self._most_kept)]:
            del self._jobs[key]

    def _perform(self, key: Hashable, job: _Job, view: View, values: Values) -> None:
        try:
            job.standing = self._measured(job, view, values)
        except Abandoned:
            with self._lock:
                self._jobs.pop(key, None)

    def _measured(self, job: _Job, view: View, values: Values) -> MeasurementStatus:
        def progress(label: str, done: int, total: int) -> None:
            _require_wanted(job, self._patience_now())
            job.standing = MeasurementStatus("running", label, done, total)

        self._take_turn(job)
        try:
            job.standing = MeasurementStatus("running", "starting")
            return MeasurementStatus("done", result=view.measure(values, progress))
        except Abandoned:
            raise
        except SkiplensError as error:
            return MeasurementStatus("failed", problem=str(error))
        except Exception as error:
            _LOG.exception("The measurement of %s failed for %s", view.name, values)
            return MeasurementStatus("failed", problem=f"The measurement failed: {type(error).__name__}: {error}")
        finally:
            self._turn.release()

    def _take_turn(self, job: _Job) -> None:
        """Wait until no other measurement runs: each uses all cores, and taking models apart is not for two threads."""
        while not self._has_turn(job):
            _require_wanted(job, self._patience)
            time.sleep(_POLL_SECONDS)

    def _has_turn(self, job: _Job) -> bool:
        """Take the turn if it is free and none that waits was asked for later: a moving slider leaves many behind."""
        with self._lock:
            return job is self._waiting()[-1] and self._turn.acquire(blocking=False)

    def _waiting(self) -> list[_Job]:
        """The jobs that wait for their turn; the one that was asked for last comes last."""
        return [job for job in self._jobs.values() if job.standing.state == "waiting"]

    def _patience_now(self) -> float:
        """For the job that runs."""
        with self._lock:
            return self._patience if self._waiting() else self._patience_alone


def _require_wanted(job: _Job, patience: float) -> None:
    if time.monotonic() - job.wanted_at > patience:
        raise Abandoned
