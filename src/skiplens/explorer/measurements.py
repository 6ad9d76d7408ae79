"""Measurements beside the page: one at a time, the newest first, in one thread, kept by the values they depend on."""

import atexit
import logging
import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import Any, Literal

from skiplens.base import SkiplensError
from skiplens.base.memory import CEILING
from skiplens.explorer.view import Values, View

_LOG = logging.getLogger(__name__)
_POLL_SECONDS = 0.05
MOST_WAITING = 16  # measurements; where more are asked for, those asked for first are forgotten
MOST_BYTES = 2**31  # that a measurement plans with
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


@dataclass(eq=False)
class _Job:
    """A measurement and when somebody last asked for it."""

    view: View
    values: Values
    standing: MeasurementStatus = field(default_factory=lambda: MeasurementStatus("waiting"))
    wanted_at: float = 0.0


class Measurements:
    """What views measure. Results are pure functions of the values, so pages that share one do not see each other.

    One thread does them one after the other: each uses all cores, and taking models apart is not for two threads. Of
    those that wait the one that was asked for last comes first: a moving slider leaves many behind.
    """

    def __init__(self, most_kept: int = 64, patience: float = 1.5, patience_alone: float = 6.0) -> None:
        """No measurements yet; `most_kept` results will be kept."""
        self._most_kept = most_kept
        self._patience = patience  # seconds until one that nobody asked for again makes room for another that waits
        self._patience_alone = patience_alone  # where no other waits: a page in the background asks seldom
        self._jobs: OrderedDict[Hashable, _Job] = OrderedDict()
        self._lock = threading.Lock()
        self._worker: threading.Thread | None = None

    def ask(self, view: View, values: Values) -> MeasurementStatus:
        """How far the measurement for these values is; it is started if there is none."""
        key = (view.name, tuple(sorted(values.items())))
        with self._lock:
            job = self._jobs.setdefault(key, _Job(view, values))
            job.wanted_at = monotonic()
            self._jobs.move_to_end(key)
            self._make_room()
            if self._worker is None and job.standing.state == "waiting":
                self._worker = threading.Thread(target=self._work, daemon=True)
                _THREADS.add(self._worker)
                self._worker.start()
            return job.standing

    def wait(self, view: View, values: Values) -> MeasurementStatus:
        """The measurement when it is over."""
        while not (standing := self.ask(view, values)).is_over:
            sleep(_POLL_SECONDS)
        return standing

    def _make_room(self) -> None:
        """Forget the oldest results, and those of the waiting that nobody wants any more or that are too many."""
        over = [key for key, job in self._jobs.items() if job.standing.is_over]
        waiting = self._waiting()
        unwanted = [key for key in waiting if monotonic() - self._jobs[key].wanted_at > self._patience]
        for key in (*over[: max(0, len(self._jobs) - self._most_kept)], *waiting[:-MOST_WAITING], *unwanted):
            self._jobs.pop(key, None)

    def _waiting(self) -> list[Hashable]:
        """Those that wait for their turn; the one that was asked for last comes last."""
        return [key for key, job in self._jobs.items() if job.standing.state == "waiting"]

    def _work(self) -> None:
        """Runs in a thread of its own, until nothing waits."""
        CEILING.set(MOST_BYTES)
        while (key := self._next()) is not None:
            self._perform(key)
        _THREADS.discard(threading.current_thread())

    def _next(self) -> Hashable | None:
        with self._lock:
            waiting = self._waiting()
            if not waiting or _ENDING.is_set():
                self._worker = None  # with the lock: whoever asks next starts another
                return None
            self._jobs[waiting[-1]].standing = MeasurementStatus("running", "starting")
            return waiting[-1]

    def _perform(self, key: Hashable) -> None:
        job = self._jobs[key]

        def progress(label: str, done: int, total: int) -> None:
            with self._lock:
                patience = self._patience if self._waiting() else self._patience_alone
            if _ENDING.is_set() or monotonic() - job.wanted_at > patience:
                raise Abandoned
            job.standing = MeasurementStatus("running", label, done, total)

        try:
            job.standing = MeasurementStatus("done", result=job.view.measure(job.values, progress))
        except Abandoned:
            with self._lock:
                self._jobs.pop(key, None)
        except SkiplensError as error:
            job.standing = MeasurementStatus("failed", problem=str(error))
        except BaseException as error:  # also SystemExit: the thread is there for the others too
            _LOG.exception("The measurement of %s failed for %s", job.view.name, job.values)
            problem = f"The measurement failed: {type(error).__name__}: {error}"
            job.standing = MeasurementStatus("failed", problem=problem)
