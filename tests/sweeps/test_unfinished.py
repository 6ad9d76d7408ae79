import torch

from skiplens.readings.store import Store
from skiplens.sweeps.executor import LocalWorkers
from skiplens.sweeps.run import keeping, unfinished_path, unfinished_work
from skiplens.sweeps.sweep import sweep
from tests.sweeps.measures import runs


def test_a_killed_training_run_goes_on_where_it_was_with_the_same_numbers(tmp_path):
    store, expected = Store(tmp_path / "store"), Store(tmp_path / "expected")
    (run,) = runs("train_and_die_on_the_way", 1, marks=str(tmp_path))
    (reading,) = sweep([run], store, LocalWorkers(1)).readings.values()
    torch.set_default_dtype(torch.float32)  # as in a worker
    (undisturbed,) = sweep(runs("train_and_die_on_the_way", 1), expected).readings.values()
    assert bool(reading["resumed"]) and not bool(undisturbed["resumed"])
    assert torch.equal(reading["weights"], undisturbed["weights"])
    assert torch.equal(reading["losses"], undisturbed["losses"])
    assert not unfinished_path(store, run.key).exists()


def test_a_run_that_failed_by_itself_begins_anew_and_leaves_nothing(tmp_path):
    store = Store(tmp_path)
    (run,) = runs("fail_half_way", 1)
    (failure,) = sweep([run], store).failures.values()
    assert failure.error == "RuntimeError: no more"
    assert not unfinished_path(store, run.key).exists()


def test_nothing_is_kept_outside_a_sweep_or_where_the_store_is_out_of_reach(tmp_path):
    assert unfinished_work() is None
    with keeping(tmp_path / "elsewhere" / "unfinished" / "run.pt"):
        assert unfinished_work() is None
    with keeping(tmp_path / "unfinished" / "run.pt"):
        assert unfinished_work() == tmp_path / "unfinished" / "run.pt"
    assert unfinished_work() is None
