"""Runs on a Dask cluster; the one door to Dask."""

import secrets
import time
from collections import deque
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from skiplens.base.errors import ClusterError
from skiplens.base.optional_imports import optional_import
from skiplens.base.version import VERSION
from skiplens.sweeps.executor import Executor, Running, out_of_reach
from skiplens.sweeps.run import Failure, Outcome, Run, perform

_POLL_SECONDS = 0.5
START_GPU_WORKERS = "Start some with 'dask worker ADDRESS --resources GPU=1', or take a smaller preset."


class UnreachableError(ClusterError):
    """No scheduler answers."""


@dataclass(frozen=True)
class DaskCluster(Executor):
    """The workers of a Dask scheduler. Readings come back to this process, so workers need not share its disk.

    A scheduler that goes away is waited for; when it is back, what is missing is sent again.

    Attributes:
        address: Of the scheduler, such as ``"tcp://head:8786"``.
        patience: Seconds to wait for a scheduler that went away.
        timeout: Seconds to wait for the first answer.
    """

    address: str
    patience: float = 60.0
    timeout: float = 10.0

    def outcomes(self, queue: deque[Run], running: Running) -> Iterator[Outcome]:
        """One outcome for each run, as they come."""
        client = self._connected()
        while True:
            with closing(client):
                yield from _session(client, queue, running)
            if not queue:
                return
            client = self._connected_again(len(queue))

    def _connected(self) -> Any:
        made = _distributed().Client
        client = made.__new__(made)  # held before it is made: one that cannot connect is closed here
        try:
            client.__init__(self.address, timeout=self.timeout, set_as_default=False, name="skiplens")
            return client
        except (OSError, ValueError, AssertionError) as error:  # the last: its own thread took more than 10 s to begin
            # Else it closes itself when it is collected; if that falls into the start of another, both wait for ever.
            with suppress(Exception):
                client.close()
            raise UnreachableError(
                f"No Dask scheduler answers at {self.address} ({str(error) or 'its client did not start'}). "
                "Start one with 'dask scheduler', or work on this machine with --workers N."
            ) from error

    def _connected_again(self, missing: int) -> Any:
        until = time.monotonic() + self.patience
        while True:
            try:
                return self._connected()
            except UnreachableError as error:
                if time.monotonic() >= until:
                    raise ClusterError(
                        f"The Dask scheduler at {self.address} went away with {missing} runs to do. What was done is "
                        "kept. Start it again and give the same command: it goes on with what is missing."
                    ) from error
                time.sleep(_POLL_SECONDS)


def _session(client: Any, queue: deque[Run], running: Running) -> Iterator[Outcome]:
    """Outcomes until all are there or the scheduler is gone; then the queue holds what has no outcome."""
    futures: dict[Any, Run] = {}
    try:
        _require_versions(client)
        told = client.scheduler_info()
        has = [worker.get("resources", {}) for worker in told["workers"].values()]  # by dask worker --resources
        declared = {name for resources in has for name in resources}
        all_told = 0 < told.get("n_workers", len(has)) <= len(has)  # of many workers some versions list a few
        gpus = max(int(resources.get("GPU", 0)) for resources in has) if all_told else None
        while queue or futures:
            while queue:
                run = queue.popleft()
                if gpus is not None and run.needs.gpus > gpus:
                    yield out_of_reach(run, gpus, "by a worker of the cluster", START_GPU_WORKERS)
                    continue
                key = f"{run.key}-{secrets.token_hex(4)}"  # of its own: another client's result would not be checked
                resources = _resources(run, declared)
                futures[client.submit(perform, run, VERSION, key=key, pure=False, resources=resources)] = run
            if not futures:  # all that was left was refused
                continue
            running(_running(client, len(futures)))
            for future in _ended(client, futures):
                outcome = _outcome(futures[future], future)
                del futures[future]
                yield outcome
    except _Lost:
        queue.extend(futures.values())


class _Lost(Exception):  # noqa: N818 - a piece of news, not an error: whoever called connects again
    """The scheduler is gone."""


def _resources(run: Run, declared: set[str]) -> dict[str, float]:
    """What a worker must have left to take the run: GPUs always, memory where workers declare it."""
    resources = {"GPU": run.needs.gpus, "MEMORY": run.needs.memory if "MEMORY" in declared else 0}
    return {name: amount for name, amount in resources.items() if amount}


def _ended(client: Any, futures: dict[Any, Run]) -> list[Any]:
    """The futures that have an outcome, after waiting a moment for one."""
    distributed = _distributed()
    try:
        with client.as_current():
            distributed.wait(list(futures), timeout=_POLL_SECONDS, return_when="FIRST_COMPLETED")
    except (TimeoutError, distributed.CancelledError):
        pass
    ended = [future for future in futures if future.done()]
    if client.status != "running" or any(future.status in ("cancelled", "lost") for future in ended):
        raise _Lost
    return ended


def _outcome(run: Run, future: Any) -> Outcome:
    distributed = _distributed()
    try:
        error = future.exception(timeout=60)
        if error is None:
            return future.result(timeout=60)
    except (OSError, TimeoutError, distributed.CancelledError) as loss:
        raise _Lost from loss
    if isinstance(error, ClusterError):
        raise error
    return Outcome(run, failure=Failure(f"{type(error).__name__}: {error}"))


def _running(client: Any, pending: int) -> int:
    """Runs that workers have in hand."""
    try:
        return min(pending, sum(len(keys) for keys in client.processing().values()))
    except (OSError, TimeoutError, ValueError) as loss:
        raise _Lost from loss


def _require_versions(client: Any) -> None:
    """Refuse workers with another Skiplens before anything is sent; later ones refuse themselves (see `perform`)."""

    def installed() -> str:  # goes by value: an old worker need not know this module
        try:
            from skiplens.base import version
        except ImportError:
            return "none"
        return version.VERSION

    try:
        found = client.run(installed, on_error="ignore")  # a worker that dies now is not asked for anything
    except (OSError, TimeoutError) as loss:
        raise _Lost from loss
    others = {worker: version for worker, version in found.items() if version != VERSION}
    if others:
        listed = ", ".join(f"{version} at {worker}" for worker, version in sorted(others.items()))
        raise ClusterError(
            f"The command has Skiplens {VERSION}, and workers have another one: {listed}. "
            "Install the same version there and start them again."
        )


def _distributed() -> ModuleType:
    return optional_import("distributed", "runs on a Dask cluster", "skiplens[cluster]")
