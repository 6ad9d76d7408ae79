import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.papers.li2016_shortcuts.hessian.exact import commutation_matrix, flatten, unflatten


def test_flatten_puts_each_entry_where_definition_5_says():
    d, n, R = 3, 2, 4
    weights = torch.arange(R * n * d * d, dtype=torch.float64).reshape(R * n, d, d)
    flat = flatten(weights)
    for r in range(1, R + 1):
        for k in range(1, n + 1):
            for i in range(1, d + 1):
                for j in range(1, d + 1):
                    place = ((r - 1) * n + (k - 1)) * d**2 + (j - 1) * d + (i - 1)
                    assert flat[place] == weights[(r - 1) * n + k - 1, i - 1, j - 1]


def test_unflatten_undoes_flatten(generator):
    weights = torch.randn(5, 4, 3, 3, generator=generator)
    assert torch.equal(unflatten(flatten(weights), 3), weights)


def test_parameters_that_are_no_whole_matrices():
    with pytest.raises(InvalidInputError, match="10 parameters are not whole matrices of width 3"):
        unflatten(torch.zeros(10), 3)


@pytest.mark.parametrize(("rows", "columns"), [(3, 3), (2, 5)])
def test_commutation_matrix_transposes(rows, columns, generator):
    V = torch.randn(rows, columns, generator=generator)
    vec = lambda matrix: matrix.T.reshape(-1)  # noqa: E731 - columns stacked
    assert torch.equal(commutation_matrix(rows, columns) @ vec(V), vec(V.T))


def test_commutation_matrix_is_the_printed_permutation():
    d = 4
    K = commutation_matrix(d)
    for j in range(1, d * d + 1):
        i = ((j - 1) % d) * d + -(-j // d)
        assert K[i - 1, j - 1] == 1
    assert torch.equal(K, K.T) and torch.equal(K @ K, torch.eye(d * d))
