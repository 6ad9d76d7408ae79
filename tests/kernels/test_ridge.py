import pytest
import torch

from skiplens.base.errors import DidNotConverge, InvalidInputError
from skiplens.kernels.sklearn_kernel import ridge_weights


def test_solves_the_shifted_system(generator):
    A = torch.randn(6, 6, generator=generator)
    K, targets = A @ A.T, torch.randn(6, 2, generator=generator)
    torch.testing.assert_close((K + 0.3 * torch.eye(6)) @ ridge_weights(K, targets, 0.3), targets)


def test_a_singular_matrix_is_told():
    with pytest.raises(
        DidNotConverge, match=r"matrix of 3 samples plus ridge 0 is not positive definite.*larger ridge"
    ):
        ridge_weights(-torch.ones(3, 3), torch.ones(3, 1), 0.0)


def test_a_negative_ridge_is_refused():
    with pytest.raises(InvalidInputError, match=r"ridge must not be negative, got -1\.0"):
        ridge_weights(torch.eye(2), torch.ones(2, 1), -1.0)
