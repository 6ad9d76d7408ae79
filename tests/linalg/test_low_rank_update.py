import pytest
import torch

from skiplens.linalg.low_rank_update import updated_eigenvalues
from tests.tolerances import assert_close


def update(size: int, rank: int, generator: torch.Generator):
    factors = torch.randn(size, rank, generator=generator) / size**0.5
    core = torch.randn(rank, rank, generator=generator)
    return factors, core + core.T


def diagonal(kind: str, size: int, generator: torch.Generator):
    values = 4 * torch.rand(size, generator=generator)
    if kind == "half zero":
        values[: size // 2] = 0
    if kind == "clusters":  # equal up to rounding
        values = values.mul(10).round() / 10 + 1e-15 * torch.randn(size, generator=generator)
    if kind == "all equal":
        values = torch.ones(size)
    return values


@pytest.mark.parametrize("kind", ["distinct", "half zero", "clusters", "all equal"])
@pytest.mark.parametrize(("size", "rank"), [(1, 1), (6, 2), (60, 5), (300, 8)])
def test_eigenvalues_are_those_of_the_dense_matrix(kind, size, rank, generator):
    values = diagonal(kind, size, generator)
    factors, core = update(size, rank, generator)
    expected = torch.linalg.eigvalsh(torch.diag(values) + factors @ core @ factors.T)
    assert_close(updated_eigenvalues(values, factors, core), expected)


def test_more_factors_than_rows(generator):
    values = torch.rand(4, generator=generator)
    factors, core = update(4, 9, generator)
    expected = torch.linalg.eigvalsh(torch.diag(values) + factors @ core @ factors.T)
    assert_close(updated_eigenvalues(values, factors, core), expected)


def test_no_update_leaves_the_diagonal(generator):
    values = torch.rand(20, generator=generator)
    assert_close(updated_eigenvalues(values, torch.zeros(20, 2), torch.eye(2)), values.sort().values)


def test_update_that_meets_one_entry_only():
    """Everything else is deflated: closed form."""
    factors = torch.zeros(5, 1)
    factors[2] = 2.0
    found = updated_eigenvalues(torch.arange(5.0), factors, torch.eye(1))
    assert_close(found, torch.tensor([0.0, 1.0, 3.0, 4.0, 6.0]))


def test_progress_counts_the_updates(generator):
    seen = []
    factors, core = update(30, 3, generator)
    updated_eigenvalues(torch.rand(30, generator=generator), factors, core, lambda *step: seen.append(step[1:]))
    assert seen == [(0, 3), (1, 3), (2, 3), (3, 3)]
