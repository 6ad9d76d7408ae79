import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.readings.store import Store
from skiplens.sweeps.executor import LocalWorkers, _Places, _shares, available_cores
from skiplens.sweeps.run import Needs, Run, unfinished_path
from skiplens.sweeps.sweep import sweep
from tests.sweeps.measures import Probe, runs

ROOT = Path(__file__).parents[2]


def wait_until(condition, seconds: float = 600.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def assert_same_numbers(store: Store, expected: Store) -> None:
    assert list(store.keys()) == list(expected.keys())
    for key in expected.keys():
        assert torch.equal(store.load(key)["product"], expected.load(key)["product"])


@pytest.mark.slow
def test_a_worker_dies_and_a_run_fails_without_losing_another(tmp_path):
    """One worker for all, since it takes seconds to start; what it trained before it died is gone on with."""
    store, quick = Store(tmp_path / "store"), runs(count=2)
    (dying,) = runs("train_and_die_on_the_way", 1, marks=str(tmp_path))
    swept = sweep([*quick, dying, *runs("fail_at_three", 4)[3:]], store, LocalWorkers(1))
    assert [failure.error for failure in swept.failures.values()] == ["RuntimeError: three is not allowed"]
    torch.set_default_dtype(torch.float32)  # as in a worker
    (whole,) = runs("train_and_die_on_the_way", 1)
    undisturbed = sweep([*quick, whole], Store(tmp_path / "undisturbed")).readings
    for run in quick:
        assert torch.equal(swept.readings[run.key]["product"], undisturbed[run.key]["product"])
        assert int(swept.readings[run.key]["threads"]) == 1
    trained, expected = swept.readings[dying.key], undisturbed[whole.key]
    assert bool(trained["resumed"]) and not bool(expected["resumed"])
    assert torch.equal(trained["weights"], expected["weights"]) and torch.equal(trained["losses"], expected["losses"])
    assert not unfinished_path(store, dying.key).exists()


@pytest.mark.slow
def test_several_workers_die_for_good_without_losing_a_run(tmp_path):
    good, told = [*runs(count=4), *runs("die_once", 1, marks=str(tmp_path))], []
    store, expected = Store(tmp_path / "store"), Store(tmp_path / "expected")
    swept = sweep([*good, *runs("die_always", 1)], store, LocalWorkers(2), told.append)
    errors = {failure.error for failure in swept.failures.values()}
    assert errors == {"The worker process died with exit status -9."}
    assert max(status.running for status in told) == 2
    sweep(good, expected)
    assert_same_numbers(store, expected)


@pytest.mark.slow
def test_a_killed_command_goes_on_and_its_workers_do_not_survive_it(tmp_path):
    store, expected = Store(tmp_path / "store"), Store(tmp_path / "expected")
    command = [sys.executable, "-m", "tests.sweeps.client", str(store.folder), "local", "2"]
    assert subprocess.run(command, cwd=ROOT, timeout=600).returncode == -signal.SIGKILL
    children = (tmp_path / "store.children").read_text().split()
    done = {key: store.path(key).stat().st_mtime_ns for key in store.keys()}
    assert children and 2 <= len(done) < 12
    wait_until(lambda: not any(_alive(int(child)) for child in children))
    sweep(runs(count=12)[::-1], store)
    assert {key: store.path(key).stat().st_mtime_ns for key in done} == done
    sweep(runs(count=12), expected)
    assert_same_numbers(store, expected)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"


def test_no_workers_are_refused():
    with pytest.raises(InvalidInputError, match="workers must be at least 1, got 0"):
        LocalWorkers(0)


def test_there_is_a_core():
    assert 1 <= available_cores() <= os.cpu_count()


@pytest.mark.parametrize(
    ("places", "gpus", "needed", "shares"),
    [
        (3, 0, 0, [(), (), ()]),
        (3, 2, 1, [(0,), (1,), ()]),
        (2, 4, 2, [(0, 1), (2, 3)]),
        (2, 1, 2, [(0,), ()]),
        (2, 2, 0, [(), ()]),
    ],
)
def test_gpus_are_shared_out_by_what_runs_need(places, gpus, needed, shares):
    assert _shares(places, gpus, needed) == shares


class _Place:
    """A place without a process."""

    def __init__(self, gpus: tuple[int, ...] = (), run: Run | None = None) -> None:
        self.gpus, self.run = gpus, run


@pytest.fixture
def places(monkeypatch):
    monkeypatch.setattr("skiplens.sweeps.executor._Place.start", _Place)
    return _Places([(0,), (), ()], memory=100)


def needing(**needs: int) -> Run:
    return Run("a:b", Probe(), Needs(**needs))


def test_memory_threads_and_gpus_are_not_given_twice(places):
    assert places._room_for(needing(gpus=1)).gpus == (0,)
    assert places._room_for(needing()).gpus == ()
    places._places[1].run = needing(memory=80, threads=2)
    assert places._room_for(needing(memory=30)) is None
    assert places._room_for(needing(threads=2)) is None
    assert places._room_for(needing(memory=20)) is places._places[2]
    places._places[0].run = needing(gpus=1)
    assert places._room_for(needing(gpus=1)) is None


def test_a_run_that_needs_more_than_there_is_goes_alone(places):
    assert places._room_for(needing(memory=1000, threads=9)) is not None
