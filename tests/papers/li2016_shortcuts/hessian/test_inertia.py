import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from skiplens.base.errors import InvalidInputError
from skiplens.papers.li2016_shortcuts.hessian.linear_inertia import Factored, count_negative
from tests.tolerances import assert_close


@settings(max_examples=30)
@given(size=st.integers(1, 40), seed=st.integers(0, 10**6), shift=st.floats(-1, 1))
def test_inertia_counts_what_eigenvalues_count(size, seed, shift):
    A = torch.randn(size, size, generator=torch.Generator().manual_seed(seed))
    H = A + A.T
    assert count_negative(H, shift) == int((torch.linalg.eigvalsh(H) < shift).sum())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_zero_diagonal_needs_pivots_of_two(dtype, generator):
    A = torch.randn(6, 6, generator=generator, dtype=dtype)
    H = torch.cat([torch.cat([torch.zeros_like(A), A.T], 1), torch.cat([A, torch.zeros_like(A)], 1)])
    assert count_negative(H) == 6


def test_factors_solve(generator):
    A = torch.randn(9, 9, generator=generator)
    H, right = A + A.T, torch.randn(9, 2, generator=generator)
    assert_close(H @ Factored(H).solve(right), right, relative=1e-10)  # condition number of a random matrix: hundreds


def test_a_matrix_that_is_not_square():
    with pytest.raises(InvalidInputError, match=r"square symmetric matrix; got shape \(2, 3\)"):
        count_negative(torch.zeros(2, 3))
