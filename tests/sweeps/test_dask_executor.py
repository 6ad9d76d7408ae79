"""A real cluster on loopback: a scheduler and workers as processes of their own, which are killed."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from skiplens.base.errors import ClusterError, MissingDependencyError
from skiplens.base.version import VERSION
from skiplens.readings.store import Store
from skiplens.sweeps import dask_executor
from skiplens.sweeps.dask_executor import DaskCluster, _Lost, _resources, _session
from skiplens.sweeps.run import Needs, Run
from skiplens.sweeps.sweep import sweep
from tests.sweeps.measures import Probe, runs
from tests.sweeps.test_local_executor import wait_until

ROOT = Path(__file__).parents[2]


class Cluster:
    """A scheduler and its workers."""

    def __init__(self, folder: Path) -> None:
        self.port = 0  # the scheduler takes one that is free, and has it again when it is started anew
        self.folder = folder
        self.scheduler: subprocess.Popen[bytes] | None = None
        self.workers: list[subprocess.Popen[bytes]] = []

    def start_scheduler(self) -> None:
        said = self.folder / "scheduler.json"
        said.unlink(missing_ok=True)
        flags = ("--host", "127.0.0.1", "--port", str(self.port), "--no-dashboard", "--scheduler-file", str(said))
        self.scheduler = self._start("distributed.cli.dask_scheduler", *flags)
        wait_until(lambda: self._answers(said))

    def _answers(self, said: Path) -> bool:
        with contextlib.suppress(OSError, ValueError):  # not there, or not whole yet
            self.address = json.loads(said.read_text())["address"]
            self.port = int(self.address.rpartition(":")[2])
            return True
        return False

    def start_worker(self) -> None:
        flags = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--death-timeout", "600")
        self.workers.append(self._start("distributed.cli.dask_worker", self.address, *flags))

    def kill_worker(self) -> None:
        worker = self.workers.pop(0)
        worker.kill()
        worker.wait()

    def stop(self) -> None:
        for process in (*self.workers, self.scheduler):
            if process is not None:
                process.kill()
                process.wait()

    def _start(self, module: str, *flags: str) -> subprocess.Popen[bytes]:
        paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
        with (self.folder / "cluster.log").open("ab") as log:
            command = [sys.executable, "-m", module, *flags]
            return subprocess.Popen(command, cwd=self.folder, env=environment, stdout=log, stderr=log)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[Cluster]:
    distributed = pytest.importorskip("distributed")
    started = Cluster(tmp_path_factory.mktemp("cluster"))
    started.start_scheduler()
    started.start_worker()
    with distributed.Client(started.address) as client:  # tests speak of a worker that is there
        client.wait_for_workers(1)
    yield started
    started.stop()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Store:
    """What an undisturbed sweep in one process gives."""
    store = Store(tmp_path_factory.mktemp("undisturbed"))
    sweep(runs(count=12), store)
    return store


def assert_as_undisturbed(store: Store, seconds: float, undisturbed: Store) -> None:
    """Same numbers, bit for bit; the key differs, since how long a run sleeps is a setting."""
    slow, quick = runs(count=12, seconds=seconds), runs(count=12)
    assert sorted(store.keys()) == sorted(run.key for run in slow)
    for one, other in zip(slow, quick, strict=True):
        assert torch.equal(store.load(one.key)["product"], undisturbed.load(other.key)["product"])


def executor(cluster: Cluster) -> DaskCluster:
    return DaskCluster(cluster.address, patience=600, timeout=60)


class Future:
    """A run that was done at once."""

    status = "finished"

    def __init__(self, outcome) -> None:
        self.outcome = outcome

    def done(self):
        return True

    def exception(self, timeout):
        return None

    def result(self, timeout):
        return self.outcome


class Client:
    """A connection that takes so many runs and is then lost."""

    def __init__(self, runs_until_lost: int) -> None:
        self.left, self.status = runs_until_lost, "running"

    def run(self, function, on_error):
        return {"worker": VERSION}

    def scheduler_info(self):
        return {"workers": {}}

    def submit(self, function, run, version, **options):
        self.left -= 1
        return Future(function(run, version))

    def processing(self):
        if self.left < 0:
            raise OSError("the scheduler is gone")
        return {}

    def as_current(self):
        return contextlib.nullcontext()

    def close(self):
        self.status = "closed"


def test_what_was_under_way_when_a_connection_is_lost_is_sent_again(tmp_path, monkeypatch, undisturbed):
    pytest.importorskip("distributed")
    clients = [Client(7), Client(100)]
    connections = iter(clients)
    monkeypatch.setattr(DaskCluster, "_connected", lambda self: next(connections))
    monkeypatch.setattr("distributed.wait", lambda futures, **options: None)
    store = Store(tmp_path)
    sweep(runs(count=12), store, DaskCluster("tcp://127.0.0.1:1"))
    assert [client.status for client in clients] == ["closed", "closed"]
    assert_as_undisturbed(store, 0.0, undisturbed)


@pytest.mark.slow
def test_a_killed_worker_and_a_killed_scheduler_lose_no_run(cluster, undisturbed, tmp_path):
    cluster.start_worker()
    store, told = Store(tmp_path), []

    def disturb() -> None:
        wait_until(lambda: len(list(store.keys())) >= 2)
        cluster.kill_worker()
        wait_until(lambda: len(list(store.keys())) >= 5)
        cluster.scheduler.kill()
        cluster.scheduler.wait()
        cluster.start_scheduler()
        cluster.start_worker()

    thread = threading.Thread(target=disturb)
    thread.start()
    swept = sweep(
        runs(count=12, seconds=0.3), store, DaskCluster(cluster.address, patience=600, timeout=60), told.append
    )
    thread.join()
    assert len(swept.readings) == 12 and not swept.failures
    assert_as_undisturbed(store, 0.3, undisturbed)
    done = [status.done for status in told]
    assert done == sorted(done), "a run was lost on the way"


@pytest.mark.slow
def test_a_killed_client_goes_on_with_what_is_missing(cluster, undisturbed, tmp_path):
    store = Store(tmp_path / "store")
    command = [sys.executable, "-m", "tests.sweeps.client", str(store.folder), cluster.address, "3"]
    assert subprocess.run(command, cwd=ROOT, timeout=600).returncode == -signal.SIGKILL
    before = {key: store.path(key).stat().st_mtime_ns for key in store.keys()}
    assert 3 <= len(before) < 12
    sweep(runs(count=12), store, executor(cluster))
    assert {key: store.path(key).stat().st_mtime_ns for key in before} == before, "a run was stored twice"
    assert_as_undisturbed(store, 0.0, undisturbed)


@pytest.mark.slow
def test_a_failing_run_is_recorded_and_a_measure_may_be_missing(cluster, tmp_path):
    chosen = [*runs("fail_at_three", 4)[2:], Run("tests.sweeps.nowhere:draw", Probe())]
    swept = sweep(chosen, Store(tmp_path / "store"), executor(cluster))
    assert len(swept.readings) == 1
    first, second = (swept.failures[run.key] for run in chosen[1:])  # whichever came first
    assert first.error == "RuntimeError: three is not allowed" and "in fail_at_three" in first.traceback
    assert "There is no module 'tests.sweeps.nowhere'" in second.error


def test_workers_with_another_version_are_refused(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr("skiplens.sweeps.dask_executor.VERSION", "9.9.9")
    with pytest.raises(ClusterError, match=r"The command has Skiplens 9.9.9, and workers have another one: .* at tcp"):
        sweep(runs(), Store(tmp_path), executor(cluster))
    assert not list(Store(tmp_path).keys())


def test_a_late_worker_with_another_version_refuses_the_work(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr("skiplens.sweeps.dask_executor._require_versions", lambda client: None)
    monkeypatch.setattr("skiplens.sweeps.dask_executor.VERSION", "9.9.9")
    with pytest.raises(ClusterError, match=r"A worker has Skiplens .*, the command has 9.9.9"):
        sweep(runs(), Store(tmp_path), executor(cluster))


def test_a_client_that_does_not_start_is_told(tmp_path, monkeypatch):
    """Distributed asserts that its own thread begins within ten seconds, which a busy machine may not keep."""
    distributed = pytest.importorskip("distributed")

    class Late:
        def __init__(self, *given, **named):
            raise AssertionError

        def close(self):
            closed.append(self)

    closed: list[Late] = []
    monkeypatch.setattr(distributed, "Client", Late)
    with pytest.raises(ClusterError, match=r"answers at tcp://127.0.0.1:1 \(its client did not start\)"):
        sweep(runs(), Store(tmp_path), DaskCluster("tcp://127.0.0.1:1", timeout=0.5))
    assert len(closed) == 1, "one that is left to itself may close while another starts, and both wait for ever"


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "tcp://127.0.0.1", "nonsense://x"])
def test_an_unreachable_scheduler_is_told(address, tmp_path):
    pytest.importorskip("distributed")
    with pytest.raises(ClusterError, match=f"No Dask scheduler answers at {address} .*--workers N"):
        sweep(runs(), Store(tmp_path), DaskCluster(address, timeout=0.5))


def test_a_scheduler_that_stays_away_ends_the_sweep(tmp_path):
    pytest.importorskip("distributed")
    with pytest.raises(ClusterError, match=r"went away with 7 runs to do. What was done is kept. Start it again"):
        DaskCluster("tcp://127.0.0.1:1", patience=0.1, timeout=0.2)._connected_again(7)


def test_gpus_and_declared_memory_become_resources():
    run = Run("a:b", Probe(), Needs(gpus=2, memory=100))
    assert _resources(run, set()) == {"GPU": 2}
    assert _resources(run, {"MEMORY"}) == {"GPU": 2, "MEMORY": 100}
    assert _resources(Run("a:b", Probe()), {"GPU", "MEMORY"}) == {}


def test_a_cluster_without_gpu_workers_refuses_gpu_runs_at_once(cluster, tmp_path):
    on_gpu = Run("tests.sweeps.measures:draw", Probe(seed=77), Needs(gpus=2))
    swept = sweep([on_gpu, *runs(count=2)], Store(tmp_path), executor(cluster))
    assert [failure.error for failure in swept.failures.values()] == [
        "The run needs 2 GPUs and 0 can be used by a worker of the cluster. Start some with "
        "'dask worker ADDRESS --resources GPU=1', or take a smaller preset."
    ]
    assert len(swept.readings) == 2


class Told:
    """A client of a scheduler that says this of its workers, and does a run at once."""

    status = "running"

    def __init__(self, workers: list[dict], **more: int) -> None:
        self.info = {"workers": dict(enumerate(workers)), **more}
        self.sent: list[Run] = []

    def scheduler_info(self):
        return self.info

    def submit(self, function, run, *given, **named):
        self.sent.append(run)
        raise _Lost  # what follows is Dask's work


@pytest.mark.parametrize(
    ("told", "is_sent"),
    [
        (Told([{"resources": {"GPU": 1.0}}, {}]), True),
        (Told([{"resources": {}}, {}]), False),
        (Told([]), True),  # workers may come yet
        (Told([{}], n_workers=9), True),  # a list of a few of them
        (Told([{}], n_workers=1), False),
    ],
    ids=["with one", "without", "no workers", "not all told", "all told"],
)
def test_a_gpu_run_is_sent_where_a_worker_may_have_one(told, is_sent, monkeypatch):
    monkeypatch.setattr(dask_executor, "_require_versions", lambda client: None)
    run = Run("tests.sweeps.measures:draw", Probe(), Needs(gpus=1))
    outcomes = list(_session(told, deque([run]), lambda running: None))
    assert told.sent == [run] * is_sent and len(outcomes) == (not is_sent)


def test_without_dask_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'skiplens\[cluster\]'"):
        sweep(runs(), Store(tmp_path), DaskCluster("tcp://127.0.0.1:1"))
