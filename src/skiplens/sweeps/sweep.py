"""A sweep: do the runs that the store lacks, keep each reading at once, try failed runs again, record what failed."""

import dataclasses
import itertools
import json
import platform
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from skiplens.base import InvalidInputError, Settings, SettingsError, require_known
from skiplens.base.files import write_content
from skiplens.base.version import VERSION
from skiplens.readings import Reading, Store
from skiplens.sweeps.executor import Executor, ThisProcess
from skiplens.sweeps.run import Failure, Outcome, Run, unfinished_path

ATTEMPTS = 2  # a failing run is tried once more, after all others and, if there are several, perhaps on another worker

Watch = Callable[["Status"], None]
S = TypeVar("S", bound=Settings)


@dataclass(frozen=True)
class Swept:
    """What a sweep gave, by the keys of the runs."""

    readings: Mapping[str, Reading]
    failures: Mapping[str, Failure]


@dataclass(frozen=True)
class Status:
    """A moment of a sweep.

    Attributes:
        done: Runs that are in the store, those of earlier commands included.
        running: Runs being done now.
        failed: Runs that failed and will not be tried again in this sweep.
        total: All runs.
        seconds_left: Expected; None before the first run of this command has ended.
    """

    done: int
    running: int
    failed: int
    total: int
    seconds_left: float | None = None

    def __str__(self) -> str:
        """In words."""
        parts = [f"{self.done} of {self.total} runs done"]
        parts += [f"{self.running} running"] * bool(self.running)
        parts += [f"{self.failed} failed"] * bool(self.failed)
        left = self.seconds_left if self.done + self.failed < self.total else None
        parts += [f"about {_duration(left)} left"] if left is not None else []
        return ", ".join(parts)


def unwatched(standing: Status) -> None:
    """Show nothing."""


def sweep(
    runs: Sequence[Run],
    store: Store,
    executor: Executor | None = None,
    watch: Watch = unwatched,
    attempts: int = ATTEMPTS,
) -> Swept:
    """The readings of all runs; those in the store are not done again.

    Each reading is stored, whole or not at all, as soon as it is there. So whatever is killed at whatever moment, the
    same call goes on with what is missing.

    Args:
        runs: Independent pieces of work; the costly ones start first.
        store: Where readings are kept.
        executor: Where runs are done; in this process if not given.
        watch: Called whenever a run starts or ends.
        attempts: How often a failing run is tried before its failure is recorded.
    """
    distinct: dict[str, Run] = {}  # the same run may be asked for twice
    for run in runs:
        first = distinct.setdefault(run.key, run)
        if (first.measure, first.settings) != (run.measure, run.settings):
            raise InvalidInputError(
                f"Two different runs have the key {run.key}: {first.measure} and {run.measure}. Rename one function."
            )
    return _Sweep(distinct, store, watch).go(executor or ThisProcess(), attempts)


class _Sweep:
    def __init__(self, runs: Mapping[str, Run], store: Store, watch: Watch) -> None:
        self.store, self.watch, self.total = store, watch, len(runs)
        stored = ((key, store.load(key)) for key in runs)
        self.readings = {key: reading for key, reading in stored if reading is not None}
        missing = [run for key, run in runs.items() if key not in self.readings]
        kept = (replace(run, unfinished=unfinished_path(store, run.key)) for run in missing)
        self.queue = deque(sorted(kept, key=lambda run: -run.cost))
        self.failures: dict[str, Failure] = {}
        self.tries: Counter[str] = Counter()
        self.running = 0
        self.costs = _relative(missing)
        self.ahead, self.behind = sum(self.costs.values()), 0.0
        self.began = time.monotonic()

    def go(self, executor: Executor, attempts: int) -> Swept:
        self._tell()
        if self.queue:
            self.store.folder.mkdir(parents=True, exist_ok=True)
            for outcome in executor.outcomes(self.queue, self._runs):
                self._take(outcome, attempts)
        return Swept(self.readings, self.failures)

    def _take(self, outcome: Outcome, attempts: int) -> None:
        """Store a reading; put a failed run at the end of the queue, or record its failure."""
        run = outcome.run
        self.tries[run.key] += 1
        if outcome.failure is not None and outcome.failure.traceback:  # it failed by itself: the next try begins anew
            unfinished_path(self.store, run.key).unlink(missing_ok=True)
        if outcome.reading is not None:
            self.store.save(run.key, outcome.reading)
            failure_path(self.store, run.key).unlink(missing_ok=True)
            unfinished_path(self.store, run.key).unlink(missing_ok=True)
            self.readings[run.key] = outcome.reading
        elif self.tries[run.key] < attempts:
            self.queue.append(run)
            return
        else:
            assert outcome.failure is not None, "an outcome has a reading or a failure"
            self.failures[run.key] = outcome.failure
            content = {"run": str(run), "measure": run.measure, "settings": run.settings.to_json()}
            content |= {"error": outcome.failure.error, "traceback": outcome.failure.traceback}
            content |= {"skiplens": VERSION, "host": platform.node()}
            write_content(failure_path(self.store, run.key), json.dumps(content, indent=1, ensure_ascii=False))
        self.ahead, self.behind = self.ahead - self.costs[run.key], self.behind + self.costs[run.key]
        self._tell()

    def _runs(self, count: int) -> None:
        if count != self.running:
            self.running = count
            self._tell()

    def _tell(self) -> None:
        # the pace of the runs so far, by their cost
        pace = (time.monotonic() - self.began) / self.behind if self.behind else None
        left = None if pace is None else max(0.0, self.ahead) * pace
        self.watch(Status(len(self.readings), self.running, len(self.failures), self.total, left))


def _relative(runs: Sequence[Run]) -> dict[str, float]:
    """What each run costs, by key, over the mean of its measure: other measures count in other units."""
    every: dict[str, list[float]] = {}
    for run in runs:
        every.setdefault(run.measure, []).append(run.cost)
    return {run.key: run.cost * len(every[run.measure]) / (sum(every[run.measure]) or 1.0) for run in runs}


def grid(base: S, **axes: Iterable[Any]) -> tuple[S, ...]:
    """`base` with every combination of the given values; the last axis changes fastest.

    Examples:
        >>> from skiplens.base.settings import Settings, option
        >>> class Probe(Settings):
        ...     depth: int = option(1, "residual blocks")
        ...     seed: int = option(0, "names every draw")
        >>> [(probe.depth, probe.seed) for probe in grid(Probe(), depth=(5, 10), seed=range(2))]
        [(5, 0), (5, 1), (10, 0), (10, 1)]
    """
    known = [field.name for field in dataclasses.fields(base)]
    for name in axes:
        require_known(name, known, f"{type(base).__name__} has no setting {name!r}.", SettingsError)
    combinations = itertools.product(*(tuple(values) for values in axes.values()))
    return tuple(dataclasses.replace(base, **dict(zip(axes, values, strict=True))) for values in combinations)


def failure_path(store: Store, key: str) -> Path:
    """Where the failure of the run called `key` is, or would be, recorded."""
    return store.path(key).parent / "failed" / f"{key}.json"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
