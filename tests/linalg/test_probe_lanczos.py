import gc
import inspect

import pytest
import torch

from skiplens.base.randomness import Randomness
from skiplens.linalg import density
from skiplens.linalg.density import DensityOptions, spectral_density
from skiplens.linalg.lanczos import tridiagonalise_each
from skiplens.linalg.operator import DenseOperator, SymmetricOperator
from tests.linalg.matrices import with_spectrum
from tests.linalg.signs import rademacher
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


class Watched(SymmetricOperator):
    """A diagonal matrix that counts the vectors of its size which live while it multiplies."""

    size, dtype, device = 1999, torch.float64, torch.device("cpu")

    def __init__(self, diagonal=None):
        self.diagonal, self.living = diagonal, []

    def apply(self, block):
        found = {t.data_ptr() for t in gc.get_objects() if type(t) is torch.Tensor and t.numel() == self.size}
        self.living.append(len(found - {None if self.diagonal is None else self.diagonal.data_ptr()}))
        return block if self.diagonal is None else self.diagonal[:, None] * block


def test_two_vectors_live_beside_a_product(monkeypatch):
    """The newest and the one before it; each takes half a gigabyte in a network of a hundred million parameters."""
    bare = inspect.unwrap(tridiagonalise_each)  # what checks the types of arguments would hold on to them
    monkeypatch.setattr(density, "tridiagonalise_each", bare)
    operator = Watched(torch.linspace(-1, 2, Watched.size, dtype=torch.float64))
    spectral_density(operator, Randomness(0), DensityOptions(probes=2, steps=4, at_once=1, reorthogonalise=False))
    assert operator.living == [2] * 8


def test_an_operator_that_gives_back_what_it_got(generator):
    """The identity: its one vector is kept while the next is made, so it must not be written over."""
    operator, start = Watched(), rademacher(Watched.size, 1, generator)
    for keep in (True, False):
        found = tridiagonalise_each(operator, start, 4, keep)
        assert_close(found.diagonal, torch.ones(1, 4))
        assert (found.off_diagonal == 0).all()
    assert (start.abs() == 1).all()
