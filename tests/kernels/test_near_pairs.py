import pytest
import torch

from skiplens.kernels import evaluate
from skiplens.kernels.angular import NearLimits
from skiplens.kernels.evaluate import half_squared_distance, precise_correlation


def unit(*angles):
    return torch.tensor([[torch.cos(torch.tensor(a)), torch.sin(torch.tensor(a))] for a in angles])


@pytest.mark.parametrize("many", [0.0, 1.0])
def test_small_distances_are_accurate_both_by_gathering_and_by_dense_distances(many, monkeypatch):
    monkeypatch.setattr(evaluate, "_MANY", many)
    rows, columns = unit(0.0, 1e-9), unit(0.0, 1.0)
    found = precise_correlation(rows, columns, NearLimits(1e-3, 1e-3))
    expected = torch.tensor(
        [[0.0, 2 * torch.sin(torch.tensor(0.5)) ** 2], [5e-19, 2 * torch.sin(torch.tensor((1 - 1e-9) / 2)) ** 2]]
    )
    torch.testing.assert_close(found.below_one, expected, rtol=1e-14, atol=0)


def test_nearly_opposite_pairs():
    found = precise_correlation(unit(0.0), -unit(1e-7), NearLimits(1e-3, 1e-3))
    assert float(found.above_minus_one) == pytest.approx(5e-15, rel=1e-8, abs=0)


def test_without_limits_nothing_is_replaced():
    rows = unit(0.3, 0.9)
    found = precise_correlation(rows, rows, NearLimits(0.0, 0.0))
    torch.testing.assert_close(found.below_one, 1 - rows @ rows.T, rtol=0, atol=1e-15)


def test_pairs_in_several_batches(monkeypatch, generator):
    monkeypatch.setattr(evaluate, "_ENTRIES_AT_ONCE", 6)
    X, Y = torch.randn(5, 3, generator=generator), torch.randn(4, 3, generator=generator)
    pairs = torch.cartesian_prod(torch.arange(5), torch.arange(4))
    expected = torch.cdist(X, Y).square().flatten() / 2
    torch.testing.assert_close(half_squared_distance(X, Y, pairs), expected)
