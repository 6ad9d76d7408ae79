import pytest

from skiplens.base.errors import InvalidInputError
from skiplens.sweeps.run import Needs, Run
from tests.sweeps.measures import Probe, runs


def test_a_run_is_named_by_its_measure_and_the_hash_of_its_settings():
    run = Run("tests.sweeps.measures:draw", Probe(seed=3))
    assert run.key == f"draw-{Probe(seed=3).key()}"
    assert str(run) == "draw Probe(seed=3)"
    assert len({run.key for run in runs(count=7)}) == 7


def test_needs_do_not_change_the_key():
    assert Run("a:b", Probe(), Needs(threads=4)).key == Run("a:b", Probe()).key


@pytest.mark.parametrize("needs", [{"threads": 0}, {"gpus": -1}, {"memory": -1}])
def test_impossible_needs_are_refused(needs):
    with pytest.raises(InvalidInputError, match="at least one thread and nothing negative"):
        Needs(**needs)
