"""A sweep: do the runs that the store lacks, keep each reading at once, try failed runs again, record what failed."""

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from skiplens.core.errors import InvalidInputError
from skiplens.readings import Reading, Store
from skiplens.sweeps.executor import Executor, ThisProcess
from skiplens.sweeps.failures import forget_failure, record_failure
from skiplens.sweeps.run import Failure, Outcome, Run
from skiplens.sweeps.standing import Clock, Standing, Watch, unwatched
from skiplens.sweeps.unfinished import forget_unfinished, unfinished_path

ATTEMPTS = 2
"""A failing run is tried once more, after all others and, if there are several, perhaps on another worker."""


@dataclass(frozen=True)
class Swept:
    """What a sweep gave, by the keys of the runs."""

    readings: Mapping[str, Reading]
    failures: Mapping[str, Failure]


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
    return _Sweep(_distinct(runs), store, watch).go(executor or ThisProcess(), attempts)


class _Sweep:
    def __init__(self, runs: Mapping[str, Run], store: Store, watch: Watch) -> None:
        self.store, self.watch, self.total = store, watch, len(runs)
        stored = ((key, store.load(key)) for key in runs)
        self.readings = {key: reading for key, reading in stored if reading is not None}
        missing = [
            replace(run, unfinished=unfinished_path(store, key))
            for key, run in runs.items()
            if key not in self.readings
        ]
        self.queue = deque(sorted(missing, key=lambda run: -run.cost))
        self.failures: dict[str, Failure] = {}
        self.tries: Counter[str] = Counter()
        self.running = 0
        self.clock = Clock(sum(run.cost for run in missing))

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
            forget_unfinished(self.store, run.key)
        if outcome.reading is not None:
            self.store.save(run.key, outcome.reading)
            forget_failure(self.store, run.key)
            forget_unfinished(self.store, run.key)
            self.readings[run.key] = outcome.reading
        elif self.tries[run.key] < attempts:
            self.queue.append(run)
            return
        else:
            assert outcome.failure is not None, "an outcome has a reading or a failure"
            record_failure(self.store, outcome)
            self.failures[run.key] = outcome.failure
        self.clock.passed(run.cost)
        self._tell()

    def _runs(self, count: int) -> None:
        if count != self.running:
            self.running = count
            self._tell()

    def _tell(self) -> None:
        left = self.clock.seconds_left()
        self.watch(Standing(len(self.readings), self.running, len(self.failures), self.total, left))


def _distinct(runs: Sequence[Run]) -> dict[str, Run]:
    """The runs by key; the same run may be asked for twice."""
    found: dict[str, Run] = {}
    for run in runs:
        first = found.setdefault(run.key, run)
        if (first.measure, first.settings) != (run.measure, run.settings):
            raise InvalidInputError(
                f"Two different runs have the key {run.key}: {first.measure} and {run.measure}. Rename one function."
            )
    return found
