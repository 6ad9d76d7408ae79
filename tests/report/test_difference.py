import math

import pytest
import scipy.stats
import torch

from skiplens.report.compared import adjusted, is_certain, p_value


def test_draws_of_both_are_welchs_test(generator):
    left, right = torch.randn(5, generator=generator), 2 + 3 * torch.randn(7, generator=generator)
    expected = scipy.stats.ttest_ind(left.numpy(), right.numpy(), equal_var=False).pvalue
    assert p_value(left, right) == pytest.approx(expected, rel=1e-12)
    assert p_value(right, left) == pytest.approx(expected, rel=1e-12)


def test_one_draw_against_several_keeps_its_level(generator):
    """Where the one is drawn like the others, p is uniform: a share of 10 % is below 0.1."""
    count = 2000
    draws = torch.randn(count, 5, generator=generator)
    below = sum(p_value(row[:1], row[1:]) < 0.1 for row in draws) / count
    assert abs(below - 0.1) < 4 * math.sqrt(0.1 * 0.9 / count)


def test_what_cannot_be_tested_is_nan():
    one, several = torch.tensor([1.0]), torch.tensor([1.0, 2.0, 3.0])
    assert math.isnan(p_value(one, one)) and math.isnan(p_value(one[:0], several))
    assert math.isnan(p_value(torch.tensor([1.0, math.inf]), several))


def test_numbers_that_never_vary_need_no_test():
    assert is_certain(torch.ones(3), 2 * torch.ones(2)) and math.isnan(p_value(torch.ones(3), 2 * torch.ones(2)))
    assert is_certain(torch.ones(3), torch.ones(1))
    assert not is_certain(torch.ones(1), torch.ones(1))  # one draw of each shows nothing
    assert not is_certain(torch.ones(3), torch.tensor([1.0, 2.0]))


def test_holm_by_hand_and_by_its_definition():
    assert adjusted([0.01, 0.04, 0.03, math.nan]) == pytest.approx([0.03, 0.06, 0.06, math.nan], nan_ok=True)
    assert adjusted([0.6, 0.9]) == [1.0, 1.0] and adjusted([]) == []


def test_holm_tells_no_difference_among_equals(generator):
    """Twenty numbers of two alike models: any of them is told as different in at most 5 % of comparisons."""
    count = 300
    wrong = 0
    for _ in range(count):
        left, right = torch.randn(20, 4, generator=generator), torch.randn(20, 4, generator=generator)
        wrong += min(adjusted([p_value(a, b) for a, b in zip(left, right, strict=True)])) < 0.05
    assert wrong / count < 0.05 + 4 * math.sqrt(0.05 * 0.95 / count)
