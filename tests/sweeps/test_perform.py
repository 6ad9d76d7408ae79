import pytest
import torch

from skiplens.base.errors import ClusterError
from skiplens.base.preserve_state import threads
from skiplens.base.version import VERSION
from skiplens.sweeps.run import Needs, Run, perform
from tests.sweeps.measures import Probe, runs


def test_a_measurement_has_its_settings_and_its_time():
    reading = perform(Run("tests.sweeps.measures:draw", Probe(seed=2, seconds=0.01))).reading
    assert reading.name == "tests.sweeps.measures:draw"
    assert reading.setting("seed") == 2 and reading.provenance.seed == 2
    assert reading.provenance.seconds >= 0.01
    assert reading["product"].shape == (20, 20)


def test_a_run_computes_with_the_threads_it_asks_for():
    before = torch.get_num_threads()
    reading = perform(Run("tests.sweeps.measures:draw", Probe(), Needs(threads=2))).reading
    assert int(reading["threads"]) == 2
    assert torch.get_num_threads() == before


def test_threads_are_put_back_after_an_error():
    before = torch.get_num_threads()
    with pytest.raises(RuntimeError), threads(before + 1):
        raise RuntimeError
    assert torch.get_num_threads() == before


def test_an_error_is_an_outcome_with_its_traceback():
    outcome = perform(runs("fail_at_three", 4)[3])
    assert outcome.reading is None
    assert outcome.failure.error == "RuntimeError: three is not allowed"
    assert "in fail_at_three" in outcome.failure.traceback


@pytest.mark.parametrize(
    ("measure", "message"),
    [
        ("tests.sweeps.measures:return_a_list", "returned a list; a measure returns a reading, or tensors by name"),
        ("tests.sweeps.measures:drew", "Did you mean draw"),
        ("tests.sweeps.nowhere:draw", "There is no module"),
    ],
)
def test_a_bad_measure_is_told(measure, message):
    assert message in perform(Run(measure, Probe())).failure.error


def test_more_memory_than_there_is_is_refused():
    failure = perform(Run("tests.sweeps.measures:draw", Probe(), Needs(memory=2**60))).failure
    assert "needs 1048576.0 TiB" in failure.error and "larger machine" in failure.error


def test_work_for_another_version_is_refused():
    with pytest.raises(ClusterError, match=f"A worker has Skiplens {VERSION}, the command has 0.0.0"):
        perform(runs()[0], version="0.0.0")
