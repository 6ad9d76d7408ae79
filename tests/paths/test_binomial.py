import mpmath
import pytest
import torch

from skiplens.paths.weights import log_binomial


@pytest.mark.parametrize("trials", [0, 1, 2, 15, 16, 17, 33, 1000, 10**6])
@pytest.mark.parametrize("odds", [1e-7, 0.11, 1.0, 1e4])
def test_log_pmf_equals_fifty_digits(trials, odds):
    counts = sorted({0, 1, 2, 14, 15, 16, trials // 3, trials // 2, trials - 1, trials} & set(range(trials + 1)))
    found = log_binomial(torch.tensor(counts), trials, torch.tensor(odds))
    with mpmath.workdps(50):
        b = mpmath.mpf(odds)
        expected = [
            float(mpmath.log(mpmath.binomial(trials, j)) + j * mpmath.log(b) - trials * mpmath.log1p(b)) for j in counts
        ]
    assert found.tolist() == pytest.approx(expected, rel=1e-13, abs=1e-14)


def test_impossible_counts_have_no_weight():
    found = log_binomial(torch.tensor([-1, 4]), 3, torch.tensor(0.5))
    assert found.tolist() == [-torch.inf, -torch.inf]
