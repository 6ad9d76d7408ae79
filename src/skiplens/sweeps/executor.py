"""Where runs are done: the abstract executor, this process, and worker processes of this machine."""

import multiprocessing
import os
import pickle
import signal
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from unittest import mock

import torch

from skiplens.base import budget_bytes, refuse_if
from skiplens.sweeps.run import Failure, Outcome, Run, perform

Running = Callable[[int], None]  # called with the number of runs being done now
# Each library below torch has threads of its own; more than one a worker and the workers fight over the cores.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
ELSEWHERE = "Use a machine or a cluster (--scheduler) that has them, or a smaller preset."


class Executor(ABC):
    """Does runs somewhere. It neither stores readings nor tries a failed run again: that is the sweep's matter."""

    @abstractmethod
    def outcomes(self, queue: deque[Run], running: Running) -> Iterator[Outcome]:
        """One outcome for each run that is taken from `queue`, as they come, until the queue is empty.

        Whoever takes the outcomes may put further runs into the queue meanwhile.
        """


class ThisProcess(Executor):
    """One run after the other, here."""

    def outcomes(self, queue: deque[Run], running: Running) -> Iterator[Outcome]:
        """One outcome for each run, in order."""
        gpus = torch.cuda.device_count()
        while queue:
            run = queue.popleft()
            running(1)
            outcome = perform(run) if run.needs.gpus <= gpus else out_of_reach(run, gpus)
            running(0)
            yield outcome


def out_of_reach(run: Run, gpus: int, where: str = "here", advice: str = ELSEWHERE) -> Outcome:
    """The failure of a run that needs more GPUs than there are."""
    needed = f"The run needs {run.needs.gpus} GPU{'s' * (run.needs.gpus > 1)} and {gpus} can be used {where}."
    return Outcome(run, failure=Failure(f"{needed} {advice}"))


def available_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class LocalWorkers(Executor):
    """So many processes of this machine, each with one run at a time; a dead process fails its run only.

    Attributes:
        workers: Processes; runs with several threads take the place of several workers.
        memory: Bytes that runs may need together; half of what is free if not given.
    """

    workers: int
    memory: int | None = None

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        refuse_if(self.workers < 1, f"workers must be at least 1, got {self.workers}.")

    def outcomes(self, queue: deque[Run], running: Running) -> Iterator[Outcome]:
        """One outcome for each run, as they come."""
        gpus = torch.cuda.device_count()
        shares = _shares(min(self.workers, len(queue)), gpus, max((run.needs.gpus for run in queue), default=0))
        places = _Places(shares, budget_bytes("cpu", self.memory))
        try:
            while queue or places.busy:
                for run in [run for run in queue if run.needs.gpus > gpus]:
                    queue.remove(run)
                    yield out_of_reach(run, gpus)
                places.fill(queue)
                running(len(places.busy))
                yield from places.finished()
        finally:
            places.close()
            running(0)


@dataclass(eq=False)
class _Place:
    """A worker process and the run that it does."""

    process: SpawnProcess
    connection: Connection
    gpus: tuple[int, ...]
    run: Run | None = None

    @classmethod
    def start(cls, gpus: tuple[int, ...]) -> "_Place":
        spawn = multiprocessing.get_context("spawn")
        here, there = spawn.Pipe()
        process = spawn.Process(target=serve, args=(there, ",".join(map(str, gpus))), daemon=True)
        with mock.patch.dict(os.environ, _ONE_THREAD):  # the process inherits it
            process.start()
        there.close()
        return cls(process, here, gpus)

    def outcome(self) -> Outcome:
        """What became of the run; the place is free afterwards, or dead."""
        run, self.run = self.run, None
        assert run is not None
        try:
            return pickle.loads(self.connection.recv_bytes())
        except (EOFError, ConnectionError):
            self.process.join()
            return Outcome(run, failure=Failure(f"The worker process died with exit status {self.process.exitcode}."))

    def close(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.join()


class _Places:
    """The worker processes; a dead one is replaced when it is needed."""

    def __init__(self, shares: list[tuple[int, ...]], memory: int) -> None:
        self._threads, self._memory = len(shares), memory
        self._places = [_Place.start(share) for share in shares]

    @property
    def busy(self) -> list[_Place]:
        return [place for place in self._places if place.run is not None]

    def fill(self, queue: deque[Run]) -> None:
        """Start as many runs as there is room for, and take them from the queue."""
        for run in list(queue):
            place = self._room_for(run)
            if place is None:
                continue
            queue.remove(run)
            if not place.process.is_alive():
                place.close()
                index = self._places.index(place)
                place = self._places[index] = _Place.start(place.gpus)
            place.run = run
            with suppress(ConnectionError):  # the worker died meanwhile: its outcome will say so
                place.connection.send_bytes(pickle.dumps(run))

    def finished(self) -> Iterator[Outcome]:
        """Wait for at least one outcome."""
        ready = wait([place.connection for place in self.busy])
        yield from (place.outcome() for place in self.busy if place.connection in ready)

    def close(self) -> None:
        for place in self._places:
            place.close()

    def _room_for(self, run: Run) -> _Place | None:
        """A free place that has what the run needs; a run that needs more than there is goes alone."""
        needs = [place.run.needs for place in self._places if place.run is not None]
        threads = sum(need.threads for need in needs) + run.needs.threads
        memory = sum(need.memory for need in needs) + run.needs.memory
        if needs and (threads > self._threads or memory > self._memory):
            return None
        free = [place for place in self._places if place.run is None and len(place.gpus) >= run.needs.gpus]
        return min(free, key=lambda place: len(place.gpus), default=None)


def _shares(places: int, gpus: int, needed: int) -> list[tuple[int, ...]]:
    """The GPUs of each place: the first places get as many as the neediest run wants, the others none."""
    needed = min(needed, gpus)
    starts = (index * needed for index in range(places))
    return [tuple(range(start, start + needed)) if start + needed <= gpus else () for start in starts]


def serve(connection: Connection, gpus: str) -> None:
    """Do the runs that come through `connection`, one at a time; `gpus` is this worker's CUDA_VISIBLE_DEVICES.

    Pickled runs come, pickled outcomes go: bytes, because torch would send tensors as open files.
    """
    os.environ["CUDA_VISIBLE_DEVICES"] = gpus  # torch reads it when it first touches a GPU
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the parent's matter
    threading.Thread(target=_end_with_parent, daemon=True).start()
    while True:
        try:
            run = pickle.loads(connection.recv_bytes())
        except EOFError:
            return
        connection.send_bytes(pickle.dumps(perform(run)))


def _end_with_parent() -> None:
    """Die at once when the parent does, also in the middle of a run: nobody would take its outcome."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
