import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.linalg.lanczos import LanczosOptions, extreme_eigenpairs
from skiplens.linalg.operator import DenseOperator
from tests.linalg.matrices import with_spectrum
from tests.tolerances import assert_close


@pytest.mark.parametrize("block_size", [1, 2, 5])
@pytest.mark.parametrize(("largest", "smallest"), [(1, 0), (3, 2), (0, 2)])
def test_agrees_with_dense_eigenvalues(block_size, largest, smallest, generator):
    A = with_spectrum(torch.linspace(-3, 10, 120) ** 3, generator)
    options = LanczosOptions(block_size=block_size, basis_size=50)
    pairs = extreme_eigenpairs(DenseOperator(A), generator, largest, smallest, options)
    exact = torch.linalg.eigvalsh(A)
    wanted = torch.cat([exact[:smallest], exact[len(exact) - largest :]])
    assert pairs.converged.all()
    assert_close(pairs.values, wanted)
    assert_close(pairs.vectors.T @ pairs.vectors, torch.eye(largest + smallest))


def test_every_residual_bounds_the_distance_to_an_eigenvalue(generator):
    A = with_spectrum(torch.logspace(-4, 0, 80), generator)
    options = LanczosOptions(basis_size=12, max_products=30)
    pairs = extreme_eigenpairs(DenseOperator(A), generator, 2, 2, options)
    distance = (pairs.values[:, None] - torch.linalg.eigvalsh(A)[None]).abs().min(1).values
    assert (distance <= pairs.residuals + 1e-14).all()
    torch.testing.assert_close((A @ pairs.vectors - pairs.vectors * pairs.values).norm(dim=0), pairs.residuals)


def test_says_when_it_did_not_converge(generator):
    A = with_spectrum(torch.logspace(-8, 0, 200), generator)
    pairs = extreme_eigenpairs(DenseOperator(A), generator, 1, 1, LanczosOptions(basis_size=10, max_products=20))
    assert not pairs.converged[0]
    assert pairs.products <= 20 + 2


def test_block_finds_the_multiplicity(generator):
    spectrum = torch.cat([torch.linspace(0, 1, 60), torch.full((3,), 2.0)])
    pairs = extreme_eigenpairs(
        DenseOperator(with_spectrum(spectrum, generator)), generator, 4, 0, LanczosOptions(block_size=3)
    )
    assert_close(pairs.values, torch.tensor([1.0, 2.0, 2.0, 2.0]))


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("block_size", [1, 2, 4])
def test_small_matrices_are_exhausted(size, block_size, generator):
    A = with_spectrum(torch.arange(size).double() - 1, generator)
    options = LanczosOptions(block_size=block_size)
    pairs = extreme_eigenpairs(DenseOperator(A), generator, size, 0, options)
    torch.testing.assert_close(pairs.values, torch.arange(size).double() - 1)
    assert pairs.products <= 2 * size


@pytest.mark.parametrize("matrix", [torch.eye(20), torch.zeros(20, 20)], ids=["identity", "zero"])
def test_a_krylov_space_that_ends_at_once(matrix, generator):
    pairs = extreme_eigenpairs(DenseOperator(matrix), generator, 2, 2)
    torch.testing.assert_close(pairs.values, matrix.diagonal()[:4])
    assert pairs.converged.all()


def test_single_precision(generator):
    A = with_spectrum(torch.linspace(0.1, 5, 90), generator).float()
    pairs = extreme_eigenpairs(DenseOperator(A), generator, 2, 1)
    assert pairs.values.dtype == torch.float32
    assert_close(pairs.values, torch.linalg.eigvalsh(A)[[0, -2, -1]])


@pytest.mark.parametrize(("largest", "smallest"), [(0, 0), (4, 0), (2, 2), (2, -1)])
def test_impossible_numbers_of_pairs_are_refused(largest, smallest, generator):
    with pytest.raises(InvalidInputError, match=f"{largest} largest and {smallest} smallest .* size 3; ask for"):
        extreme_eigenpairs(DenseOperator(torch.eye(3)), generator, largest, smallest)
