"""A budget is kept, and one that nothing can be done with is refused at once."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from skiplens.base.errors import InvalidInputError, TooLargeError
from skiplens.base.memory import budget_bytes, require_least, share_of_memory
from skiplens.paths.spectrum import path_spectrum
from tests.budget_calls import CALLS, least_memory, network, samples
from tests.tolerances import assert_close

SAMPLES, BUDGET, ALLOWED = 20_000, 32 * 2**20, 1.3
QUICK = ("hessian_spectrum", "landscape along eigenvectors", "paths of the signal", "layers")
SLOW = tuple(name for name in CALLS if name not in QUICK)


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the largest resident set is read from /proc")
@pytest.mark.parametrize("names", [QUICK, pytest.param(SLOW, marks=pytest.mark.slow)], ids=["quick", "slow"])
def test_the_budget_is_kept_for_many_samples_in_one_batch(names):
    # The C library is told to give back what is freed: what is measured is what is held, not what it keeps for later.
    plain = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "tests.budget_calls", str(SAMPLES), str(BUDGET), *names]
    root = Path(__file__).parents[1]
    done = subprocess.run(words, env=plain, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    peaks = json.loads(done.stdout)
    assert set(peaks) == set(names) and all(peak <= ALLOWED * BUDGET for peak in peaks.values()), peaks


@pytest.mark.parametrize("of", ["signal", "jacobian", "gradient"])
def test_no_pass_of_a_path_spectrum_is_larger_than_the_budget(of):
    model, inputs, seen = network(), samples(64)[0], set()
    model.register_forward_pre_hook(lambda _, given: seen.add(len(given[0])))
    whole = path_spectrum(model, inputs, of=of)
    assert seen == {64}
    seen.clear()
    cut = path_spectrum(model, inputs, of=of, memory=200_000)
    assert seen and max(seen) <= 32 and "pieces to fit in memory" in cut.notes[-1]
    assert_close(cut.sample_energy, whole.sample_energy)


@pytest.mark.parametrize("memory", [1, 0, -5])
@pytest.mark.parametrize("name", CALLS)
def test_a_budget_for_nothing_is_refused_with_the_least_that_does(name, memory):
    with pytest.raises(TooLargeError, match=r"the least that does is \d|needs? [\d.]+ (B|KiB|MiB)"):
        CALLS[name](8, memory)


@pytest.mark.parametrize(
    "name",
    [
        *("hessian_spectrum", "landscape along eigenvectors", "landscape along random directions", "NTKOperator"),
        *("jacobian_spectrum", "signal", "layers", "task", "forecast"),
    ],
)
def test_the_least_that_is_named_does_and_a_byte_less_does_not(name):
    least = least_memory(lambda memory: CALLS[name](8, memory))
    CALLS[name](8, least)
    with pytest.raises(TooLargeError, match=f"the least that does is {least} "):
        CALLS[name](8, least - 1)


@pytest.mark.parametrize("memory", ["1GB", True, [5]])
def test_a_budget_that_is_no_number_is_refused(memory):
    with pytest.raises(InvalidInputError, match="memory is a number of bytes"):
        budget_bytes("cpu", memory)
    with pytest.raises(InvalidInputError, match="memory is a number of bytes"):
        require_least(memory, 10, "nothing")


def test_a_share_of_the_budget_is_a_share_of_the_least_too():
    with share_of_memory(0.5), share_of_memory(0.5):
        assert budget_bytes("cpu", 1000) == 250
        with pytest.raises(TooLargeError, match="the least that does is 400 "):
            require_least(399, 100, "this")
        require_least(400, 100, "this")
    assert budget_bytes("cpu", 1000) == 1000
