import pytest
import scipy.sparse.linalg
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.linalg.operator import DenseOperator, FunctionOperator
from tests.linalg.matrices import with_spectrum
from tests.tolerances import assert_close


@pytest.fixture
def matrix(generator):
    return with_spectrum(torch.arange(1.0, 8.0), generator)


def operators(matrix):
    return [DenseOperator(matrix), FunctionOperator(lambda v: matrix @ v, like=matrix[0])]


def test_products_with_vectors_and_blocks(matrix, generator):
    block = torch.randn(7, 3, generator=generator)
    for operator in operators(matrix):
        assert_close(operator @ block, matrix @ block)
        assert_close(operator @ block[:, 0], matrix @ block[:, 0])
        assert (operator @ block[:, :0]).shape == (7, 0)


def test_dense_is_the_matrix(matrix):
    for operator in operators(matrix):
        assert_close(operator.dense(), matrix)
        assert (operator.size, operator.dtype, operator.device) == (7, matrix.dtype, matrix.device)


def test_scipy_finds_the_same_eigenvalue(matrix):
    for operator in operators(matrix):
        largest = scipy.sparse.linalg.eigsh(operator.to_scipy(), k=1, which="LA", return_eigenvectors=False)
        assert_close(torch.as_tensor(largest), torch.tensor([7.0]))


def test_wrong_shape_is_refused(matrix):
    with pytest.raises(InvalidInputError, match=r"size 7 got a tensor of shape \(6,\).*vector of shape \(7,\)"):
        DenseOperator(matrix) @ torch.ones(6)
