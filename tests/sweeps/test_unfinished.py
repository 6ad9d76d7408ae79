from skiplens.readings.store import Store
from skiplens.sweeps.run import keeping, unfinished_path, unfinished_work
from skiplens.sweeps.sweep import sweep
from tests.sweeps.measures import runs


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
