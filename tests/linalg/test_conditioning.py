import math

import pytest
import torch

from skiplens.linalg.conditioning import absolute_quantile, condition_number, nearest_rank


def test_what_is_zero_to_rounding_makes_a_condition_number_infinite():
    assert condition_number(3.0, 1.5) == 2.0
    assert condition_number(3.0, 1e-9) == 3e9
    assert condition_number(3.0, 1e-9, resolution=1e-6) == math.inf
    assert condition_number(3.0, -1.0) == condition_number(0.0, 0.0, resolution=1e-6) == math.inf
    assert math.isnan(condition_number(0.0, 0.0))


@pytest.mark.parametrize("size", [1, 9, 10, 11, 30, 100, 1000, 2999])
@pytest.mark.parametrize("share", [0.07, 0.1, 0.3, 1.0])
def test_ranks_and_weights_give_the_same_quantile(size, share):
    values = torch.linspace(-1, 2, size, dtype=torch.float64)
    ranked = values.abs().sort().values[nearest_rank(share, size) - 1]
    assert absolute_quantile(values, torch.full_like(values, 1 / size), share) == ranked
    assert nearest_rank(share, size) == max(1, -(-round(share * 100) * size // 100))


def test_the_quantile_is_that_of_the_nearest_rank():
    values = torch.arange(1.0, 11.0)
    for count, expected in ((10, 1.0), (9, 1.0), (11, 2.0)):
        chosen = torch.arange(1.0, count + 1)
        assert absolute_quantile(-chosen, torch.full((count,), 1 / count)) == expected
    # 0.07 · 100 is 7.000000000000001 in floating point; the rank stays 7.
    hundred = torch.arange(1.0, 101.0)
    assert absolute_quantile(hundred, torch.full((100,), 0.01), share=0.07) == 7.0
    assert absolute_quantile(values, torch.tensor([0.05] + [0.95 / 9] * 9)) == 2.0
