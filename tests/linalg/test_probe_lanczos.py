import pytest
import torch

from skiplens.linalg.lanczos import tridiagonalise_each
from skiplens.linalg.operator import DenseOperator
from skiplens.linalg.trace import rademacher
from tests.linalg.matrices import with_spectrum
from tests.tolerances import assert_close


@pytest.fixture
def operator(generator):
    return DenseOperator(with_spectrum(torch.linspace(-1, 4, 40), generator))


def tridiagonal(A, start, steps):
    """Lanczos of one vector as textbooks write it, with full reorthogonalisation: diagonal, off-diagonal."""
    basis, diagonal, off_diagonal = [start / start.norm()], [], []
    for _ in range(steps):
        product = A @ basis[-1]
        diagonal.append(basis[-1] @ product)
        Q = torch.stack(basis, dim=1)
        for _ in range(2):
            product = product - Q @ (Q.T @ product)
        off_diagonal.append(product.norm())
        basis.append(product / product.norm())
    return torch.stack(diagonal), torch.stack(off_diagonal)


@pytest.mark.parametrize("reorthogonalise", [True, False])
def test_each_probe_has_the_recurrence_it_has_alone(operator, generator, reorthogonalise):
    """The oracle is the recurrence of one vector, written for itself."""
    probes = rademacher(40, 3, generator)
    together = tridiagonalise_each(operator, probes, 12, reorthogonalise)
    for row in range(3):
        diagonal, off_diagonal = tridiagonal(operator.dense(), probes[:, row], 12)
        # Without reorthogonalisation rounding grows as eigenvalues converge; a dozen steps of 40 are before that.
        tolerance = 1e-12 if reorthogonalise else 1e-8
        assert_close(together.diagonal[row], diagonal, relative=tolerance)
        assert_close(together.off_diagonal[row], off_diagonal, relative=tolerance)


def test_as_many_steps_as_rows_give_all_eigenvalues(operator, generator):
    found = tridiagonalise_each(operator, rademacher(40, 2, generator), 100)
    assert found.diagonal.shape == (2, 40)
    assert (found.off_diagonal[:, -1] == 0).all()
    values = torch.linalg.eigvalsh(found.matrices())
    assert_close(values, torch.linspace(-1, 4, 40).expand(2, -1), relative=1e-10)  # 40 steps of rounding


def test_a_krylov_space_that_ends_is_filled_up_inside_the_spectrum(generator):
    A = with_spectrum(torch.tensor([2.0] * 5 + [7.0] * 5), generator)
    probes = torch.stack([torch.linalg.eigh(A).eigenvectors[:, 0], rademacher(10, 1, generator)[:, 0]], dim=1)
    found = tridiagonalise_each(DenseOperator(A), probes, 6)
    assert (found.off_diagonal[0] == 0).all() and (found.off_diagonal[1, 1:] == 0).all()
    assert_close(found.diagonal[0], torch.full((6,), 2.0))
    values, vectors = torch.linalg.eigh(found.matrices()[1])
    assert values.min() >= 2 - 1e-12 and values.max() <= 7 + 1e-12
    assert_close(vectors[0].square().sum(), torch.tensor(1.0))


def test_single_precision_gives_double_precision_matrices(operator, generator):
    single = DenseOperator(operator.dense().float())
    found = tridiagonalise_each(single, rademacher(40, 2, generator).float(), 5)
    assert found.diagonal.dtype == torch.float64


def test_progress_is_told_after_each_step(operator, generator):
    told = []
    tridiagonalise_each(operator, rademacher(40, 2, generator), 3, progress=lambda *words: told.append(words[1:]))
    assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]
