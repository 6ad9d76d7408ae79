import errno
import json
import os

import pytest
import torch

from skiplens.base.errors import InvalidInputError, SkiplensError
from skiplens.readings.store import Store
from skiplens.sweeps.run import Needs, Run
from skiplens.sweeps.sweep import Status, failure_path, sweep
from tests.sweeps.measures import Probe, runs


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "store")


def modified(store: Store) -> dict[str, int]:
    return {key: store.path(key).stat().st_mtime_ns for key in store.keys()}


def test_every_run_is_stored_under_its_key(store):
    swept = sweep(runs(), store)
    assert set(swept.readings) == set(store.keys()) == {run.key for run in runs()}
    assert not swept.failures


def test_what_is_stored_is_not_done_again(store):
    first = sweep(runs(count=3), store)
    before = modified(store)
    second = sweep(runs(count=5), store)
    assert {key: time for key, time in modified(store).items() if key in before} == before
    for key, reading in first.readings.items():
        assert torch.equal(second.readings[key]["product"], reading["product"])


def test_a_broken_file_is_done_again(store):
    expected = sweep(runs(), store).readings[runs()[2].key]["product"]
    store.path(runs()[2].key).write_bytes(b"PK rubbish")
    with pytest.warns(UserWarning, match="the run will be done again"):
        swept = sweep(runs(), store)
    assert torch.equal(swept.readings[runs()[2].key]["product"], expected)


def test_a_failing_run_is_recorded_with_its_traceback_and_the_rest_goes_on(store):
    chosen = runs("fail_at_three", 6)
    swept = sweep(chosen, store)
    assert len(swept.readings) == 5
    assert list(swept.failures) == [chosen[3].key]
    record = json.loads(failure_path(store, chosen[3].key).read_text())
    assert record["error"] == "RuntimeError: three is not allowed"
    assert "in fail_at_three" in record["traceback"] and record["settings"]["seed"] == 3


def test_a_run_that_fails_once_is_tried_again(store, tmp_path):
    swept = sweep(runs("fail_once", 3, marks=str(tmp_path)), store)
    assert len(swept.readings) == 3 and not swept.failures


def test_an_earlier_failure_is_forgotten_when_the_run_succeeds(store, tmp_path):
    chosen = runs("fail_once", 2, marks=str(tmp_path))
    assert len(sweep(chosen, store, attempts=1).failures) == 2
    assert failure_path(store, chosen[0].key).exists()
    assert not sweep(chosen, store, attempts=1).failures
    assert not failure_path(store, chosen[0].key).exists()


def test_it_tells_how_it_stands(store):
    told: list[Status] = []
    sweep(runs("fail_at_three", 4), store, watch=told.append)
    assert (told[0].done, told[0].total) == (0, 4)
    assert (told[-1].done, told[-1].failed, told[-1].running) == (3, 1, 0)
    assert any(standing.running == 1 for standing in told)


def test_costly_runs_start_first(store):
    costs = [1.0, 3.0, 2.0]
    chosen = [Run("tests.sweeps.measures:draw", Probe(seed=i), cost=cost) for i, cost in enumerate(costs)]
    assert list(sweep(chosen, store).readings) == [chosen[i].key for i in (1, 2, 0)]


def test_the_same_run_may_be_asked_for_twice(store):
    assert len(sweep(runs(count=2) + runs(count=2), store).readings) == 2


def test_two_measures_under_one_name_are_refused(store):
    with pytest.raises(InvalidInputError, match="Two different runs have the key"):
        sweep([Run("a.b:draw", Probe()), Run("c.d:draw", Probe())], store)


def test_a_run_that_needs_a_gpu_fails_where_there_is_none(store, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    swept = sweep([Run("tests.sweeps.measures:draw", Probe(), Needs(gpus=1)), *runs(count=2, seconds=0.01)], store)
    assert [failure.error for failure in swept.failures.values()] == [
        "The run needs 1 GPU and 0 can be used here. Use a machine or a cluster (--scheduler) that has them, "
        "or a smaller preset."
    ]
    assert len(swept.readings) == 2


def test_a_full_disk_ends_the_sweep_with_one_error_and_nothing_half_written(store, monkeypatch):
    sweep(runs(count=2), store)
    kept = modified(store)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SkiplensError, match=r"No space left on device. Nothing was changed; free some space"):
        sweep(runs(count=5), store)
    monkeypatch.undo()
    assert modified(store) == kept
    assert not list(store.folder.glob(".*"))
    assert len(sweep(runs(count=5), store).readings) == 5
