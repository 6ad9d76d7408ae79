"""Measurements beside the page: one at a time, the newest first, each in a thread, kept by the values it depends on."""

import atexit
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
_ENDING = threading.Event()
_THREADS: set[threading.Thread] = set()


@atexit.register
def _end_all() -> None:
    """Wait for measurements that run: a thread inside of torch would take the ending process down with an abort."""
    _ENDING.set()
    for thread in tuple(_THREADS):
        thread.join(30.0)  # seconds


class Abandoned(Exception):  # noqa: N818 - named after what happened
    """Nobody waits for the measurement any more."""


@dataclass(frozen=True)
class MeasurementStatus:
    """How far a measurement is."""

    state: Literal["waiting", "running", "done", "failed"]  # whether it waits for its turn, runs, is done, or failed
    label: str = ""  # what is being done
    done: int = 0  # steps that are finished
    total: int = 0  # steps in all; 0 where it is not known yet
    result: Any = None  # what was measured
    problem: str = ""  # why it failed, for a person

    @property
    def is_over(self) -> bool:
        """Whether nothing more will happen."""
        return self.state in ("done", "failed")


@dataclass
class _Job:
    """A measurement and when somebody last asked for it."""

    standing: MeasurementStatus = field(default_factory=lambda: MeasurementStatus("waiting"))
    wanted_at: float = field(default_factory=time.monotonic)

    def require_wanted(self, patience: float) -> None:
        """End the measurement if nobody has asked for it for so many seconds, or if the process ends."""
        if _ENDING.is_set() or time.monotonic() - self.wanted_at > patience:
            raise Abandoned


class Measurements:
    """What views measure. Results are pure functions of the values, so pages that share one do not see each other."""

    def __init__(self, most_kept: int = 64, patience: float = 1.5, patience_alone: float = 6.0) -> None:
        """No measurements yet; `most_kept` results will be kept."""
        self._most_kept = most_kept
        self._patience = patience  # seconds until one that nobody asked for again makes room for another that waits
        self._patience_alone = patience_alone  # where no other waits: a page in the background asks seldom
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
                thread = threading.Thread(target=self._perform, args=(key, job, view, values), daemon=True)
                _THREADS.add(thread)
                thread.start()
            job.wanted_at = time.monotonic()
            self._jobs.move_to_end(key)
            over = [key for key, job in self._jobs.items() if job.standing.is_over]
            for oldest in over[: max(0, len(self._jobs) - self._most_kept)]:
                del self._jobs[oldest]
            return job.standing

    def wait(self, view: View, values: Values) -> MeasurementStatus:
        """The measurement when it is over."""
        while not (standing := self.ask(view, values)).is_over:
            time.sleep(_POLL_SECONDS)
        return standing

    def _perform(self, key: Hashable, job: _Job, view: View, values: Values) -> None:
        """Runs in a thread of its own."""

        def progress(label: str, done: int, total: int) -> None:
            with self._lock:
                patience = self._patience if self._waiting() else self._patience_alone
            job.require_wanted(patience)
            job.standing = MeasurementStatus("running", label, done, total)

        try:
            self._take_turn(job)
            try:
                job.standing = MeasurementStatus("running", "starting")
                job.standing = MeasurementStatus("done", result=view.measure(values, progress))
            finally:
                self._turn.release()
        except Abandoned:
            with self._lock:
                self._jobs.pop(key, None)
        except SkiplensError as error:
            job.standing = MeasurementStatus("failed", problem=str(error))
        except Exception as error:
            _LOG.exception("The measurement of %s failed for %s", view.name, values)
            problem = f"The measurement failed: {type(error).__name__}: {error}"
            job.standing = MeasurementStatus("failed", problem=problem)
        finally:
            _THREADS.discard(threading.current_thread())

    def _take_turn(self, job: _Job) -> None:
        """Wait until no other measurement runs: each uses all cores, and taking models apart is not for two threads.

        Of those that wait, the one that was asked for last comes first: a moving slider leaves many behind.
        """
        while True:
            with self._lock:
                if job is self._waiting()[-1] and self._turn.acquire(blocking=False):
                    return
            job.require_wanted(self._patience)
            time.sleep(_POLL_SECONDS)

    def _waiting(self) -> list[_Job]:
        """The jobs that wait for their turn; the one that was asked for last comes last."""
        return [job for job in self._jobs.values() if job.standing.state == "waiting"]
